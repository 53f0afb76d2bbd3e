"""Dataloader: too few or too many data loader processes for a node's cores.

Source: AWS documentation of Dataloader and the managed rule's definition (per second, the number of distinct loader
processes; the rule fires when its median is below min_threshold or above max_threshold percent of the cores). The
processes of a node are counted against that node's own cores here: the median of each training process, summed over
those that load data. A training process is no loader, and a loader set up with some workers has them all.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from trainguard.records import Status
from trainguard.rules.judgement import Judgement, Measure
from trainguard.rules.loader_series import DataloaderState, LoadingProcess
from trainguard.rules.parameter_help import LOADER_SECONDS, WAITED, ParameterHelp, span_help
from trainguard.rules.protocol import JoinedRule, NonNegativeInt, Positive, RuleParameters
from trainguard.rules.spec import FRAMEWORK, SYSTEM, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS, SMALL_WORK
from trainguard.rules.units import counted, show_number, show_percent
from trainguard.rules.views import JobView, NodeView
from trainguard.rules.windowing import patience_in_points
from trainguard.state.histogram import DurationHistogram
from trainguard.telemetry.events import UNKNOWN
from trainguard.telemetry.framework import FrameworkEvents

CLEAR_AFTER_S = 1_800.0
BUCKET_S = 1.0
BUSY_PERCENT = 70.0
"""GPUs that are as busy hardly wait for data."""


class DataloaderParameters(RuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent of the node's cores; ``patience`` in seconds with loader events, as is ``patience_s``."""

    min_threshold: Positive = 70.0
    max_threshold: Positive = 200.0
    patience: NonNegativeInt = 10
    patience_s: Positive | None = None


def _clause(judgement: Judgement, _: int) -> str:
    if judgement.status is not Status.FIRED or judgement.measured is None or judgement.threshold is None:
        return "the number of data loader processes did not fit the cores"
    number = "few" if judgement.measured < judgement.threshold else "many"
    return f"there were too {number} data loader processes for the cores"


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
    clause=_clause,
    section="trainguard.report.html.sections.dataloader:blocks",
)


@dataclass(frozen=True, slots=True)
class _Load:
    """Loader processes of one node; ``percent`` of its cores."""

    node: str
    cores: int
    state: DataloaderState
    parameters: DataloaderParameters

    @property
    def processes(self) -> list[LoadingProcess]:
        return self.state.alive

    @property
    def loaders(self) -> float:
        return sum(process.median for process in self.processes)

    @property
    def percent(self) -> float:
        return 100.0 * self.loaders / self.cores

    @property
    def seconds(self) -> int:
        return max(process.seconds for process in self.processes)

    @property
    def too_few(self) -> bool:
        return self.percent < self.parameters.min_threshold

    @property
    def too_many(self) -> bool:
        return self.percent > self.parameters.max_threshold

    @property
    def badness(self) -> float:
        """How far outside of the limits the node is: above 1 when it fires."""
        below = self.parameters.min_threshold / self.percent if self.percent else math.inf
        return max(below, self.percent / self.parameters.max_threshold)


class Dataloader(JoinedRule[DataloaderParameters, DataloaderState]):
    """Fires when the loader processes of some node are too few or too many for its cores."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = DataloaderParameters
    state_type = DataloaderState

    def clear_after_s(self, parameters: DataloaderParameters, interval_s: float) -> float:
        """Half an hour: the median is of the whole job and changes slowly."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def observe(self, state: DataloaderState, events: FrameworkEvents, parameters: DataloaderParameters) -> None:
        """Add the loader events of one object."""
        del parameters
        state.fold(events)

    def judge(self, view: JobView, parameters: DataloaderParameters) -> Judgement:
        """Compare the loader processes of each node with its cores; the worst node gives the reason."""
        states = dict(_states(view))
        loading = {node: state for node, state in states.items() if state.alive}
        if not loading:
            return _without_loaders(view, states)
        loads = [_Load(node, view.nodes[node].cores, state, parameters) for node, state in loading.items()]
        details = {node: _node_details(state, view.nodes[node].cores) for node, state in states.items()}
        counted = [load for load in loads if load.cores]
        if not counted:
            reason = f"the number of cores of {loads[0].node} is not known yet: it has no CPU sample."
            return Judgement(Status.WAITING_FOR_DATA, reason, details=details)
        patience = patience_in_points(parameters.patience, parameters.patience_s, BUCKET_S)
        judged = [load for load in counted if load.seconds > patience]
        if not judged:
            return _warming_up(max(counted, key=lambda load: load.seconds), patience, details)
        worst = max(judged, key=lambda load: load.badness)
        fired = worst.too_few or worst.too_many
        return Judgement(
            Status.FIRED if fired else Status.OK,
            _sentence(worst),
            measured=worst.percent,
            threshold=parameters.max_threshold if worst.too_many else parameters.min_threshold,
            worst=worst.node,
            data_points=sum(load.seconds for load in judged),
            advice=_advice(worst, view.nodes[worst.node].system) if fired else None,
            affected_share=_affected_share(worst) if fired else None,
            wasted_share=_wasted_share(worst, view) if worst.too_few else None,
            details=details,
        )


def _states(view: JobView) -> Iterator[tuple[str, DataloaderState]]:
    for node, facts in view.nodes.items():
        state = facts.collected.get(Dataloader.name)
        if isinstance(state, DataloaderState):
            yield node, state


def _without_loaders(view: JobView, states: dict[str, DataloaderState]) -> Judgement:
    """Say why there is nothing to judge."""
    details = {node: _node_details(state, view.nodes[node].cores) for node, state in states.items()}
    pipelines = {node: state for node, state in states.items() if state.prefetch is not None}
    if pipelines:
        prefetches = all(state.prefetch for state in pipelines.values())
        return Judgement(
            Status.NOT_APPLICABLE,
            "the job loads data with TensorFlow, in threads of the training process: there are no loader processes to "
            f"count; its pipeline {'prefetches' if prefetches else 'does not prefetch'}.",
            advice=None if prefetches else "End the tf.data pipeline with prefetch(tf.data.AUTOTUNE).",
            details={node: details[node] for node in pipelines},
        )
    if view.framework_seen:
        return Judgement(
            Status.NOT_APPLICABLE,
            "the job's framework metrics have no data loader events: it uses no loader that writes them.",
        )
    if view.framework_expected and not view.closed:
        return Judgement(Status.WAITING_FOR_DATA, "no framework event was seen yet.")
    why = "none were seen" if view.framework_expected else "none are configured and none were seen"
    return Judgement(
        Status.NOT_APPLICABLE,
        f"the job writes no framework metrics: {why}, so its data loaders are unknown.",
    )


def _warming_up(load: _Load, patience: int, details: dict[str, Any]) -> Judgement:
    return Judgement(
        Status.WARMING_UP,
        f"{load.node} has {load.seconds:,} of the more than {counted(patience, 'second')} with loader events "
        "that a verdict needs.",
        data_points=load.seconds,
        patience=f"{load.seconds}/{patience}",
        details=details,
    )


def _sentence(load: _Load) -> str:
    parameters, processes = load.parameters, load.processes
    least = f"min_threshold {show_percent(parameters.min_threshold)}"
    most = f"max_threshold {show_percent(parameters.max_threshold)}"
    limit = least if load.too_few else most if load.too_many else f"{least}, {most}"
    of = f"of {len(processes)} training processes " if len(processes) > 1 else ""
    return (
        f"{load.node} has {show_number(load.loaders)} loader process{'' if load.loaders == 1 else 'es'} {of}for "
        f"{counted(load.cores, 'core')}: {show_percent(load.percent)} ({limit})."
    )


def _advice(load: _Load, system: NodeView | None) -> str:
    processes = load.processes
    target = max(load.cores // len(processes), 1)
    declared = sorted({process.declared for process in processes} - {UNKNOWN})
    if any(number >= target if load.too_few else number <= target for number in declared):
        declared = []  # what was set up is not what was seen
    now = f" from {'/'.join(map(str, declared[:4]))}" if declared else ""
    each = f" in each of the {len(processes)} training processes" if len(processes) > 1 else ""
    verb = "Raise" if load.too_few else "Lower"
    advice = f"{verb} num_workers{now} to about {target}{each}, one loader process a core of {load.cores}"
    if any(process.pinned == 0 for process in processes):
        advice += "; set pin_memory=True, which is off"
    if load.state.prefetch is False:
        advice += "; end the tf.data pipeline with prefetch(tf.data.AUTOTUNE)"
    busy = None if system is None else _gpu_use(system)
    if busy is not None and busy >= BUSY_PERCENT:
        advice += f"; the used GPUs of {load.node} are {show_percent(busy)} busy on average all the same, so expect "
        advice += "little of it"
    return f"{advice}."


def _gpu_use(view: NodeView) -> float | None:
    """Return the mean utilization of a node's ever-active GPUs over the kept points, percent; None without any."""
    counts = view.gpu_histogram[view.ever_active].sum(axis=0)
    points = int(counts.sum())
    return float(counts @ np.arange(counts.size)) / points if points else None


def _affected_share(load: _Load) -> float:
    """Share of the seconds in which the node would be outside of the limits, other processes at their median."""
    outside = total = 0
    for process in load.processes:
        rest = load.loaders - process.median
        for number, seconds in process.counts.items():
            percent = 100.0 * (rest + number) / load.cores
            beyond = (
                percent < load.parameters.min_threshold if load.too_few else percent > load.parameters.max_threshold
            )
            outside += seconds * beyond
            total += seconds
    return outside / total


def _wasted_share(load: _Load, view: JobView) -> float | None:
    """Mean share of the job's time that the node's training processes spent waiting for batches; None if not known."""
    waited_s = sum(process.waited_us for process in load.processes) / 1e6 / len(load.processes)
    if not waited_s or view.started_at is None or view.system_through is None:
        return None
    elapsed_s = view.system_through - view.started_at
    return min(waited_s / elapsed_s, 1.0) if elapsed_s > 0 else None


def _node_details(state: DataloaderState, cores: int) -> dict[str, Any]:
    """Numbers of one node for the report; times in seconds."""
    processes = state.alive
    details: dict[str, Any] = {"cores": cores}
    if processes:
        details["dataloaders"] = sum(process.median for process in processes)
        details["training_processes"] = len(processes)
        details["seconds"] = max(process.seconds for process in processes)
        details["training_processes_not_judged"] = state.refused
    declared = [process.declared for process in processes if process.declared != UNKNOWN]
    if declared:
        details["num_workers"] = max(declared)
    pinned = [process.pinned for process in processes if process.pinned != UNKNOWN]
    if pinned:
        details["pin_memory"] = all(pinned)
    if state.prefetch is not None:
        details["prefetch"] = state.prefetch
    for name, durations in (
        ("dataloading_time", state.iterator_us),
        ("worker_time", state.worker_us),
        ("tensorflow_time", state.tensorflow_us),
    ):
        if durations.total:
            details[name] = _times(durations)
    return details


def _times(durations: DurationHistogram) -> dict[str, Any]:
    lower, upper = durations.edges()
    p25, p50, p95 = durations.quantiles((0.25, 0.5, 0.95))
    histogram = {"lower_us": lower.tolist(), "upper_us": upper.tolist(), "counts": list(durations.counts)}
    return {"p25": p25 / 1e6, "p50": p50 / 1e6, "p95": p95 / 1e6, "count": durations.total, "histogram": histogram}
