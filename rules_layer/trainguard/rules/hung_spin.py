"""Which GPUs run a kernel that only spins: busy without a pause, still memory, little power, hardly a multiprocessor.

Source of the signature: a kernel that polls keeps one block on a multiprocessor, so that the GPU is 100 % utilized. A
recorded one on an H200 draws 119 of 700 W without a change, moves no memory, and has below 1 % of SM activity.
"""

from typing import NamedTuple

import numpy as np

from trainguard.rules.rule_inputs import NodeMinute
from trainguard.telemetry import devices as names
from trainguard.telemetry.snapshots import BoolArray, FloatArray

SPINS_PERCENT, STILL_PERCENT = 99.0, 1.0
"""Utilization of a GPU whose kernel does not end, at least; below the second its memory, or its SMs, do nothing."""

SHARE_OF_LIMIT = 0.4
"""Of its power limit a GPU draws more at work; it tells for one that has not worked for long enough to be known."""

FLAT = 0.05
"""Readings of a kernel that only spins differ from their median by no larger share of it."""

SHARE = 0.9
"""So many readings must look so: single readings of counters stray."""


class Spin(NamedTuple):
    """From when to when a GPU has spun, epoch seconds."""

    since: float
    through: float


def spins_of(minute: NodeMinute, known: dict[str, float], near_idle: float, *, spun: bool) -> dict[str, Spin]:
    """Return since when each GPU spins that does so at the minute's end, of those once active.

    Parameters
    ----------
    minute : NodeMinute
    known : dict of str to float
        Power at work, watts, of the GPUs of which it is known; of the others the power limit counts.
    near_idle : float
        Share, 0 to 1, of the power at work that shows no work.
    spun : bool
        Whether they all did in the minute before.
    """
    found = {}
    limits = minute.devices.of(names.POWER_LIMIT)
    for column, gpu in enumerate(minute.snapshots.gpu_names):
        if not minute.view.ever_active[column] or gpu not in minute.devices.of(names.POWER):
            continue
        limit = limits.get(gpu)
        most = near_idle * known[gpu] if gpu in known else None if limit is None else SHARE_OF_LIMIT * limit.last
        spin = None if most is None else _spin(minute, column, spun=spun)
        if spin is not None and most is not None and _draws_little(minute, gpu, spin.since, most):
            found[gpu] = spin
    return found


def _spin(minute: NodeMinute, column: int, *, spun: bool) -> Spin | None:
    """Return since when a GPU has been busy without moving memory, up to the minute's end; None where it is not.

    Of one that ``spun`` in the minute before, a few readings at this one's beginning are strays as well.
    """
    snapshots = minute.snapshots
    utilization, memory = snapshots.gpu_utilization[:, column], snapshots.gpu_memory[:, column]
    sampled = ~np.isnan(utilization)
    spins: BoolArray = ((utilization >= SPINS_PERCENT) & (memory < STILL_PERCENT))[sampled]
    if not spins.size:
        return None
    shares = np.cumsum(spins[::-1])[::-1] / np.arange(spins.size, 0, -1)
    begins = np.flatnonzero((spins | spun) & (shares >= SHARE))
    times = snapshots.times[sampled]
    return Spin(float(times[begins[0]]), float(times[np.flatnonzero(spins)[-1]])) if begins.size else None


def _draws_little(minute: NodeMinute, gpu: str, since: float, most: float) -> bool:
    """Tell whether a GPU drew at most so many watts since then, and no multiprocessor, or no change, shows work."""
    power, activity = minute.devices.of(names.POWER)[gpu], _activity(minute, gpu, since)
    drawn = power.values[power.times >= since]
    if not drawn.size or np.mean(drawn <= most) < SHARE:
        return False
    if activity.size:
        return bool(np.mean(activity < STILL_PERCENT) >= SHARE)
    middle = float(np.median(drawn))
    return bool(np.mean(np.abs(drawn - middle) <= FLAT * middle) >= SHARE)


def _activity(minute: NodeMinute, gpu: str, since: float) -> FloatArray:
    """Return the SM activity since then: each reading is the mean of the time from the one before it on."""
    series = minute.devices.of(names.SM_ACTIVITY).get(gpu)
    if series is None:
        return np.zeros(0)
    spun_throughout = since <= float(minute.snapshots.times[0])
    before = np.concatenate([[since if spun_throughout else -np.inf], series.times[:-1]])
    return series.values[(before >= since) & (series.times >= since)]
