"""SM activity of GPUs that look busy: utilization says that some kernel ran, not how much of the GPU it used.

Source: NVIDIA, DCGM's documentation of profiling metrics: an SM activity below 50 % likely is an ineffective use of the
GPU, and effective use needs 80 %.
"""

import math
from dataclasses import dataclass

import msgspec
import numpy as np

from trainguard.rules.rule_inputs import NodeMinute
from trainguard.telemetry import devices as names

EFFECTIVE_PERCENT = 80.0
MOST_MINUTES = 60
MOST_GPUS = 64
MINUTE_S = 60.0


class BusyMinutes(msgspec.Struct, array_like=True):
    """Mean SM activity of a GPU's newest minutes of work, tenths of a percent each, and mean utilization in percent.

    ``hollow`` is how many of the newest in a row were hollow, since epoch seconds ``since``; ``lost`` is what all
    hollow minutes left undone, in minutes of the GPU.
    """

    activity: list[int] = msgspec.field(default_factory=list)
    utilization: list[int] = msgspec.field(default_factory=list)
    hollow: int = 0
    since: float | None = None
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class Hollow:
    """A GPU that was busy for long and used little of itself: 95th percentile of SM activity, mean utilization."""

    gpu: str
    p95: float
    busy: float
    minutes: int
    since: float
    lost_min: float


def fold_activity(
    minutes: dict[str, BusyMinutes], minute: NodeMinute, threshold_sm: float, threshold_p95: float
) -> None:
    """Add the minute of each GPU that has SM activity; one in which the GPUs paused is passed over.

    A minute is hollow when utilization is ``threshold_p95`` percent or more and SM activity below ``threshold_sm``.
    """
    if not minute.started.any() or not minute.active.all():
        return
    utilization = minute.snapshots.gpu_utilization
    for gpu, series in minute.devices.of(names.SM_ACTIVITY).items():
        if gpu not in minute.snapshots.gpu_names or (gpu not in minutes and len(minutes) >= MOST_GPUS):
            continue
        sampled = utilization[:, minute.snapshots.gpu_names.index(gpu)]
        sampled = sampled[~np.isnan(sampled)]
        if not sampled.size:
            continue
        busy, activity = float(sampled.mean()), series.mean
        held = minutes.setdefault(gpu, BusyMinutes())
        held.activity = [*held.activity, round(10.0 * activity)][-MOST_MINUTES:]
        held.utilization = [*held.utilization, round(busy)][-MOST_MINUTES:]
        if busy >= threshold_p95 and activity < threshold_sm:
            held.hollow += 1
            held.since = float(minute.snapshots.times[0]) if held.since is None else held.since
            held.lost += 1.0 - activity / EFFECTIVE_PERCENT
        else:
            held.hollow, held.since = 0, None


def hollow_gpus(minutes: dict[str, BusyMinutes], lasting_s: float) -> list[Hollow]:
    """Return the GPUs that were hollow in every minute of work for ``lasting_s`` seconds, the least active first."""
    needed = min(max(math.ceil(lasting_s / MINUTE_S), 1), MOST_MINUTES)
    found = []
    for gpu, held in minutes.items():
        if held.hollow >= needed and held.since is not None:
            newest = np.array(held.activity[-needed:], dtype=np.float64) / 10.0
            busy = sum(held.utilization[-needed:]) / needed
            found.append(Hollow(gpu, float(np.quantile(newest, 0.95)), busy, held.hollow, held.since, held.lost))
    return sorted(found, key=lambda each: (each.p95, len(each.gpu), each.gpu))


def activity_note(minutes: dict[str, BusyMinutes], gpu: str) -> str:
    """Say how active a GPU was over the newest minutes, as a sentence of its own; empty where that is not known."""
    held = minutes.get(gpu)
    if held is None or not held.activity:
        return ""
    mean = sum(held.activity) / len(held.activity) / 10.0
    return f" SM activity of {gpu} was {mean:.0f} % on average."
