"""Dataloader: training that waits for batches, and too few or too many data loader processes for a node's cores.

Source: AWS documentation of Dataloader and the managed rule's definition; here it fires only where loading costs time.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from trainguard.core.finding import Fact, Patience
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import UNKNOWN
from trainguard.ledger.bucket import Bucket
from trainguard.rules.change import ChangeCode
from trainguard.rules.dataloader.details import (
    WAITING_SHARE,
    Load,
    LoaderDetails,
    LoaderWaiting,
    LoopWaits,
    between_steps,
    details_of,
    waits_of,
)
from trainguard.rules.dataloader.series import BLOCK_US, LoaderState
from trainguard.rules.dataloader.text import DataloaderKind, text
from trainguard.rules.protocol import JoinedRule, NonNegativeInt, Positive
from trainguard.rules.rule_inputs import ALARMING_WASTE, JobView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import (
    DATA_WAITS,
    FRAMEWORK,
    LOADER_SECONDS,
    LOW_GPUS,
    SMALL_WORK,
    SYSTEM,
    WAITED,
    ParameterHelp,
    RuleSpec,
    span_help,
)
from trainguard.rules.windows import PatienceParameters

BUCKET_S = 1.0
MIN_ELAPSED_S = 600.0


class DataloaderParameters(PatienceParameters, frozen=True, kw_only=True):
    default_patience_s: ClassVar[float | None] = 10.0
    default_points: ClassVar[int] = 1

    min_threshold: Positive = 70.0
    max_threshold: Positive = 200.0
    patience: NonNegativeInt | None = None
    patience_s: Positive | None = None


LOADERS = Measure("data loaders of the node's cores", "%")
WAITING = Measure("training loop spent waiting for batches", "%")
BETWEEN = Measure("training loop between its steps", "%")
_CLAIMED = (Bucket.DATA, Bucket.HOST, Bucket.IDLE, Bucket.UNEXPLAINED)


class Dataloader(JoinedRule[DataloaderParameters, LoaderState]):
    spec = RuleSpec(
        name="Dataloader",
        title="Data loading",
        looks_at="each node's data loaders and cores",
        fires_when=(
            "the training waits for batches, or loader processes are too few or too many, and loading costs time"
        ),
        condition=(
            "training processes wait for batches in 25 % of their loop while the GPUs idle, or, without loader events, "
            "no step runs in so much of it; or a node's data loaders are less than {min_threshold} % or more than "
            "{max_threshold} % of its cores, and waiting for them may have cost 15 % of the time or more"
        ),
        measures=(LOADERS, WAITING, BETWEEN),
        counts=LOADER_SECONDS,
        parameters={
            "min_threshold": ParameterHelp("% of the node's cores", "fewer loaders are too few"),
            "max_threshold": ParameterHelp("% of the node's cores", "more loaders are too many"),
            **span_help("patience", WAITED, (LOADER_SECONDS, LOADER_SECONDS)),
        },
        managed_parameters=("min_threshold", "max_threshold"),
        inputs=SYSTEM | FRAMEWORK,
        metrics=("CPU",),
        looks={DataloaderKind.BETWEEN_STEPS: DATA_WAITS},
        explains=(LOW_GPUS, SMALL_WORK, DATA_WAITS),
        changes={"": ChangeCode.FEED_FASTER, DataloaderKind.TOO_MANY: ChangeCode.FEWER_LOADER_WORKERS},
        text=text,
        claims={
            **dict.fromkeys((DataloaderKind.WAITS, DataloaderKind.TOO_FEW, DataloaderKind.TOO_MANY), _CLAIMED),
            DataloaderKind.BETWEEN_STEPS: (*_CLAIMED, Bucket.CHECKPOINT, Bucket.EVALUATION),
        },
        details=LoaderDetails,
        section="trainguard.rules.dataloader.section:blocks",
    )

    # Half an hour: the median is of the whole job and changes slowly.
    clear_s = 1_800.0

    def observe(self, state: LoaderState, events: FrameworkEvents, parameters: DataloaderParameters) -> None:
        state.fold(events)

    def judge(self, view: JobView, parameters: DataloaderParameters) -> RuleResult:
        states = view.collected(self.name, LoaderState)
        loading = {node: state for node, state in states.items() if state.alive}
        if not loading:
            return _without_loaders(view, states)
        limits = parameters.min_threshold, parameters.max_threshold
        loads = [Load(node, view.nodes[node].cores, state, limits) for node, state in loading.items()]
        details = _details(view, states)
        counted = [load for load in loads if load.cores]
        if not counted:
            unknown = (Fact(name="cores", value=0, node=loads[0].node),)
            return RuleResult.of_kind(text, DataloaderKind.NO_CORES, unknown, details=details)
        patience = parameters.patience_points(BUCKET_S)
        judged = [load for load in counted if load.seconds > patience]
        if not judged:
            furthest = max(counted, key=lambda load: load.seconds)
            node, seconds = furthest.node, furthest.seconds
            return RuleResult.of_kind(
                text,
                DataloaderKind.WARMING_UP,
                (Fact(name="seconds", value=seconds, unit="s", node=node, threshold=float(patience)),),
                data_points=seconds,
                progress=Patience(seen=seconds, needed=patience, counts="seconds"),
                details=details,
            )
        waits = {load.node: waits_of(load, view.nodes[load.node], _elapsed_s(view)) for load in judged}
        worst = max(judged, key=lambda load: (*_gravity(load, waits[load.node]), load.badness))
        kind = _kind_of(worst, waits[worst.node], view)
        found = kind.status is Status.FIRED
        by_waits = kind is DataloaderKind.WAITS
        waiting = (waits[worst.node].starved if by_waits else None) or waits[worst.node].costliest
        percent, limit = 100.0 * (waiting.waited or 0.0), 100.0 * WAITING_SHARE
        threshold = parameters.max_threshold if worst.too_many else parameters.min_threshold
        costs = found and not worst.too_many and waiting.waited is not None
        return RuleResult.of_kind(
            text,
            kind,
            _facts(worst, waiting, kind),
            measured=percent if by_waits else worst.percent,
            threshold=limit if by_waits else threshold,
            measure=WAITING if by_waits else LOADERS,
            worst=worst.node,
            data_points=sum(load.seconds for load in judged),
            progress=Patience(seen=worst.seconds, needed=patience, counts="seconds"),
            affected_share=(waiting.waited if by_waits else _affected_share(worst)) if found else None,
            wasted_share=waits[worst.node].whole.share if by_waits or costs else None,
            confidence=_confidence(waiting) if found else None,
            onset=_onset(worst, waits[worst.node], kind, view) if found else None,
            gpus=view.used_gpus([worst.node]) if found else (),
            details=details,
        )


def _gravity(load: Load, waits: LoopWaits) -> tuple[bool, bool]:
    return waits.starved is not None, (load.too_few or load.too_many) and waits.is_alarming


def _kind_of(load: Load, waits: LoopWaits, view: JobView) -> DataloaderKind:
    """Return what is said about a node with patience: the first batches of any job are waited for."""
    starved, unfit = _gravity(load, waits)
    if (starved or (unfit and waits.whole.share is not None)) and not view.closed and _elapsed_s(view) < MIN_ELAPSED_S:
        return DataloaderKind.TOO_EARLY
    if starved:
        return DataloaderKind.WAITS
    if not (load.too_few or load.too_many):
        return DataloaderKind.FITS
    if not unfit:
        return DataloaderKind.LITTLE_LOST
    return DataloaderKind.TOO_FEW if load.too_few else DataloaderKind.TOO_MANY


def _confidence(waiting: LoaderWaiting) -> float | None:
    """Return which part of what the GPUs left undone the waits can be, 0 to 1; None where that is not known."""
    if waiting.waited is None or not waiting.undone:
        return None
    return min(waiting.waited / waiting.undone, 1.0)


def _facts(load: Load, waiting: LoaderWaiting, kind: DataloaderKind) -> tuple[Fact, ...]:
    node, processes, (least, most) = load.node, load.processes, load.limits
    target = max(load.cores // len(processes), 1)
    facts = [
        Fact(name="loaders", value=load.loaders, unit="processes", node=node),
        Fact(name="cores", value=load.cores, unit="cores", node=node),
        Fact(name="loaders_of_cores", value=load.percent, unit="%", node=node),
        Fact(name="training_processes", value=len(processes), unit="processes", node=node),
        Fact(name="workers_advised", value=target, unit="processes", node=node),
    ]
    if kind is not DataloaderKind.WAITS and not load.too_many:
        facts.append(Fact(name="min_threshold", value=least, unit="%"))
    if kind is not DataloaderKind.WAITS and not load.too_few:
        facts.append(Fact(name="max_threshold", value=most, unit="%"))
    if kind is DataloaderKind.TOO_EARLY:
        facts.append(Fact(name="judged_after", value=MIN_ELAPSED_S, unit="s"))
    limit = WAITING_SHARE if kind is DataloaderKind.WAITS else ALARMING_WASTE
    facts += _loop_facts(node, waiting, "waiting_share", "DataLoaderIter", limit)
    return (*facts, *(_settings(load, target) if kind in Dataloader.spec.claims else ()))


def _loop_facts(
    node: str, loop: LoaderWaiting, name: str, series: str, limit: float = WAITING_SHARE
) -> tuple[Fact, ...]:
    facts = []
    if loop.waited is not None:
        when: dict[str, Any] = {"start": loop.start, "end": loop.end, "threshold": limit}
        facts.append(Fact(name=name, value=loop.waited, unit="share", series=series, node=node, **when))
    if loop.used is not None:
        when = {"series": "GPUUtilization", "start": loop.sampled_from, "end": loop.sampled_to}
        facts.append(Fact(name="mean_utilization", value=loop.used, unit="%", node=node, **when))
    return tuple(facts)


def _settings(load: Load, target: int) -> Iterator[Fact]:
    processes = load.processes
    declared = sorted({process.declared for process in processes} - {UNKNOWN})
    if declared and not any(number <= target if load.too_many else number >= target for number in declared):
        yield Fact(name="num_workers", value="/".join(map(str, declared[:4])), node=load.node)
    if any(process.pinned == 0 for process in processes):
        yield Fact(name="pin_memory", value=0, node=load.node)
    if load.state.prefetch is False:
        yield Fact(name="prefetch", value=0, node=load.node)
    if load.state.fetch_us.total:
        median_s, end = load.state.fetch_us.quantile(0.5) / 1e6, load.state.fetched_us / 1e6
        yield Fact(name="fetch_time", value=median_s, unit="s", series="DataLoaderWorker", node=load.node, end=end)


def _details(view: JobView, states: Mapping[str, LoaderState]) -> dict[str, LoaderDetails]:
    if not view.detailed:
        return {}
    return {node: details_of(state, view.nodes[node].cores) for node, state in states.items()}


def _without_loaders(view: JobView, states: dict[str, LoaderState]) -> RuleResult:
    pipelines = {node: state for node, state in states.items() if state.prefetch is not None}
    if pipelines:
        prefetches = all(state.prefetch for state in pipelines.values())
        facts, details = (Fact(name="prefetch", value=int(prefetches)),), _details(view, pipelines)
        return RuleResult.of_kind(text, DataloaderKind.TENSORFLOW, facts, details=details)
    if view.framework_seen:
        gaps = _between_steps(view, states)
        return gaps or RuleResult.of_kind(text, DataloaderKind.NO_LOADERS)
    if view.framework_expected and not view.closed:
        return RuleResult.of_kind(text, DataloaderKind.NO_EVENTS)
    return RuleResult.of_kind(text, DataloaderKind.NO_FRAMEWORK_METRICS)


def _between_steps(view: JobView, states: Mapping[str, LoaderState]) -> RuleResult | None:
    if view.interruptions or (not view.closed and _elapsed_s(view) < MIN_ELAPSED_S):
        return None
    loops = {node: between_steps(state.loops, view.nodes[node], _elapsed_s(view)) for node, state in states.items()}
    found = {node: loop for node, loop in loops.items() if loop is not None and loop.is_starved}
    if not found:
        return None
    node, loop = max(found.items(), key=lambda each: each[1].share or 0.0)
    return RuleResult.of_kind(
        text,
        DataloaderKind.BETWEEN_STEPS,
        _loop_facts(node, loop, "between_steps_share", "Step"),
        measured=100.0 * (loop.waited or 0.0),
        threshold=100.0 * WAITING_SHARE,
        measure=BETWEEN,
        worst=node,
        affected_share=loop.waited,
        wasted_share=loop.share,
        confidence=_confidence(loop),
        onset=loop.start,
        gpus=view.used_gpus([node]),
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


def _elapsed_s(view: JobView) -> float:
    if view.started_at is None or view.system_through is None:
        return 0.0
    return view.system_through - view.started_at


def _onset(load: Load, waits: LoopWaits, kind: DataloaderKind, view: JobView) -> float | None:
    """Return when the waits began, epoch seconds: a block of ten minutes may begin before the job does."""
    whole = waits.whole
    if whole.is_starved if kind is DataloaderKind.WAITS else whole.is_alarming:
        return whole.start or None
    blocks = [min(process.waits) for process in load.processes if process.waits]
    return max(min(blocks) * BLOCK_US / 1e6, view.started_at or 0.0) if blocks else None
