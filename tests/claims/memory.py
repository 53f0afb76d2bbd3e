"""Recomputes the facts of BatchSize, GPUMemoryIncrease, GPUHealth, MaxInitializationTime and Straggler."""

import math

import numpy as np

from tests.claims.context import Context, Expected, Fact, Range, Recompute, mean_of
from tests.claims.low import FACTS as LOW
from tests.claims.raw import Event, Floats
from tests.claims.work import within

MINUTE_S = 60.0


def _kept_of(context: Context, fact: Fact, metric: str, device: str) -> Floats:
    """Return the samples of a series at the kept points in a fact's time."""
    node = context.node(fact)
    kept = node.points.times[context.raw.work(node).kept & within(node.points.times, fact.get("from"), fact.get("to"))]
    series = node.of(metric)[device]
    places = np.searchsorted(series.times, kept - 0.5 * node.interval_s)
    places = places[places < series.times.size]
    return series.values[places]


def _p95_of_gpu(metric: str) -> Recompute:
    """Return the 95th percentile of the named GPU; NaN where that of another one in use is higher."""

    def recompute(context: Context, fact: Fact) -> Expected:
        node = context.node(fact)
        found = {}
        for gpu in node.used_gpus:
            values = _kept_of(context, fact, metric, gpu)
            found[gpu] = float(np.quantile(values, 0.95)) if values.size else math.nan
        named = found.get(fact["device"], math.nan)
        return named if named >= max(found.values(), default=math.nan) - 0.1 else math.nan

    return recompute


def _p95_of_cores(context: Context, fact: Fact) -> Expected:
    node = context.node(fact)
    chosen = context.raw.work(node).kept & within(node.points.times, fact.get("from"), fact.get("to"))
    means = node.points.cpu_mean[chosen]
    return float(np.quantile(means[~np.isnan(means)], 0.95))


def _kept_points(context: Context, fact: Fact) -> Expected:
    return float(context.raw.work(context.node(fact)).kept.sum())


def _points_low(context: Context, fact: Fact) -> Expected:
    most = _kept_points(context, fact)
    assert isinstance(most, float)
    return Range(float(fact.get("threshold") or 0.0), most)


def _low_time(context: Context, fact: Fact) -> Expected:
    points = context.first("points_low")
    return math.nan if points is None else _stood(context, fact, int(points["value"]))


def _window(context: Context, fact: Fact) -> Expected:
    points = context.first("samples")
    if points is None:
        return float(context.parameters["window_s"]) if context.parameters.get("window_s") else math.nan
    return _stood(context, fact, int(points["value"]))


def _stood(context: Context, fact: Fact, points: int) -> Expected:
    """Return for how long the newest kept points of a fact's time stand: each until the next one, but over no pause.

    A rule holds some hundred points: those before are told by the mean of these, so 5 % are left open.
    """
    node = context.node(fact)
    kept = context.raw.work(node).kept & within(node.points.times, None, fact["to"])
    times = node.points.times[kept][-points:]
    if times.size < points or not points:
        return 0.0 if not points else math.nan
    distances = np.append(np.diff(times), node.gpu_interval_s)
    usual = float(np.median(distances))
    lasted = float(np.where(distances > 2.1 * usual, usual, distances).sum())
    return Range(0.95 * lasted, 1.05 * lasted)


BATCH_SIZE: dict[str, Recompute] = {
    "p95_utilization_at_work": _p95_of_gpu("GPUUtilization"),
    "p95_memory_activity_at_work": _p95_of_gpu("GPUMemoryUtilization"),
    "p95_core_utilization_at_work": _p95_of_cores,
    "samples": LOW["samples_at_work"],
    "window": _window,
    "points_low": _points_low,
    "low_time": _low_time,
    "unused_share": lambda *_: Range(0.0, 1.0),
}


def _used_percent(context: Context, fact: Fact) -> Expected:
    """Return the least memory in use in the newest minute, percent."""
    node = context.node(fact)
    used, total = node.of("MemoryUsedBytes")[fact["device"]], node.of("MemoryTotalBytes")[fact["device"]]
    newest = used.between(used.times[-1] - 2.0 * MINUTE_S, used.times[-1])
    whole = float(total.values[-1])
    return Range(100.0 * float(newest.min()) / whole - 0.1, 100.0 * float(newest.max()) / whole + 0.1)


def _used_bytes(context: Context, fact: Fact) -> Expected:
    percent = _used_percent(context, fact)
    assert isinstance(percent, Range)
    whole = float(context.node(fact).of("MemoryTotalBytes")[fact["device"]].values[-1])
    return Range(percent.least / 100.0 * whole - 1e6, percent.most / 100.0 * whole + 1e6)


def _increase(context: Context, fact: Fact) -> Expected:
    """Return how far the series rose at most: from its lowest sample to its highest, percentage points."""
    node, series = context.node(fact), str(fact["series"])
    values = node.of(series)[fact["device"]].values
    if series == "MemoryUsedBytes":
        values = 100.0 * values / float(node.of("MemoryTotalBytes")[fact["device"]].values[-1])
    return Range(0.0, float(values.max() - values.min()))


def _hourly(context: Context, fact: Fact) -> Expected:
    rise, lasted = context.first("increase"), context.first("rise_time")
    if rise is None or lasted is None:
        return math.nan
    hourly = 3_600.0 * float(rise["value"]) / float(lasted["value"])
    return Range(hourly * 0.9 - 0.1, hourly * 1.1 + 0.1)


def _hourly_bytes(context: Context, fact: Fact) -> Expected:
    hourly = context.first("hourly_increase")
    whole = float(context.node(fact).of("MemoryTotalBytes")[fact["device"]].values[-1])
    return (
        math.nan
        if hourly is None
        else Range(float(hourly["value"]) / 100.0 * whole * 0.999, float(hourly["value"]) / 100.0 * whole * 1.001)
    )


def _time_left(context: Context, fact: Fact) -> Expected:
    """Return in how long the memory is full at the rate that is said."""
    hourly = context.first("hourly_increase")
    used = context.first("memory_in_use_share") or context.first("floor_of_rise")
    if hourly is None or used is None:
        return math.nan
    left = 3_600.0 * (100.0 - float(used["value"])) / float(hourly["value"])
    return Range(0.8 * left, 1.2 * left)


def _within_series(context: Context, fact: Fact) -> Expected:
    """Return the range of the series' samples."""
    values = context.node(fact).of(str(fact["series"]))[fact["device"]].values
    return Range(float(values.min()), float(values.max()))


def _lasting(context: Context, fact: Fact) -> Expected:
    start, end = context.raw.job.span
    return Range(0.0, end - start)


GPU_MEMORY: dict[str, Recompute] = {
    "increase": _increase,
    "rise_time": _lasting,
    "window": _lasting,
    "memory_in_use": _used_bytes,
    "memory_total": lambda context, fact: float(context.node(fact).of("MemoryTotalBytes")[fact["device"]].values[-1]),
    "memory_in_use_share": _used_percent,
    "hourly_increase": _hourly,
    "hourly_bytes": _hourly_bytes,
    "time_left": _time_left,
    "gpus_affected": LOW["gpus_affected"],
    "p5_activity_at_work": _within_series,
    "highest_mean_activity": _within_series,
    "floor_of_rise": _within_series,
    "level_before": _within_series,
    "level_after": _within_series,
    "strongest_jump": _increase,
    "left_after_another": lambda *_: Range(0.0, 100.0),
    "trend_z": lambda *_: Range(0.0, math.inf),
    "stream_end": LOW["stream_end"],
}


def _samples_of(context: Context, fact: Fact, metric: str) -> Floats:
    return context.node(fact).of(metric)[fact["device"]].values


def _since(metric: str) -> Recompute:
    """Return when a series was first above nothing."""

    def recompute(context: Context, fact: Fact) -> Expected:
        series = context.node(fact).of(metric)[fact["device"]]
        places = np.flatnonzero(series.values > 0.0)
        return float(series.times[places[0]]) if places.size else math.nan

    return recompute


def _silent(context: Context, fact: Fact) -> Expected:
    """Return for how many minutes others of the node have samples, and this GPU none."""
    node = context.node(fact)
    own = node.of("GPUUtilization")[fact["device"]].times[-1]
    return Range(0.0, (node.last - float(own)) / MINUTE_S + 1.0)


def _ecc(context: Context, fact: Fact) -> Expected:
    values = _samples_of(context, fact, "ECCUncorrectedErrors")
    rises = np.diff(values)
    return float(rises[rises > 0.0].sum())


def _xid(context: Context, fact: Fact) -> Expected:
    values = {int(value) for value in _samples_of(context, fact, "XID")}
    return float(fact["value"]) if int(fact["value"]) in values else math.nan


def _clock(context: Context, fact: Fact) -> Expected:
    values = _samples_of(context, fact, "SMClockMHz")
    return Range(float(values.min()), float(values.max()))


def _peers(context: Context, fact: Fact) -> Expected:
    values = np.concatenate([series.values for series in context.node(fact).of("SMClockMHz").values()])
    return Range(float(values.min()), float(values.max()))


def _lanes(context: Context, fact: Fact) -> Expected:
    values = np.concatenate([series.values for series in context.node(fact).of("PCIeLinkWidth").values()])
    return Range(float(values.min()), float(values.max()))


GPU_HEALTH: dict[str, Recompute] = {
    "lost_since": _since("Lost"),
    "remapping_failed_since": _since("RemappedRowsFailed"),
    "silent_minutes": _silent,
    "unanswered_minutes": _lasting,
    "xid": _xid,
    "times": lambda context, fact: Range(1.0, float(_samples_of(context, fact, "XID").size)),
    "ecc_errors": _ecc,
    "clock": _clock,
    "clock_of_peers": _peers,
    "clock_lost": lambda *_: Range(0.0, 100.0),
    "throttled_minutes": lambda context, _: Range(0.0, (context.raw.job.span[1] - context.raw.job.span[0]) / MINUTE_S),
    "lanes": _lanes,
    "lanes_before": _lanes,
    "lanes_of_others": _lanes,
    "gpus_affected": LOW["gpus_affected"],
}


def _first_step(context: Context) -> float:
    return min(
        (each.start for events in context.raw.job.events.values() for each in events if "Step:" in each.phase),
        default=math.nan,
    )


def _started(context: Context) -> float:
    start = context.raw.job.about.get("started_at")
    return context.raw.job.first if start is None else min(float(start), context.raw.job.first)


def _time_over(context: Context, fact: Fact) -> Expected:
    waited = context.first("time_to_first_step") or context.first("time_without_step")
    return math.nan if waited is None else float(waited["value"]) - float(waited["threshold"])


INITIALIZATION: dict[str, Recompute] = {
    "time_to_first_step": lambda context, _: _first_step(context) - _started(context),
    "time_without_step": lambda context, _: context.raw.job.last - _started(context),
    "started_at": lambda context, _: _started(context),
    "restarted_at": lambda context, _: Range(*context.raw.job.span),
    "time_over": _time_over,
    "grace": _lasting,
    "time_at_work": _lasting,
}


def _ranks(context: Context) -> dict[str, list[Event]]:
    return {
        f"{node}-{process}": steps
        for (node, process), events in context.raw.job.events.items()
        if (steps := [each for each in events if each.phase == "Step:ModeKeys.TRAIN"])
    }


def _mean_step(context: Context, fact: Fact) -> Expected:
    named = context.first("rank")
    steps = _ranks(context).get(str(named["value"])) if named else None
    if not steps:
        return math.nan
    inside = [step.seconds for step in steps if fact["from"] - 1.0 <= step.end <= fact["to"] + 1.0]
    mean = mean_of(np.array(inside))
    return Range(0.98 * mean, 1.02 * mean)


def _longer(context: Context, fact: Fact) -> Expected:
    own, peers = context.first("own_work"), context.first("own_work_of_peers")
    return 100.0 * (float(own["value"]) / float(peers["value"]) - 1.0) if own and peers else math.nan


def _is_rank(context: Context, fact: Fact) -> Expected:
    return str(fact["value"]) if str(fact["value"]) in _ranks(context) else "no rank is called so"


def _own_work(context: Context, fact: Fact) -> Expected:
    longest = max(each.seconds for steps in _ranks(context).values() for each in steps)
    return Range(0.0, longest)


STRAGGLER: dict[str, Recompute] = {
    "rank": _is_rank,
    "slow_rank": _is_rank,
    "slow_node": lambda context, fact: str(fact["value"]) if fact["value"] in context.raw.job.nodes else "no such node",
    "own_work": _own_work,
    "own_work_of_peers": _own_work,
    "longer_than_peers": _longer,
    "mean_step": _mean_step,
    "ranks": lambda context, _: float(len(_ranks(context))),
    "ranks_affected": lambda context, _: Range(1.0, float(len(_ranks(context)))),
    "longer_by_waits": lambda *_: 1.0,
}
