"""How busy each GPU is: over the newest window outside pauses, over an hour of all samples, and for how long so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.ledger.bucket import LOST_AT_WORK, Bucket
from trainguard.render.details import Details
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import JudgedKind, Measure
from trainguard.rules.sample_statistics import counted_boxes, poisson_quantile, sampled

GpuKind = Literal["under", "fluctuating"]
UTILIZATION = "GPUUtilization"
# Use of all samples is summed over parts of so long on the clock; how many are remembered: of the newest hour, and of
# the newest half hour what was before the first work.
PART_S, PARTS, EARLY_PARTS = 600.0, 6, 3
# Up to the first work parts are no longer than this, so that use since then leaves out no more of it.
START_S = 60.0
# Fluctuation that wastes less of the time is what healthy jobs have: they save, evaluate and log.
COSTLY_SHARE = 0.15

MIN_DIPS = 2
CHANCE_PROBABILITY = 0.999
# A GPU that was low for long enough to be a finding is so until it is so many percent above the threshold.
MARGIN = 5.0

P95 = Measure("95th percentile of GPU utilization", "%")
P5 = Measure("5th percentile of GPU utilization", "%")
SM_P95 = Measure("95th percentile of SM activity", "%")
ENGINE_P95 = Measure("95th percentile of engine activity", "%")
TENSOR_P95 = Measure("95th percentile of the activity of tensor cores and memory", "%")
MEMORY_P95 = Measure("95th percentile of memory activity", "%")
IDLE_TIME = Measure("time without a GPU in use", "min")
HELD_TIME = Measure("time without a GPU in use while memory is held", "min")
WEAK_MEAN = Measure("mean utilization of the busiest GPU without an active one", "%")
QUIET_MEAN = Measure("mean utilization of the busiest GPU while nearly idle", "%")
IDLE_SHARE = Measure("samples without an active GPU", "%")
PAUSED = Measure("time in regular pauses", "%")
MEASURES = (
    *(P95, P5, IDLE_TIME, QUIET_MEAN, WEAK_MEAN, PAUSED),
    *(SM_P95, ENGINE_P95, TENSOR_P95, MEMORY_P95, HELD_TIME, IDLE_SHARE),
)


class LowGPUUtilizationKind(JudgedKind):
    NEVER_USED = "never_used", Status.FIRED
    IDLE_AT_FIRST = "idle_at_first", Status.FIRED
    STOPPED = "stopped", Status.FIRED
    NEARLY_IDLE = "nearly_idle", Status.FIRED
    HOLDS_MEMORY = "holds_memory", Status.FIRED
    HARDLY_USED = "hardly_used", Status.FIRED
    IDLE_IN_PART = "idle_in_part", Status.FIRED
    PAUSES = "pauses", Status.FIRED
    UNDER_USED = "under_used", Status.FIRED
    FLUCTUATES = "fluctuates", Status.FIRED
    GPU_HOLDS_MEMORY = "gpu_holds_memory", Status.FIRED
    GPU_TAKEN = "gpu_taken", Status.FIRED
    LOW_ACTIVITY = "low_activity", Status.FIRED
    INSTANCES_UNUSED = "instances_unused", Status.FIRED
    INSTANCES_LOW = "instances_low", Status.FIRED
    FINE = "fine"
    LOW_FOR_SHORT = "low_for_short"
    SMALL_DIPS = "small_dips"
    INSTANCES_FINE = "instances_fine"
    INSTANCES_WARMING_UP = "instances_warming_up", Status.WARMING_UP
    INSTANCES_UNKNOWN = "instances_unknown", Status.NOT_APPLICABLE


Kind = LowGPUUtilizationKind
_IDLE = (*LOST_AT_WORK, Bucket.TAIL)
_NEVER_ACTIVE = (*_IDLE, Bucket.START_UP)

# What a finding asks to change, and which lost time of the ledger it explains: work that uses little of a GPU is none.
_FOUND: Mapping[Kind, tuple[ChangeCode, tuple[Bucket, ...]]] = {
    Kind.NEVER_USED: (ChangeCode.USE_GPU, (Bucket.IDLE, Bucket.START_UP, Bucket.TAIL, Bucket.UNEXPLAINED)),
    Kind.IDLE_AT_FIRST: (ChangeCode.SHORTEN_START, (Bucket.IDLE, Bucket.START_UP, Bucket.UNEXPLAINED)),
    Kind.STOPPED: (ChangeCode.FIND_HANG, _IDLE),
    Kind.NEARLY_IDLE: (ChangeCode.USE_GPU, _NEVER_ACTIVE),
    Kind.HOLDS_MEMORY: (ChangeCode.FREE_GPU, _NEVER_ACTIVE),
    Kind.IDLE_IN_PART: (ChangeCode.FIND_WAITS, _IDLE),
    Kind.GPU_HOLDS_MEMORY: (ChangeCode.FREE_GPU, _IDLE),
    Kind.GPU_TAKEN: (ChangeCode.FREE_GPU, _IDLE),
    Kind.INSTANCES_UNUSED: (ChangeCode.USE_GPU, _IDLE),
    Kind.PAUSES: (ChangeCode.PAUSE_LESS, LOST_AT_WORK),
    Kind.HARDLY_USED: (ChangeCode.RAISE_BATCH_SIZE, _NEVER_ACTIVE),
    Kind.UNDER_USED: (ChangeCode.RAISE_BATCH_SIZE, LOST_AT_WORK),
    Kind.FLUCTUATES: (ChangeCode.FIND_WAITS, LOST_AT_WORK),
    Kind.LOW_ACTIVITY: (ChangeCode.RAISE_BATCH_SIZE, ()),
    Kind.INSTANCES_LOW: (ChangeCode.RAISE_BATCH_SIZE, ()),
}
CHANGES: Mapping[str, ChangeCode] = {kind: change for kind, (change, _) in _FOUND.items()}
CLAIMS: Mapping[str, tuple[Bucket, ...]] = {kind: claimed for kind, (_, claimed) in _FOUND.items()}
_NEVER_WORKED = frozenset({Kind.NEVER_USED, Kind.GPU_TAKEN, Kind.INSTANCES_UNUSED})


def once_worked(kind: str, facts: tuple[Fact, ...]) -> tuple[str, tuple[Fact, ...]]:
    """Return the kind of a finding that is over: what was called never used has worked since, and began late."""
    known = {fact.name: fact.value for fact in facts}
    since, first = known.get("idle_since"), known.get("first_sample")
    from_first = isinstance(since, float) and isinstance(first, float) and since <= first + 1.0
    quiet = kind in {Kind.HOLDS_MEMORY, Kind.NEARLY_IDLE} and from_first
    return (Kind.IDLE_AT_FIRST.value if kind in _NEVER_WORKED or quiet else kind), facts


class UsagePart(msgspec.Struct, array_like=True):
    """All samples of a node in ten minutes of the clock, or in a piece of them, by their ordinal since the epoch.

    ``first`` is epoch seconds; ``idle`` counts samples without an active GPU. ``sums`` (utilization, tenths of a
    percent) and ``counts`` have one number a GPU; ``counts`` is empty where all GPUs are in all samples.
    """

    part: int
    first: float
    samples: int = 0
    idle: int = 0
    sums: list[int] = msgspec.field(default_factory=list)
    counts: list[int] = msgspec.field(default_factory=list)

    def add(self, values: FloatArray, idle: int) -> None:
        """Add samples (float64[T, G]), of which ``idle`` are idle."""
        gpus = values.shape[1]
        counts = np.zeros(gpus, dtype=np.int64)
        counts[: len(self.sums)] = self.counts or self.samples
        sums = np.zeros(gpus)
        sums[: len(self.sums)] = self.sums
        self.samples += len(values)
        self.idle += idle
        self.sums = np.rint(sums + 10.0 * np.nansum(values, axis=0)).astype(np.int64).tolist()
        counts += np.count_nonzero(~np.isnan(values), axis=0)
        self.counts = [] if (counts == self.samples).all() else counts.tolist()


@dataclass(frozen=True, slots=True)
class MeanUse:
    """Use over all samples from ``start`` to ``end``, epoch seconds: mean utilization in percent of each GPU."""

    start: float
    end: float
    samples: int
    idle: int
    means: Mapping[str, float]

    @property
    def busiest(self) -> str:
        return max(self.means, key=lambda gpu: self.means[gpu])

    @property
    def mean(self) -> float:
        return sum(self.means.values()) / len(self.means)


def fold_use(parts: list[UsagePart], minute: NodeMinute) -> list[UsagePart]:
    sampled = ~np.isnan(minute.snapshots.gpu_utilization)
    seen = np.flatnonzero(np.logical_or.reduce(sampled, axis=1))
    worked = minute.view.first_active_at
    times, begun = minute.snapshots.times[seen], np.inf if worked is None else worked
    pieces = np.floor(times / np.where(times < begun, START_S, PART_S))
    for rows in np.split(seen, np.flatnonzero(np.diff(pieces)) + 1) if seen.size else ():
        first = float(minute.snapshots.times[rows[0]])
        number = int(first // PART_S)
        if not parts or parts[-1].part != number or _is_apart(parts[-1].first, first, begun):
            parts = [*parts, UsagePart(number, first)]
        idle = int(np.count_nonzero(~minute.active[rows]))
        parts[-1].add(minute.snapshots.gpu_utilization[rows], idle)
    newest = parts[-1].part if parts else 0
    early = PARTS if worked is None else EARLY_PARTS
    return [each for each in parts if each.part > newest - (early if each.first < begun else PARTS)]


def _is_apart(begun: float, first: float, worked: float) -> bool:
    """Whether samples begin a new part: before the first work parts are short, because its beginning is unknown."""
    return begun < worked if first >= worked else first >= begun + START_S / 2.0


def parts_since(parts: Sequence[UsagePart], time_s: float | None) -> list[UsagePart]:
    """Return the parts that began no earlier than ``time_s``, epoch seconds: all without one."""
    return [each for each in parts if time_s is None or each.first >= time_s]


def mean_use(chosen: Sequence[UsagePart], view: NodeView) -> MeanUse | None:
    sums, counts = np.zeros(len(view.gpu_names)), np.zeros(len(view.gpu_names))
    for each in chosen:
        sums[: len(each.sums)] += np.array(each.sums) / 10.0
        counts[: len(each.sums)] += each.counts or each.samples
    if not counts.any():
        return None
    means = {gpu: float(sums[at] / counts[at]) for at, gpu in enumerate(view.gpu_names) if counts[at]}
    samples, idle = sum(each.samples for each in chosen), sum(each.idle for each in chosen)
    return MeanUse(chosen[0].first, view.watermark_s or chosen[-1].first, samples, idle, means)


class Streak(msgspec.Struct, array_like=True):
    """Since which kept point a GPU has been of one kind at every evaluation.

    ``begun`` is the kept point of the onset in the data, ``onset`` its time, epoch seconds. ``lost`` is what dips cost
    over ``points`` points, each up to 1; ``counted`` the GPU's waste when the streak began or was last counted.
    """

    kind: GpuKind
    since: int
    begun: int | None = None
    onset: float | None = None
    lost: float = 0.0
    points: int = 0
    counted: float = 0.0

    @property
    def cost(self) -> float:
        """Share of the streak's time that the dips wasted, 0 to 1."""
        return self.lost / self.points if self.points else 0.0

    @property
    def is_costly(self) -> bool:
        """Whether it is worth an alert: too little work is; dips are by their cost, which few points give by chance."""
        if self.kind == "under" or self.begun is None:
            return True
        chance = poisson_quantile(CHANCE_PROBABILITY, self.points * COSTLY_SHARE / 2.0)
        return self.cost >= COSTLY_SHARE and self.lost > chance

    def lasting(self, view: NodeView) -> int:
        """Return for how many points it has lasted: of a job that has ended, from its onset on."""
        begun = self.since if self.begun is None or not view.closed else self.begun
        return view.kept_total - begun


@dataclass(frozen=True, slots=True)
class Usage:
    """One ever-active GPU over the newest window; ``kind`` is None while nothing is wrong or not judged."""

    gpu: str
    points: int
    judged: bool
    p95: float
    p5: float
    kind: GpuKind | None


def dips_of(values: FloatArray, busy: float) -> float:
    """Return what the dips of a GPU (float64[N], percent) cost, in points: those below half of its ``busy`` level."""
    dips = values[values < busy / 2.0]
    return float((1.0 - dips / busy).sum())


def dips_in(values: FloatArray, threshold: float) -> int:
    """Count the separate runs below ``threshold`` in a GPU's window (float64[K])."""
    below = sampled(values) < threshold
    return int(np.count_nonzero(below & ~np.concatenate([[False], below[:-1]])))


def undone_before(view: NodeView, gpu: str, window: int) -> float:
    """Return what a GPU left undone in all kept points before the newest window, in points."""
    counts = view.gpu_histogram[view.gpu_names.index(gpu)]
    everything = float((counts * (100 - np.arange(counts.size))).sum()) / 100.0
    newest = view.kept_gpu_utilization[-window:, view.gpu_names.index(gpu)]
    return max(everything - float(np.nansum(100.0 - np.floor(newest))) / 100.0, 0.0)


def onset_of(
    view: NodeView, usage: Usage, window: int, threshold_p95: float, threshold_p5: float
) -> tuple[int, float | None]:
    """Return the kept point and the time of the onset: the window's beginning, its first dip, or all points."""
    index = view.gpu_names.index(usage.gpu)
    times, values = view.kept_times[-window:], view.kept_gpu_utilization[-window:, index]
    box = counted_boxes(view.gpu_histogram[[index]])[0]
    if usage.kind == "under" and box.p95 < threshold_p95:
        return 0, view.first_active_at
    first = int(np.argmax(values < threshold_p5)) if usage.kind == "fluctuating" else 0
    return view.kept_total - len(times) + first, float(times[first])


class GpuUsage(msgspec.Struct, frozen=True):
    """A GPU: ``gpu_95`` and ``gpu_5`` are of the newest window, None until it is judged; the rest of all points."""

    gpu_max: float
    gpu_95: float | None
    gpu_5: float | None
    p25: float | None
    p50: float | None
    p75: float | None
    p95: float | None
    upper: float | None
    lower: float | None
    kind: str | None


class LowGpuDetails(Details, frozen=True, kw_only=True):
    """A node's GPUs; ``last_timestamp`` is the watermark, epoch microseconds.

    ``finding`` is of an idle or under-used node, or an idle GPU that holds memory; ``memory`` is "held", "free" or "not
    collected"; ``measure`` is "GPU utilization", "SM activity", "activity of tensor cores and memory" or "memory
    activity".
    """

    gpus: dict[str, GpuUsage]
    never_active: list[str]
    last_timestamp: int | None
    finding: str | None = None
    memory: str | None = None
    measure: str = "GPU utilization"


def details_of(view: NodeView, usages: Sequence[Usage]) -> LowGpuDetails:
    """Return quantiles of the newest window, and the box of all kept points, of each GPU that has some."""
    boxes = dict(zip(view.gpu_names, counted_boxes(view.gpu_histogram), strict=True))
    gpus = {
        usage.gpu: GpuUsage(
            gpu_max=boxes[usage.gpu].largest,
            gpu_95=usage.p95 if usage.judged else None,
            gpu_5=usage.p5 if usage.judged else None,
            kind=usage.kind,
            **boxes[usage.gpu].shown,
        )
        for usage in usages
        if usage.points
    }
    active = {usage.gpu for usage in usages}
    return LowGpuDetails(
        gpus=gpus,
        never_active=[gpu for gpu in view.gpu_names if gpu not in active],
        last_timestamp=None if view.watermark_s is None else round(view.watermark_s * 1e6),
    )


def stream_end(view: NodeView) -> tuple[Fact, ...]:
    if not view.closed or view.watermark_s is None:
        return ()
    return (view.fact("stream_end", view.watermark_s, "time"),)


def mean_facts(parts: Sequence[UsagePart], view: NodeView, gpu: str) -> tuple[Fact, ...]:
    use = mean_use(parts_since(parts, view.first_active_at), view)
    if use is None or gpu not in use.means:
        return ()
    times = {"start": use.start, "end": use.end}
    return (view.fact("mean_utilization", use.means[gpu], "%", series=UTILIZATION, device=gpu, **times),)


def noted(common: Mapping[str, Any], **more: str) -> Mapping[str, Any]:
    details = common["details"]
    if not isinstance(details, LowGpuDetails):
        return common
    return {**common, "details": msgspec.structs.replace(details, **more)}
