"""Dataloader: too few or too many data loader processes for a node's cores.

Source: AWS documentation of Dataloader and the managed rule's definition (per second, the number of distinct loader
processes; the rule fires when its median is below min_threshold or above max_threshold percent of the cores). The
processes of a node are counted against that node's own cores here: the median of each training process, summed over
those that load data. A training process is no loader, and a loader set up with some workers has them all.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from trainguard.records import Status
from trainguard.rules import loaders_output as output
from trainguard.rules.loader_series import LoaderState
from trainguard.rules.loaders_output import Load, LoaderDetails
from trainguard.rules.parameter_help import LOADER_SECONDS, WAITED, ParameterHelp, span_help
from trainguard.rules.protocol import JoinedRule, NonNegativeInt, Positive
from trainguard.rules.rule_inputs import JobView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import FRAMEWORK, SYSTEM, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS, SMALL_WORK
from trainguard.rules.units import counted
from trainguard.rules.windowing import PatienceParameters
from trainguard.telemetry.framework import FrameworkEvents

CLEAR_AFTER_S = 1_800.0
BUCKET_S = 1.0


class DataloaderParameters(PatienceParameters, frozen=True, kw_only=True):
    """Thresholds in percent of the node's cores; ``patience`` in seconds with loader events, as is ``patience_s``."""

    default_patience_s: ClassVar[float | None] = 10.0
    default_points: ClassVar[int] = 1

    min_threshold: Positive = 70.0
    max_threshold: Positive = 200.0
    patience: NonNegativeInt | None = None
    patience_s: Positive | None = None


SPEC = RuleSpec(
    name="Dataloader",
    title="Data loading",
    looks_at="each node's data loaders and cores",
    fires_when="there are clearly fewer, or more, loader processes than the cores suggest",
    condition="a node's data loaders are less than {min_threshold} % or more than {max_threshold} % of its cores",
    measures=(Measure("data loaders of the node's cores", "%"),),
    counts=LOADER_SECONDS,
    parameters={
        "min_threshold": ParameterHelp("% of the node's cores", "fewer loaders are too few"),
        "max_threshold": ParameterHelp("% of the node's cores", "more loaders are too many"),
        **span_help("patience", WAITED, (LOADER_SECONDS, LOADER_SECONDS)),
    },
    managed_parameters=("min_threshold", "max_threshold"),
    inputs=SYSTEM | FRAMEWORK,
    metrics=("CPU",),
    explains=(LOW_GPUS, SMALL_WORK),
    clause=output.clause_of,
    details=LoaderDetails,
    section="trainguard.report.html.sections.dataloader:blocks",
)


class Dataloader(JoinedRule[DataloaderParameters, LoaderState]):
    """Fires when the loader processes of some node are too few or too many for its cores."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = DataloaderParameters
    state_type = LoaderState

    def clear_after_s(self, parameters: DataloaderParameters, interval_s: float) -> float:
        """Half an hour: the median is of the whole job and changes slowly."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def observe(self, state: LoaderState, events: FrameworkEvents, parameters: DataloaderParameters) -> None:
        """Add the loader events of one object."""
        del parameters
        state.fold(events)

    def judge(self, view: JobView, parameters: DataloaderParameters) -> RuleResult:
        """Compare the loader processes of each node with its cores; the worst node gives the reason."""
        states = dict(_states(view))
        loading = {node: state for node, state in states.items() if state.alive}
        if not loading:
            return _without_loaders(view, states)
        limits = parameters.min_threshold, parameters.max_threshold
        loads = [Load(node, view.nodes[node].cores, state, limits) for node, state in loading.items()]
        details = {node: output.details_of(state, view.nodes[node].cores) for node, state in states.items()}
        counted = [load for load in loads if load.cores]
        if not counted:
            reason = f"the number of cores of {loads[0].node} is not known yet: it has no CPU sample."
            return RuleResult(Status.WAITING_FOR_DATA, reason, details=details)
        patience = parameters.patience_points(BUCKET_S)
        judged = [load for load in counted if load.seconds > patience]
        if not judged:
            return _warming_up(max(counted, key=lambda load: load.seconds), patience, details)
        worst = max(judged, key=lambda load: load.badness)
        fired = worst.too_few or worst.too_many
        return RuleResult(
            Status.FIRED if fired else Status.OK,
            output.sentence_of(worst),
            measured=worst.percent,
            threshold=parameters.max_threshold if worst.too_many else parameters.min_threshold,
            worst=worst.node,
            data_points=sum(load.seconds for load in judged),
            advice=output.advice_on(worst, view.nodes[worst.node].system) if fired else None,
            affected_share=_affected_share(worst) if fired else None,
            wasted_share=_wasted_share(worst, view) if worst.too_few else None,
            details=details,
        )


def _states(view: JobView) -> Iterator[tuple[str, LoaderState]]:
    for node, facts in view.nodes.items():
        state = facts.collected.get(Dataloader.name)
        if isinstance(state, LoaderState):
            yield node, state


def _without_loaders(view: JobView, states: dict[str, LoaderState]) -> RuleResult:
    """Say why there is nothing to judge."""
    details = {node: output.details_of(state, view.nodes[node].cores) for node, state in states.items()}
    pipelines = {node: state for node, state in states.items() if state.prefetch is not None}
    if pipelines:
        prefetches = all(state.prefetch for state in pipelines.values())
        return RuleResult(
            Status.NOT_APPLICABLE,
            "the job loads data with TensorFlow, in threads of the training process: there are no loader processes to "
            f"count; its pipeline {'prefetches' if prefetches else 'does not prefetch'}.",
            advice=None if prefetches else "End the tf.data pipeline with prefetch(tf.data.AUTOTUNE).",
            details={node: details[node] for node in pipelines},
        )
    if view.framework_seen:
        return RuleResult(
            Status.NOT_APPLICABLE,
            "the job's framework metrics have no data loader events: it uses no loader that writes them.",
        )
    if view.framework_expected and not view.closed:
        return RuleResult(Status.WAITING_FOR_DATA, "no framework event was seen yet.")
    why = "none were seen" if view.framework_expected else "none are configured and none were seen"
    return RuleResult(
        Status.NOT_APPLICABLE,
        f"the job writes no framework metrics: {why}, so its data loaders are unknown.",
    )


def _warming_up(load: Load, patience: int, details: Mapping[str, LoaderDetails]) -> RuleResult:
    return RuleResult(
        Status.WARMING_UP,
        f"{load.node} has {load.seconds:,} of the more than {counted(patience, 'second')} with loader events "
        "that a verdict needs.",
        data_points=load.seconds,
        patience=f"{load.seconds}/{patience}",
        details=details,
    )


def _affected_share(load: Load) -> float:
    """Share of the seconds in which the node would be outside of the limits, other processes at their median."""
    outside = total = 0
    for process in load.processes:
        rest = load.loaders - process.median
        for number, seconds in process.counts.items():
            percent = 100.0 * (rest + number) / load.cores
            beyond = percent < load.limits[0] if load.too_few else percent > load.limits[1]
            outside += seconds * beyond
            total += seconds
    return outside / total


def _wasted_share(load: Load, view: JobView) -> float | None:
    """Mean share of the job's time that the node's training processes spent waiting for batches; None if not known."""
    waited_s = sum(process.waited_us for process in load.processes) / 1e6 / len(load.processes)
    if not waited_s or view.started_at is None or view.system_through is None:
        return None
    elapsed_s = view.system_through - view.started_at
    return min(waited_s / elapsed_s, 1.0) if elapsed_s > 0 else None
