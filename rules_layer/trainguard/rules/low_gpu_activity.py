"""Activity of GPUs that look busy: utilization says that some kernel ran, not how much of the GPU it used.

Source: NVIDIA, DCGM's documentation of profiling metrics: an SM activity below 50 % likely is an ineffective use of the
GPU, and effective use needs 80 %. Where SM activity is not collected, as by dcgm-exporter's own list, tensor cores and
memory say the same together: a GPU that uses neither, and draws little power, does next to nothing.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from trainguard.rules.rule_inputs import NodeMinute
from trainguard.rules.units import counted
from trainguard.telemetry import devices as names

EFFECTIVE_PERCENT = 80.0
MOST_MINUTES = 60
MOST_GPUS = 64
MINUTE_S = 60.0
UNUSED_PERCENT = 5.0
"""Tensor cores and memory below it are not used; work without tensor cores moves memory, or draws power."""

LITTLE_SHARE, LITTLE_WATTS = 0.6, 150.0
"""Power below this share of the limit is little; where the limit is not known, below so many watts."""

SM, TENSOR = "SM activity", "activity of tensor cores and memory"


class BusyMinutes(msgspec.Struct, array_like=True):
    """Mean activity of a GPU's newest minutes of work, tenths of a percent each, and mean utilization in percent.

    ``hollow`` is how many of the newest in a row were hollow, since epoch seconds ``since``; ``lost`` is what all
    hollow minutes left undone, in minutes of the GPU. ``of_tensors`` says that the activity is that of tensor cores or
    memory, whichever is more active; ``power`` is the newest minute's, watts, and ``limit`` the newest limit; 0 where
    it is not known.
    """

    activity: list[int] = msgspec.field(default_factory=list)
    utilization: list[int] = msgspec.field(default_factory=list)
    hollow: int = 0
    since: float | None = None
    lost: float = 0.0
    of_tensors: bool = False
    power: float = 0.0
    limit: float = 0.0

    @property
    def measure(self) -> str:
        """What the activity is of."""
        return TENSOR if self.of_tensors else SM

    @property
    def draws_little(self) -> bool:
        """Whether the GPU draws little power, or nobody knows."""
        return self.power < (LITTLE_SHARE * self.limit if self.limit else LITTLE_WATTS)


@dataclass(frozen=True, slots=True)
class Hollow:
    """A GPU that was busy for long and used little of itself: 95th percentile of activity, mean utilization.

    Both are of the newest ``minutes`` minutes of work, all of them hollow, of which no more than 60 are remembered.
    ``measure`` says of what the activity is, ``threshold`` below which it counts, ``power`` what the GPU draws, watts;
    0 where that is not known.
    """

    gpu: str
    p95: float
    busy: float
    minutes: int
    since: float
    lost_min: float
    measure: str
    threshold: float
    power: float


def fold_activity(
    minutes: dict[str, BusyMinutes], minute: NodeMinute, threshold_sm: float, threshold_p95: float
) -> None:
    """Add the minute of each GPU whose activity is known; one in which the GPUs paused is passed over.

    A minute is hollow when utilization is ``threshold_p95`` percent or more and SM activity below ``threshold_sm``. Of
    a GPU without SM activity it is when tensor cores and memory are not used and power is low.
    """
    if not minute.started.any() or not minute.active.all():
        return
    utilization = minute.snapshots.gpu_utilization
    for gpu, activity, of_tensors in _activities(minute, minutes):
        if gpu not in minute.snapshots.gpu_names or (gpu not in minutes and len(minutes) >= MOST_GPUS):
            continue
        sampled = utilization[:, minute.snapshots.gpu_names.index(gpu)]
        sampled = sampled[~np.isnan(sampled)]
        if not sampled.size:
            continue
        busy = float(sampled.mean())
        held = minutes.setdefault(gpu, BusyMinutes(of_tensors=of_tensors))
        if held.of_tensors and not of_tensors:
            held = minutes[gpu] = BusyMinutes()
        _note_power(held, gpu, minute)
        held.activity = [*held.activity, round(10.0 * activity)][-MOST_MINUTES:]
        held.utilization = [*held.utilization, round(busy)][-MOST_MINUTES:]
        below = activity < threshold_of(held, threshold_sm)
        if busy >= threshold_p95 and below and (held.draws_little or not of_tensors):
            held.hollow += 1
            held.since = float(minute.snapshots.times[0]) if held.since is None else held.since
            part = len(minute.snapshots) * minute.view.interval_s / MINUTE_S
            held.lost += min(part, 1.0) * (1.0 - activity / EFFECTIVE_PERCENT)
        else:
            held.hollow, held.since = 0, None


def threshold_of(held: BusyMinutes, threshold_sm: float) -> float:
    """Return the activity, percent, below which a busy GPU is hollow."""
    return min(UNUSED_PERCENT, threshold_sm) if held.of_tensors else threshold_sm


def _activities(minute: NodeMinute, known: Mapping[str, BusyMinutes]) -> Iterator[tuple[str, float, bool]]:
    """Yield each GPU with its activity, percent: of its SMs, else of tensor cores or memory; the last says which."""
    activity = minute.devices.of(names.SM_ACTIVITY)
    for gpu, series in activity.items():
        yield gpu, series.mean, False
    for gpu, series in minute.devices.of(names.TENSOR_ACTIVITY).items():
        has_activity = gpu in activity or (gpu in known and not known[gpu].of_tensors)
        memory = None if has_activity else _memory_activity(gpu, minute)
        if memory is not None:
            yield gpu, max(series.mean, memory), True


def _memory_activity(gpu: str, minute: NodeMinute) -> float | None:
    """Return how active a GPU's memory was, percent: by DCGM, else by NVML's utilization of its interface."""
    series = minute.devices.of(names.DRAM_ACTIVITY).get(gpu)
    if series is not None:
        return series.mean
    if gpu not in minute.snapshots.gpu_names:
        return None
    sampled = minute.snapshots.gpu_memory[:, minute.snapshots.gpu_names.index(gpu)]
    sampled = sampled[~np.isnan(sampled)]
    return float(sampled.mean()) if sampled.size else None


def _note_power(held: BusyMinutes, gpu: str, minute: NodeMinute) -> None:
    power, limit = minute.devices.of(names.POWER).get(gpu), minute.devices.of(names.POWER_LIMIT).get(gpu)
    held.power = 0.0 if power is None else round(power.mean, 1)
    held.limit = held.limit if limit is None else round(limit.last, 1)


def hollow_gpus(minutes: dict[str, BusyMinutes], lasting_s: float, threshold_sm: float) -> list[Hollow]:
    """Return the GPUs that were hollow in every minute of work for ``lasting_s`` seconds, the least active first."""
    needed = min(math.ceil(lasting_s / MINUTE_S), MOST_MINUTES)
    found = []
    for gpu, held in minutes.items():
        if held.hollow >= needed and held.since is not None:
            newest = np.array(held.activity[-held.hollow :], dtype=np.float64) / 10.0
            found.append(
                Hollow(
                    gpu=gpu,
                    p95=float(np.quantile(newest, 0.95)),
                    busy=sum(held.utilization[-held.hollow :]) / newest.size,
                    minutes=newest.size,
                    since=held.since,
                    lost_min=held.lost,
                    measure=held.measure,
                    threshold=threshold_of(held, threshold_sm),
                    power=held.power,
                )
            )
    return sorted(found, key=lambda each: (each.p95, len(each.gpu), each.gpu))


def activity_note(minutes: dict[str, BusyMinutes], gpu: str) -> str:
    """Say how active a GPU was, as a sentence of its own; empty where that is not known.

    The newest minutes in which it was measured may lie before the condition: a GPU that is lost is measured no more.
    """
    held = minutes.get(gpu)
    if held is None or not held.activity:
        return ""
    mean = sum(held.activity) / len(held.activity) / 10.0
    measured = f"over the last {counted(len(held.activity), 'minute')} of work in which it was measured"
    return f" {held.measure[:1].upper()}{held.measure[1:]} of {gpu} was {mean:.0f} % on average {measured}."
