"""Recomputes the facts of GPUHealth."""

import math

import numpy as np

from tests.claims.context import Context, Expected, Fact, Recompute
from tests.claims.gpu_faults import Gpu, Loaded, faults_of
from tests.claims.raw import Series
from tests.claims.work import CLOCK_S


def _gpu(context: Context, fact: Fact) -> Gpu:
    """Return what is known of a fact's GPU at the end of its time."""
    return faults_of(context, context.node(fact), float(fact["to"]))[fact["device"]]


def _series(context: Context, fact: Fact, metric: str) -> Series:
    return context.node(fact).of(metric)[fact["device"]]


def _since(metric: str) -> Recompute:
    """Return since when a series is above nothing."""

    def recompute(context: Context, fact: Fact) -> Expected:
        series = _series(context, fact, metric)
        unset = np.flatnonzero(series.values <= 0.0)
        first = int(unset[-1]) + 1 if unset.size else 0
        return float(series.times[first]) if first < series.times.size else math.nan

    return recompute


def _silent(context: Context, fact: Fact) -> Expected:
    """Return for how many minutes others of the node have samples, and this GPU none since the time that is said."""
    gpu = _gpu(context, fact)
    return float(gpu.silent) if abs(gpu.seen_at - fact["from"]) <= CLOCK_S else math.nan


def _unanswered(context: Context, fact: Fact) -> Expected:
    """Return in how many minutes the driver did not answer since the sample that says so first."""
    series = _series(context, fact, "Unanswered")
    begins = series.times[(series.values >= 1.0) & (np.append(0.0, series.values[:-1]) < 1.0)]
    known = begins.size and np.abs(begins - fact["from"]).min() <= CLOCK_S
    return float(_gpu(context, fact).unanswered) if known else math.nan


def _xid(context: Context, fact: Fact) -> Expected:
    """Return the code if it is of hardware, and the GPU reported it first and last when that is said."""
    code = int(fact["value"])
    came = _gpu(context, fact).hardware_xids.get(code)
    if came is None or max(abs(came[0] - fact["from"]), abs(came[1] - fact["to"])) > CLOCK_S:
        return math.nan
    return float(code)


def _times(context: Context, fact: Fact) -> Expected:
    named = context.first("xid")
    return math.nan if named is None else float(_gpu(context, fact).xids[int(named["value"])][2])


def _ecc(context: Context, fact: Fact) -> Expected:
    return _gpu(context, fact).errors


def _throttled(context: Context, fact: Fact) -> list[Loaded]:
    """Return the minutes in which the GPU was throttled, up to the end of a fact's time, which is in the newest."""
    return _gpu(context, fact).throttled(float(fact["to"]), float(context.parameters["clock_loss"]))


def _newest(context: Context, fact: Fact) -> Loaded:
    """Return the minute under load in which a fact's time ends."""
    newest = _gpu(context, fact).loaded[-1]
    if abs(newest.at - fact["to"]) > CLOCK_S:
        raise ValueError("the GPU was not busy in the minute in which the fact's time ends")
    return newest


def _clock(context: Context, fact: Fact) -> Expected:
    clock = _newest(context, fact).clock
    return math.nan if clock is None else clock


def _peers(context: Context, fact: Fact) -> Expected:
    """Return the median clock of the other GPUs that work and that nothing slows."""
    peers = _newest(context, fact).peers
    return math.nan if peers is None else peers


def _clock_lost(context: Context, fact: Fact) -> Expected:
    lost = _newest(context, fact).lost
    return math.nan if lost is None else lost


def _throttled_minutes(context: Context, fact: Fact) -> Expected:
    """Return how many of the newest minutes under load showed it, since the first that is said."""
    return float(sum(each.at >= fact["from"] - CLOCK_S for each in _throttled(context, fact)))


def _lanes(context: Context, fact: Fact) -> Expected:
    lanes = _newest(context, fact).lanes
    return math.nan if lanes is None else lanes


def _most_lanes(context: Context, fact: Fact) -> Expected:
    """Return the most lanes that the GPU had so far."""
    return _gpu(context, fact).most_lanes


def _others(context: Context, fact: Fact) -> list[str]:
    """Return the other GPUs of the node with which something is wrong at the end of a fact's time."""
    until, worst = float(fact["to"]), context.finding["facts"][0]["device"]
    loss, minutes = float(context.parameters["clock_loss"]), int(context.parameters["loaded_minutes"])
    gpus = faults_of(context, context.node(fact), until)
    return [name for name, gpu in gpus.items() if name != worst and gpu.is_faulty(until, loss, min(minutes, 10))]


def _other(context: Context, fact: Fact) -> Expected:
    return str(fact["value"]) if fact["value"] in _others(context, fact) else "nothing is wrong with it"


GPU_HEALTH: dict[str, Recompute] = {
    "lost_since": _since("Lost"),
    "remapping_failed_since": _since("RemappedRowsFailed"),
    "silent_minutes": _silent,
    "unanswered_minutes": _unanswered,
    "xid": _xid,
    "times": _times,
    "ecc_errors": _ecc,
    "clock": _clock,
    "clock_of_peers": _peers,
    "clock_lost": _clock_lost,
    "throttled_minutes": _throttled_minutes,
    "lanes": _lanes,
    "lanes_before": _most_lanes,
    "lanes_of_others": lambda context, fact: _newest(context, fact).lanes_of_peers,
    "other_gpus": lambda context, fact: float(len(_others(context, fact))),
    "other_gpu": _other,
}
