"""Dataloader: too few or too many data loader processes for a node's cores.

Source: AWS documentation of Dataloader and the managed rule's definition (per second, the number of distinct loader
processes; the rule fires when its median is below min_threshold or above max_threshold percent of the cores). The
processes of a node are counted against that node's own cores here: the median of each training process, summed over
those that load data. A training process is no loader, and a loader set up with some workers has them all. A number that
does not fit costs nothing while no GPU waits for it: the rule fires where loading costs a good part of the time.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainguard.finding import Progress
from trainguard.records import Status
from trainguard.rules import loaders_output as output
from trainguard.rules.loader_series import BLOCK_US, LoaderState
from trainguard.rules.loaders_output import Load, LoaderDetails, Waste
from trainguard.rules.paid_time import share_of_paid
from trainguard.rules.parameter_help import LOADER_SECONDS, WAITED, ParameterHelp, span_help
from trainguard.rules.protocol import JoinedRule, NonNegativeInt, Positive
from trainguard.rules.rule_inputs import JobView, NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import FRAMEWORK, SYSTEM, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS, SMALL_WORK
from trainguard.rules.units import counted, show_duration
from trainguard.rules.windowing import PatienceParameters
from trainguard.telemetry.framework import FrameworkEvents

CLEAR_AFTER_S = 1_800.0
BUCKET_S = 1.0
MIN_ELAPSED_S = 600.0


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
    fires_when="there are clearly fewer, or more, loader processes than the cores suggest, and loading costs time",
    condition=(
        "a node's data loaders are less than {min_threshold} % or more than {max_threshold} % of its cores, and "
        "waiting for them may have cost 15 % of the time or more"
    ),
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
        details = _details(view, states)
        counted = [load for load in loads if load.cores]
        if not counted:
            reason = f"the number of cores of {loads[0].node} is not known yet: it has no CPU sample."
            return RuleResult(Status.WAITING_FOR_DATA, reason, details=details)
        patience = parameters.patience_points(BUCKET_S)
        judged = [load for load in counted if load.seconds > patience]
        if not judged:
            return _warming_up(max(counted, key=lambda load: load.seconds), patience, details)
        wastes = {load.node: _waste(load, view) for load in judged}
        worst = max(judged, key=lambda load: (_is_found(load, wastes[load.node]), load.badness))
        waste, unfit = wastes[worst.node], worst.too_few or worst.too_many
        fired = _is_found(worst, waste)
        if fired and waste.whole.share is not None and not view.closed and _elapsed_s(view) < MIN_ELAPSED_S:
            return _too_early(worst, details)
        reason = output.sentence_of(worst)
        if unfit and not fired:
            reason += output.too_little(waste.costliest)
        return RuleResult(
            Status.FIRED if fired else Status.OK,
            reason,
            measured=worst.percent,
            threshold=parameters.max_threshold if worst.too_many else parameters.min_threshold,
            worst=worst.node,
            data_points=sum(load.seconds for load in judged),
            advice=output.advice_on(worst, view.nodes[worst.node].system) if fired else None,
            affected_share=_affected_share(worst) if fired else None,
            wasted_share=waste.whole.share if fired and worst.too_few and waste.whole.waited is not None else None,
            onset=_onset(worst, waste) if fired else None,
            gpus=_used_gpus(view.nodes[worst.node].system) if fired else (),
            details=details,
        )


@dataclass(frozen=True, slots=True)
class _Wastes:
    """What loading costs a node over the whole job, and of late."""

    whole: Waste
    recent: Waste

    @property
    def is_alarming(self) -> bool:
        return self.whole.is_alarming or (self.recent.share is not None and self.recent.is_alarming)

    @property
    def costliest(self) -> Waste:
        return max(self.whole, self.recent, key=lambda waste: -math.inf if waste.share is None else waste.share)


def _is_found(load: Load, waste: _Wastes) -> bool:
    return (load.too_few or load.too_many) and waste.is_alarming


def _states(view: JobView) -> Iterator[tuple[str, LoaderState]]:
    for node, facts in view.nodes.items():
        state = facts.collected.get(Dataloader.name)
        if isinstance(state, LoaderState):
            yield node, state


def _details(view: JobView, states: Mapping[str, LoaderState]) -> dict[str, LoaderDetails]:
    """Return the numbers of each node, where they are read."""
    if not view.detailed:
        return {}
    return {node: output.details_of(state, view.nodes[node].cores) for node, state in states.items()}


def _without_loaders(view: JobView, states: dict[str, LoaderState]) -> RuleResult:
    """Say why there is nothing to judge."""
    pipelines = {node: state for node, state in states.items() if state.prefetch is not None}
    if pipelines:
        prefetches = all(state.prefetch for state in pipelines.values())
        return RuleResult(
            Status.NOT_APPLICABLE,
            "the job loads data with TensorFlow, in threads of the training process: there are no loader processes to "
            f"count; its pipeline {'prefetches' if prefetches else 'does not prefetch'}.",
            advice=None if prefetches else "End the tf.data pipeline with prefetch(tf.data.AUTOTUNE).",
            details=_details(view, pipelines),
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
        progress=Progress(seen=load.seconds, needed=patience, counts="seconds"),
        details=details,
    )


def _too_early(load: Load, details: Mapping[str, LoaderDetails]) -> RuleResult:
    """Say that what loading costs is not known yet: the first batches of any job are waited for."""
    reason = f"{output.sentence_of(load)} What that costs is judged {show_duration(MIN_ELAPSED_S)} after the start."
    return RuleResult(Status.WARMING_UP, reason, data_points=load.seconds, details=details)


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


def _waste(load: Load, view: JobView) -> _Wastes:
    """Return what loading costs a node at most."""
    processes, system = load.processes, view.nodes[load.node].system
    waited_s = sum(process.waited_us for process in processes) / 1e6 / len(processes)
    elapsed_s = _elapsed_s(view)
    waited = min(waited_s / elapsed_s, 1.0) if waited_s and elapsed_s else None
    late = [share for share in (process.recent_wait for process in processes) if share is not None]
    recently = sum(late) / len(late) if late else waited
    used = None if system is None else output.gpu_use(system)
    if system is None or used is None:
        return _Wastes(Waste(waited, None), Waste(recently, None))
    undone = share_of_paid(system, (1.0 - used / 100.0) * system.kept_total * system.interval_s)
    newest = system.kept_gpu_utilization[:, system.ever_active]
    sampled = newest[~np.isnan(newest)]
    undone_recently = 1.0 - float(sampled.mean()) / 100.0 if sampled.size else None
    return _Wastes(Waste(waited, undone), Waste(recently, undone_recently))


def _elapsed_s(view: JobView) -> float:
    if view.started_at is None or view.system_through is None:
        return 0.0
    return view.system_through - view.started_at


def _onset(load: Load, waste: _Wastes) -> float | None:
    """Return since when loading costs so much: from its start on, or from the oldest block that is remembered."""
    starts = [process.first_us for process in load.processes if process.first_us is not None]
    if waste.whole.is_alarming:
        return min(starts) / 1e6 if starts else None
    return min((min(process.waits) * BLOCK_US / 1e6 for process in load.processes if process.waits), default=None)


def _used_gpus(system: NodeView | None) -> tuple[str, ...]:
    if system is None:
        return ()
    return tuple(system.gpu_names[index] for index in np.flatnonzero(system.ever_active).tolist())
