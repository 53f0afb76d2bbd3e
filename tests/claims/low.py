"""Recomputes the facts of LowGPUUtilization."""

import math
from itertools import pairwise

import numpy as np

from tests.claims.context import Context, Expected, Fact, Recompute, mean_of, samples
from tests.claims.gpu_minutes import (
    fading_mean,
    held_by,
    holding,
    hollow_gpus,
    instances_of,
    judged_instances,
    low_instances,
    measure_of,
    newest_minutes,
    newest_of,
    taken,
)
from tests.claims.looks import is_same_point, looks_at, started_at
from tests.claims.raw import ACTIVE, Node
from tests.claims.streaks import streaks_at
from tests.claims.work import PAUSE_POINTS, runs_of, within

MINUTE_S = 60.0
LEAST_PAUSE_S, NEWEST_PAUSES = 10.0, 8


def _quantile(share: float) -> Recompute:
    """Return a quantile of a GPU's kept samples in a fact's time."""

    def recompute(context: Context, fact: Fact) -> Expected:
        kept = context.raw.kept(context.node(fact), context.gpus(fact), fact.get("from"), fact.get("to"))
        return float(np.quantile(kept, share)) if kept.size else math.nan

    return recompute


def _mean(context: Context, fact: Fact) -> Expected:
    return mean_of(samples(context, fact))


def _samples_at_work(context: Context, fact: Fact) -> Expected:
    node = context.node(fact)
    chosen = context.raw.work(node).kept & within(node.points.times, fact.get("from"), fact.get("to"))
    return float(np.count_nonzero(chosen))


def _mean_at_work(context: Context, fact: Fact) -> Expected:
    """Return the mean of the minutes of work, of which each mean is a whole percent."""
    return mean_of(np.rint([minute.busy for minute in newest_minutes(context, fact)]))


def _activity(reduced: str) -> Recompute:
    def recompute(context: Context, fact: Fact) -> Expected:
        values = np.array([minute.activity for minute in newest_minutes(context, fact)])
        if not values.size:
            return math.nan
        return float(np.quantile(values, 0.95)) if reduced == "p95" else mean_of(values)

    return recompute


def _minutes_at_work(context: Context, fact: Fact) -> Expected:
    return float(len(newest_minutes(context, fact)))


def _activity_of(context: Context, fact: Fact) -> Expected:
    """Return of what the activity is that the finding tells."""
    if ".mig" in str(fact.get("device")):
        return "engine activity"
    told = context.first("p95_activity_at_work") or context.first("mean_activity_at_work")
    return math.nan if told is None else measure_of(looks_at(context.raw, context.node(told)), str(told["device"]))


def _idle_time(context: Context, fact: Fact) -> Expected:
    """Return the length of the fact's time; NaN where a GPU works for much of it."""
    node, start, end = context.node(fact), fact.get("from"), fact.get("to")
    gpus = context.gpus(fact)
    means = [mean_of(node.of("GPUUtilization")[gpu].between(start, end)) for gpu in gpus]
    busiest = max(means, default=math.nan)
    if start is None or end is None or not busiest < ACTIVE * 2.0 or not _is_so_called(context, node, end):
        return math.nan
    return float(end - start)


def _is_so_called(context: Context, node: Node, until: float) -> bool:
    """Tell whether a node that is called never used never works, and one that is idle at first does so later."""
    worked = node.points.active & within(node.points.times, until, None)
    kind = context.finding["finding_kind"]
    return not worked.any() if kind == "never_used" else kind != "idle_at_first" or bool(worked.any())


def _idle_since(context: Context, fact: Fact) -> Expected:
    idle = context.first("idle_time")
    return math.nan if idle is None else float(idle["from"])


def _first_sample(context: Context, fact: Fact) -> Expected:
    return context.node(fact).first


def _stream_end(context: Context, fact: Fact) -> Expected:
    return context.node(fact).last


def _highest_mean(context: Context, fact: Fact) -> Expected:
    """Return the mean of the named GPU; NaN where another one is busier."""
    node = context.node(fact)
    means = {gpu: mean_of(samples(context, fact, gpus=[gpu])) for gpu in node.gpus}
    named = means.get(fact["device"], math.nan)
    return named if named >= max(means.values()) - 0.1 else math.nan


def _power(context: Context, fact: Fact) -> Expected:
    """Return the power of the newest minute of work, or of a node that idles of the minutes since a GPU's work."""
    if context.finding["finding_kind"] == "low_activity":
        return newest_minutes(context, fact)[-1].power
    return fading_mean(context, fact, "PowerWatts", active=False)


def _power_at_work(context: Context, fact: Fact) -> Expected:
    return fading_mean(context, fact, "PowerWatts", active=True)


def _mean_sm_activity(context: Context, fact: Fact) -> Expected:
    return fading_mean(context, fact, "SMActivityPercent", active=False)


def _memory_in_use(context: Context, fact: Fact) -> Expected:
    """Return the least of the newest minute, whole megabytes or percent: of the fact's GPU, or all that hold memory."""
    device = fact.get("device")
    if device is not None:
        return held_by(context, fact)[str(device)].used
    used = [each.used for each in holding(context, fact).values()]
    return mean_of(np.array(used)) if fact["name"] == "memory_in_use_share" else sum(used)


def _gpus_holding(context: Context, fact: Fact) -> Expected:
    told = context.first("memory_in_use") or context.first("memory_in_use_share")
    assert told is not None
    return 1.0 if told.get("device") else float(len(holding(context, fact)))


def _idle_as(context: Context, fact: Fact) -> Expected:
    """Return how a node idles: in one run since its last work, or nearly so on average for longer than that."""
    node, until, idle = context.node(fact), float(fact["to"]), context.first("idle_time")
    points, began = node.points, context.raw.work(node).began
    before = points.seen & within(points.times, None, until)
    if not points.active[before].any():
        return "never_used"
    if idle is None or began is None or began > until:
        return "nearly_idle"
    times, active = points.times[before], points.active[before]
    last = int(np.flatnonzero(active)[-1])
    since = float(times[last + 1]) if last + 1 < times.size else math.inf
    return "stopped" if float(idle["value"]) <= until - since + 2.0 * node.gpu_interval_s else "nearly_idle"


def _memory_total(context: Context, fact: Fact) -> Expected:
    """Return how much memory the GPUs have that are meant, bytes."""
    series = context.node(fact).of("MemoryTotalBytes")
    chosen = [fact["device"]] if fact.get("device") else list(series)
    return sum(float(series[gpu].values[-1]) for gpu in chosen)


def _idle_share(context: Context, fact: Fact) -> Expected:
    points = context.node(fact).points
    time = within(points.times, fact.get("from"), fact.get("to")) & points.seen
    return float((~points.active[time]).mean()) if time.any() else math.nan


def _samples(context: Context, fact: Fact) -> Expected:
    points = context.node(fact).points
    return float((within(points.times, fact.get("from"), fact.get("to")) & points.seen).sum())


def _pauses(context: Context, fact: Fact) -> list[tuple[float, float]]:
    """Return the newest pauses in a fact's time: idle times of three samples and ten seconds that are no chance."""
    node, start, end = context.node(fact), fact.get("from"), fact.get("to")
    return [
        (begin, until)
        for begin, until in _counted(context, node)
        if (start is None or begin >= start - node.interval_s) and (end is None or until <= end + node.interval_s)
    ][-NEWEST_PAUSES:]


def _counted(context: Context, node: Node) -> list[tuple[float, float]]:
    chance, points = context.raw.work(node).chance, node.points
    return [
        (begin, until)
        for begin, until in _breaks(context, node)
        if begin not in chance
        and until - begin >= LEAST_PAUSE_S
        and int((points.seen & (points.times >= begin - 1e-3) & (points.times < until - 1e-3)).sum()) >= PAUSE_POINTS
    ]


def _breaks(context: Context, node: Node) -> list[tuple[float, float]]:
    """Return the idle runs that are over, after the node had worked for a minute; missing samples cut a run off."""
    times, began, started = node.points.times, context.raw.work(node).began or math.inf, started_at(node)
    return [
        (float(times[run.first]), float(times[following.first]))
        for run, following in pairwise(runs_of(node, math.inf))
        if not run.active
        and not following.after_gap
        and float(times[run.first]) >= began - 1e-3
        and float(times[following.first]) > started
    ]


def _pause_length(context: Context, fact: Fact) -> Expected:
    lengths = [end - begin for begin, end in _pauses(context, fact)]
    return float(np.median(lengths)) if lengths else math.nan


def _period(context: Context, fact: Fact) -> Expected:
    starts = [begin for begin, _ in _pauses(context, fact)]
    return float(np.median(np.diff(starts))) if len(starts) > 1 else math.nan


def _pause_share(context: Context, fact: Fact) -> Expected:
    length, period = context.first("pause_length"), context.first("period")
    return float(length["value"]) / float(period["value"]) if length and period else math.nan


def _paused_time_share(context: Context, fact: Fact) -> Expected:
    """Return the share of all idle runs that are over, of ten seconds and three samples, and are no chance."""
    node, until = context.node(fact), _until(context, fact)
    total = sum(end - begin for begin, end in _counted(context, node) if end <= until)
    return min(total / (until - 1e-3 - node.first + node.gpu_interval_s), 1.0)


def _paused_share(context: Context, fact: Fact) -> Expected:
    node, until = context.node(fact), _until(context, fact)
    work, times = context.raw.work(node), node.points.times
    over = [(begin, end) for begin, end in work.pauses if end <= until]
    paused = sum(int((node.points.seen & (times >= begin) & (times < end)).sum()) for begin, end in over)
    kept = int((work.kept & (times <= until)).sum())
    return paused / (paused + kept) if paused + kept else math.nan


def _until(context: Context, fact: Fact) -> float:
    """Return up to when a fact was known, to a millisecond: what is over is given as of the time when it held."""
    return float(fact.get("to") or context.node(fact).last) + 1e-3


def _low_time(context: Context, fact: Fact) -> Expected:
    """Return for how long it was low, from the time that showed it first; of instances whole minutes."""
    if context.first("p95_sm_activity") is not None:
        return MINUTE_S * newest_of(judged_instances(context, fact)[str(fact["device"])], fact).size
    streaks, _, _ = streaks_at(context, fact)
    onset = min(streaks.held[str(fact["device"])].onset, float(fact["to"]))
    return float(fact["to"]) - onset if is_same_point(context, fact, onset) else math.nan


def _low_points(context: Context, fact: Fact) -> Expected:
    streaks, look, closed = streaks_at(context, fact)
    high = context.first("p95_utilization_at_work")
    assert high is not None
    return float(streaks.held[str(high["device"])].lasts(look.kept, closed=closed))


def _dip_share(context: Context, fact: Fact) -> Expected:
    return streaks_at(context, fact)[0].held[str(fact["device"])].cost


def _instance_activity(reduced: str) -> Recompute:
    def recompute(context: Context, fact: Fact) -> Expected:
        judged = judged_instances(context, fact)
        if reduced == "p95":
            return float(np.quantile(newest_of(judged[str(fact["device"])], fact), 0.95))
        return max(float(newest_of(minutes, fact).max()) for minutes in judged.values())

    return recompute


def _affected(context: Context, fact: Fact) -> Expected:
    """Return how many GPUs, or instances, are as the finding says."""
    kind = context.finding["finding_kind"]
    if kind in {"instances_low", "instances_unused"}:
        return float(low_instances(context, fact))
    if kind == "low_activity":
        return float(hollow_gpus(context, fact))
    if kind == "gpu_taken":
        return float(taken(context, fact))
    streaks, look, closed = streaks_at(context, fact)
    return float(len(streaks.fired(look, closed=closed)))


FACTS: dict[str, Recompute] = {
    "mean_utilization": _mean,
    "mean_utilization_at_work": _mean_at_work,
    "p95_utilization_at_work": _quantile(0.95),
    "p5_utilization_at_work": _quantile(0.05),
    "samples_at_work": _samples_at_work,
    "mean_activity_at_work": _activity("mean"),
    "p95_activity_at_work": _activity("p95"),
    "minutes_at_work": _minutes_at_work,
    "activity": _activity_of,
    "idle_as": _idle_as,
    "idle_time": _idle_time,
    "idle_since": _idle_since,
    "first_sample": _first_sample,
    "stream_end": _stream_end,
    "highest_mean_utilization": _highest_mean,
    "mean_sm_activity": _mean_sm_activity,
    "power": _power,
    "power_at_work": _power_at_work,
    "memory_in_use": _memory_in_use,
    "memory_in_use_share": _memory_in_use,
    "memory_total": _memory_total,
    "gpus_holding": _gpus_holding,
    "gpus_affected": _affected,
    "gpus": lambda context, fact: float(len(context.node(fact).gpus)),
    "idle_share": _idle_share,
    "samples": _samples,
    "pause_length": _pause_length,
    "period": _period,
    "pause_share": _pause_share,
    "paused_time_share": _paused_time_share,
    "paused_share": _paused_share,
    "low_time": _low_time,
    "low_points": _low_points,
    "dip_share": _dip_share,
    "p95_sm_activity": _instance_activity("p95"),
    "highest_sm_activity": _instance_activity("max"),
    "instances": lambda context, fact: float(len(instances_of(context, fact))),
}
