"""Further series of GPUs: activity of busy ones, power and memory in use of those that are not.

Source: NVIDIA, DCGM's documentation of profiling metrics (SM activity below 50 % likely is an ineffective use).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from trainguard.core.finding import Fact
from trainguard.formats.profile import snapshots as names
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.sample_statistics import sampled
from trainguard.state.gpu_time import ACTIVE_PERCENT, QUIET_PERCENT

EFFECTIVE_PERCENT = 80.0
MOST_MINUTES = 60
MOST_GPUS = 64
MINUTE_S = 60.0
# Tensor cores and memory below it are not used; work without tensor cores moves memory, or draws power.
UNUSED_PERCENT = 5.0
# Memory activity below it, where nothing is known of tensor cores, is that of a GPU that does not compute.
UNTOUCHED_PERCENT = 1.0
# Power below this share of the limit is little; where the limit is not known, below so many watts.
LITTLE_SHARE, LITTLE_WATTS = 0.6, 150.0

SM, TENSOR, MEMORY = "SM activity", "activity of tensor cores and memory", "memory activity"
# A mean over minutes forgets the older of them at this pace.
MEMORY_MINUTES = 20

LEAST_MINUTES = 5
# Power is a sign of work only beside some utilization: a GPU with a context draws more than one without.
LEAST_PERCENT = 1.0
# Of the power at work; where that is little, it says nothing.
WORK_SHARE = 0.75


class BusyMinutes(msgspec.Struct, array_like=True):
    """Mean activity of a GPU's newest minutes of work, tenths of a percent each, and mean utilization in percent.

    ``low_sm`` of the newest in a row were low, since epoch seconds ``since``; ``lost`` is what all low minutes left
    undone, in minutes of the GPU. ``measure`` names the activity's source. ``power`` and ``limit`` are watts, 0 where
    unknown; ``begun`` and ``until`` are epoch seconds.
    """

    activity: list[int] = msgspec.field(default_factory=list)
    utilization: list[int] = msgspec.field(default_factory=list)
    low_sm: int = 0
    since: float | None = None
    lost: float = 0.0
    measure: str = ""
    power: float = 0.0
    limit: float = 0.0
    begun: list[int] = msgspec.field(default_factory=list)
    until: float = 0.0

    @property
    def draws_little(self) -> bool:
        return self.power < (LITTLE_SHARE * self.limit if self.limit else LITTLE_WATTS)


def fold_activity(
    minutes: dict[str, BusyMinutes], minute: NodeMinute, threshold_sm: float, threshold_p95: float
) -> None:
    """Add the minute of each GPU whose activity is known; one in which the GPUs paused is left out.

    It is low when utilization is ``threshold_p95`` percent or more and SM activity below ``threshold_sm``; without SM
    activity when other activity is unused and power low.
    """
    seen = ~np.isnan(minute.snapshots.gpu_utilization).all(axis=1)
    if not seen.any() or not minute.started.any() or not minute.active[seen].all():
        return
    for gpu, activity, measure in _activities(minute, minutes):
        if gpu not in minute.snapshots.gpu_names or (gpu not in minutes and len(minutes) >= MOST_GPUS):
            continue
        utilization = sampled(minute.snapshots.gpu_utilization[:, minute.snapshots.gpu_names.index(gpu)])
        if not utilization.size:
            continue
        busy = float(utilization.mean())
        held = minutes.setdefault(gpu, BusyMinutes(measure=measure))
        if held.measure != measure:
            held = minutes[gpu] = BusyMinutes(measure=measure)
        power, limit = minute.devices.of(names.POWER).get(gpu), minute.devices.of(names.POWER_LIMIT).get(gpu)
        held.power = 0.0 if power is None else round(power.mean, 1)
        held.limit = held.limit if limit is None else round(limit.last, 1)
        held.activity = [*held.activity, round(10.0 * activity)][-MOST_MINUTES:]
        held.utilization = [*held.utilization, round(busy)][-MOST_MINUTES:]
        held.begun = [*held.begun, int(minute.snapshots.times[0])][-MOST_MINUTES:]
        held.until = float(minute.snapshots.times[-1])
        below = activity < threshold_of(measure, threshold_sm)
        if busy >= threshold_p95 and below and (held.draws_little or measure == SM):
            held.low_sm += 1
            held.since = float(minute.snapshots.times[0]) if held.since is None else held.since
            part = len(minute.snapshots) * minute.view.interval_s / MINUTE_S
            held.lost += min(part, 1.0) * (1.0 - activity / EFFECTIVE_PERCENT)
        else:
            held.low_sm, held.since = 0, None


def threshold_of(measure: str, threshold_sm: float) -> float:
    least = {TENSOR: UNUSED_PERCENT, MEMORY: UNTOUCHED_PERCENT}.get(measure, threshold_sm)
    return min(least, threshold_sm)


def _activities(minute: NodeMinute, known: Mapping[str, BusyMinutes]) -> Iterator[tuple[str, float, str]]:
    activity, tensors = minute.devices.of(names.SM_ACTIVITY), minute.devices.of(names.TENSOR_ACTIVITY)
    for gpu, series in activity.items():
        yield gpu, series.mean, SM
    for gpu in dict.fromkeys((*tensors, *minute.devices.of(names.POWER))):
        best = known[gpu].measure if gpu in known else MEMORY
        memory = None if gpu in activity or best == SM else _memory_activity(gpu, minute)
        if memory is None:
            continue
        if gpu in tensors:
            yield gpu, max(tensors[gpu].mean, memory), TENSOR
        elif best == MEMORY:
            yield gpu, memory, MEMORY


def _memory_activity(gpu: str, minute: NodeMinute) -> float | None:
    """Return how active a GPU's memory was, percent: by DCGM, else by NVML's utilization of its interface."""
    series = minute.devices.of(names.DRAM_ACTIVITY).get(gpu)
    if series is not None:
        return series.mean
    if gpu not in minute.snapshots.gpu_names:
        return None
    activity = sampled(minute.snapshots.gpu_memory[:, minute.snapshots.gpu_names.index(gpu)])
    return float(activity.mean()) if activity.size else None


def low_activity_gpus(minutes: Mapping[str, BusyMinutes], lasting_s: float) -> list[tuple[str, BusyMinutes, float]]:
    """Return the GPUs that were low in every minute of work for ``lasting_s`` seconds, the least active first.

    Beside each is the 95th percentile of its activity over the newest minutes of work, percent.
    """
    needed = min(math.ceil(lasting_s / MINUTE_S), MOST_MINUTES)
    low = [(gpu, held) for gpu, held in minutes.items() if held.low_sm >= needed and held.since is not None]
    found = [(gpu, held, p95_of(held.activity[-held.low_sm :])) for gpu, held in low]
    return sorted(found, key=lambda each: (each[2], len(each[0]), each[0]))


def p95_of(tenths: Sequence[int]) -> float:
    """Return the 95th percentile of activity in tenths of a percent, in percent."""
    return float(np.quantile(np.array(tenths, dtype=np.float64) / 10.0, 0.95))


class GpuSigns(msgspec.Struct, array_like=True):
    """Means of one GPU over minutes: SM activity and power, watts, since it was last active, and power while it was.

    ``idle``, ``measured`` and ``busy`` count the minutes, up to 20: from then on the newest weighs a 20th. A counter of
    utilization can miss work: that of a divided GPU stands at zero.
    """

    power: float = 0.0
    idle: int = 0
    activity: float = 0.0
    measured: int = 0
    at_work: float = 0.0
    busy: int = 0

    def add(self, power: float | None, activity: float | None, *, active: bool) -> None:
        if active:
            self.power = self.activity = 0.0
            self.idle = self.measured = 0
            if power is not None:
                self.at_work, self.busy = _mean(self.at_work, self.busy, power)
            return
        if power is not None:
            self.power, self.idle = _mean(self.power, self.idle, power)
        if activity is not None:
            self.activity, self.measured = _mean(self.activity, self.measured, activity)


def _mean(mean: float, count: int, value: float) -> tuple[float, int]:
    count = min(count + 1, MEMORY_MINUTES)
    return mean + (value - mean) / count, count


def fold_signs(signs: dict[str, GpuSigns], minute: NodeMinute) -> None:
    power, activity = minute.devices.of(names.POWER), minute.devices.of(names.SM_ACTIVITY)
    if not len(minute.snapshots) or not (power or activity):
        return
    for column, gpu in enumerate(minute.snapshots.gpu_names):
        if (gpu not in power and gpu not in activity) or (gpu not in signs and len(signs) >= MOST_GPUS):
            continue
        signs.setdefault(gpu, GpuSigns()).add(
            power[gpu].mean if gpu in power else None,
            activity[gpu].mean if gpu in activity else None,
            active=bool((minute.snapshots.gpu_utilization[:, column] >= ACTIVE_PERCENT).any()),
        )


def sign_of_work(signs: Mapping[str, GpuSigns], view: NodeView, since: float) -> tuple[Fact, ...]:
    """Return the evidence that a GPU of a node without active GPUs works; none where there is none.

    It is SM activity, percent, or power beside that at work, watts, ``since`` the node is idle, epoch seconds.
    """
    for gpu in view.gpu_names:
        each, where = signs.get(gpu), {"device": gpu, "start": since, "end": view.watermark_s}
        if each is None:
            continue
        if each.measured >= LEAST_MINUTES and each.activity >= QUIET_PERCENT:
            return (view.fact("mean_sm_activity", each.activity, "%", series=names.SM_ACTIVITY, **where),)
        known = min(each.idle, each.busy) >= LEAST_MINUTES and view.idle_time.run_mean >= LEAST_PERCENT
        if known and each.at_work >= LITTLE_WATTS and each.power >= WORK_SHARE * each.at_work:
            return (
                view.fact("power", each.power, "W", series=names.POWER, **where),
                view.fact("power_at_work", each.at_work, "W", series=names.POWER, device=gpu),
            )
    return ()


# So long memory must have been held: a node idles for 20 minutes, and may load a model in the first five of them.
HELD_S = 900.0
# Less is that of a driver's context. It counts where a GPU's whole memory is not known.
LEAST_BYTES = 2e9

Memory = Literal["held", "free", "not collected"]
STALE_S = 180.0
_MEGA = 1e6
_PERCENT = 100.0
_TENTHS = 10.0


class HeldMemory(msgspec.Struct, array_like=True):
    """Memory in use of one GPU, megabytes, at epoch second ``at``; ``total`` is 0 where unknown.

    Of a GPU of which a share alone is known, ``share``, both are tenths of a percent. ``since`` and ``idle_since`` are
    the minutes (epoch seconds) from which on it was held, and the GPU idle.
    """

    at: int
    used: int
    total: int = 0
    since: int | None = None
    idle_since: int | None = None
    share: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """GPUs that hold memory, in order: bytes in use, and in all; 0 where unknown. With ``share`` these are percent."""

    gpus: tuple[str, ...]
    used: float
    total: float
    share: bool = False


def fold_held(held: dict[str, HeldMemory], minute: NodeMinute, threshold: float) -> None:
    """Add the minute of each GPU whose memory in use is collected; ``threshold`` is in percent of the GPU's memory."""
    if not len(minute.snapshots):
        return
    totals, in_bytes = minute.devices.of(names.MEMORY_TOTAL), minute.devices.of(names.MEMORY_USED)
    gpus, begun = minute.snapshots.gpu_names, int(minute.snapshots.times[0])
    for gpu, used in {**minute.devices.of(names.MEMORY_SHARE), **in_bytes}.items():
        if gpu not in gpus or (gpu not in held and len(held) >= MOST_GPUS):
            continue
        before, share = held.get(gpu), gpu not in in_bytes
        if before is not None and before.share != share:
            before = None
        unit = 1.0 / _TENTHS if share else _MEGA
        total = _PERCENT if share else totals[gpu].last if gpu in totals else unit * before.total if before else 0.0
        at = int(used.times[-1])
        if before is not None and begun - before.at > STALE_S:
            before = None
        is_held = used.least >= (threshold / _PERCENT * total if total else LEAST_BYTES)
        use = sampled(minute.snapshots.gpu_utilization[:, gpus.index(gpu)])
        is_idle = bool(use.size and use.max() < ACTIVE_PERCENT and use.mean() < QUIET_PERCENT)
        held[gpu] = HeldMemory(
            at=at,
            used=round(used.least / unit),
            total=round(total / unit),
            since=_since(before.since if before else None, begun) if is_held else None,
            idle_since=_since(before.idle_since if before else None, begun) if is_idle else None,
            share=share,
        )


def _since(before: int | None, begun: int) -> int:
    return begun if before is None else before


def memory_of(held: Mapping[str, HeldMemory], view: NodeView) -> Memory:
    if held_memory(held, view) is not None:
        return "held"
    return "free" if is_known(held, view) else "not collected"


def is_known(held: Mapping[str, HeldMemory], view: NodeView) -> bool:
    return any(_is_fresh(each, view) for each in held.values())


def held_memory(held: Mapping[str, HeldMemory], view: NodeView) -> Held | None:
    """Return the GPUs that have held memory for HELD_S; None where none has."""
    gpus = [gpu for gpu, each in held.items() if _lasted_s(each.since, each, view) >= HELD_S]
    return _sum(held, gpus) if gpus else None


def held_while_idle(
    held: Mapping[str, HeldMemory], view: NodeView, gpu: str, least_s: float
) -> tuple[Held, float] | None:
    """Return what a GPU holds that has idled for ``least_s`` seconds or more, and for how long; None without any."""
    each = held.get(gpu)
    if each is None or _lasted_s(each.since, each, view) < HELD_S:
        return None
    idle_s = _lasted_s(each.idle_since, each, view)
    return None if idle_s < least_s else (_sum(held, [gpu]), idle_s)


def _sum(held: Mapping[str, HeldMemory], gpus: list[str]) -> Held:
    ordered = sorted(gpus, key=lambda gpu: (len(gpu), gpu))
    share = all(held[gpu].share for gpu in gpus)
    holding = [held[gpu] for gpu in gpus if held[gpu].share == share]
    if share:
        return Held(tuple(ordered), sum(each.used for each in holding) / _TENTHS / len(holding), _PERCENT, share=True)
    total = sum(each.total for each in holding) if all(each.total for each in holding) else 0
    return Held(tuple(ordered), _MEGA * sum(each.used for each in holding), _MEGA * total)


def _lasted_s(since: int | None, each: HeldMemory, view: NodeView) -> float:
    """Return for how many seconds it has lasted up to now; -inf where it does not, or nothing new is known."""
    if since is None or view.watermark_s is None or not _is_fresh(each, view):
        return -math.inf
    return view.watermark_s + view.interval_s - since


def _is_fresh(each: HeldMemory, view: NodeView) -> bool:
    return view.watermark_s is not None and view.watermark_s - each.at <= STALE_S
