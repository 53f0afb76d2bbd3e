"""Recomputes the facts of LowGPUUtilization."""

import math

import numpy as np

from tests.claims.context import Context, Expected, Fact, Range, Recompute, mean_of, samples
from tests.claims.raw import ACTIVE, Floats, Node, Series
from tests.claims.work import PAUSE_POINTS, within

MINUTE_S = 60.0
NEWEST_MINUTES = 20
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
    """Return the mean of minutes in which some GPU worked at every sample."""
    values = _minutes_at_work(context, fact, "GPUUtilization")
    mean = mean_of(values)
    return Range(mean - 0.5, mean + 0.5)  # means of minutes are whole percents


def _minutes_at_work(context: Context, fact: Fact, metric: str) -> Floats:
    node = context.node(fact)
    points, series = node.points, node.of(metric)[fact["device"]]
    found = []
    for minute in np.unique(np.floor(points.times / MINUTE_S)):
        rows = np.floor(points.times / MINUTE_S) == minute
        begin = MINUTE_S * minute
        if begin + MINUTE_S <= fact["from"] or begin > fact["to"] or not points.active[rows & points.seen].all():
            continue
        values = series.between(begin, begin + MINUTE_S - 1e-3)
        if values.size:
            found.append(float(values.mean()))
    return np.array(found)


def _activity(reduced: str) -> Recompute:
    def recompute(context: Context, fact: Fact) -> Expected:
        series = str(fact.get("series"))
        names = ["TensorActivityPercent", "DRAMActivityPercent"] if series == "TensorActivityPercent" else [series]
        tables = [_minutes_at_work(context, fact, name) for name in names if context.node(fact).of(name)]
        values = tables[0] if len(tables) == 1 else np.maximum(*tables[:2])
        if not values.size:
            return math.nan
        return float(np.quantile(values, 0.95)) if reduced == "p95" else mean_of(values)

    return recompute


def _idle_runs(times: Floats, active: np.ndarray) -> list[tuple[float, float]]:
    """Return the idle runs: the first idle sample, and the next active one or the last sample."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], (~active).astype(int), [0]])))
    return [
        (float(times[begin]), float(times[min(end, times.size - 1)]))
        for begin, end in zip(edges[::2], edges[1::2], strict=True)
    ]


def _idle_time(context: Context, fact: Fact) -> Expected:
    """Return the length of the fact's time; NaN where a GPU works for much of it."""
    node, start, end = context.node(fact), fact.get("from"), fact.get("to")
    gpus = context.gpus(fact)
    means = [mean_of(node.of("GPUUtilization")[gpu].between(start, end)) for gpu in gpus]
    busiest = max(means, default=math.nan)
    if start is None or end is None or not busiest < ACTIVE * 2.0:
        return math.nan
    lasted = end - start
    return Range(lasted, lasted + node.interval_s)


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


def _newest(metric: str) -> Recompute:
    """Return the newest values of a metric, all devices that are meant added up."""

    def recompute(context: Context, fact: Fact) -> Expected:
        node = context.node(fact)
        series = node.of(metric)
        end = fact.get("to") or node.last
        chosen = [fact["device"]] if fact.get("device") else list(series)
        newest = [series[gpu].between(end - 5.0 * MINUTE_S, end) for gpu in chosen if gpu in series]
        least = sum(float(values.min()) for values in newest if values.size)
        most = sum(float(values.max()) for values in newest if values.size)
        return Range(min(least * 0.98, most), most * 1.02) if most else math.nan

    return recompute


def _idle_share(context: Context, fact: Fact) -> Expected:
    points = context.node(fact).points
    time = within(points.times, fact.get("from"), fact.get("to")) & points.seen
    return float((~points.active[time]).mean()) if time.any() else math.nan


def _samples(context: Context, fact: Fact) -> Expected:
    points = context.node(fact).points
    return float((within(points.times, fact.get("from"), fact.get("to")) & points.seen).sum())


def _pauses(context: Context, fact: Fact) -> list[tuple[float, float]]:
    """Return the newest pauses in a fact's time: idle times of three samples and ten seconds that are no chance."""
    node = context.node(fact)
    chance, points, start, end = context.raw.work(node).chance, node.points, fact.get("from"), fact.get("to")
    return [
        (begin, until)
        for begin, until in _breaks(context, node)
        if begin not in chance
        and (start is None or begin >= start - node.interval_s)
        and (end is None or until <= end + node.interval_s)
        and until - begin >= LEAST_PAUSE_S
        and int((points.seen & (points.times >= begin - 1e-3) & (points.times < until - 1e-3)).sum()) >= PAUSE_POINTS
    ][-NEWEST_PAUSES:]


def _breaks(context: Context, node: Node) -> list[tuple[float, float]]:
    points, began = node.points, context.raw.work(node).began
    time = points.seen & (points.times >= (began or math.inf) - 1e-3)
    return [(begin, end) for begin, end in _idle_runs(points.times[time], points.active[time]) if end > begin]


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
    """Return the share of idle runs that are over: of pauses at least, and of all at most."""
    node, until = context.node(fact), _until(context, fact)
    total = sum(end - begin for begin, end in _breaks(context, node) if end <= until)
    pauses = sum(end - begin for begin, end in context.raw.work(node).pauses if end <= until)
    paid = until - node.first + node.interval_s
    return Range(pauses / paid - 0.01, total / paid + 0.01)


def _paused_share(context: Context, fact: Fact) -> Expected:
    node, until = context.node(fact), _until(context, fact)
    work, times = context.raw.work(node), node.points.times
    over = [(begin, end) for begin, end in work.pauses if end <= until]
    paused = sum(int((node.points.seen & (times >= begin) & (times < end)).sum()) for begin, end in over)
    kept = int((work.kept & (times <= until)).sum())
    return paused / (paused + kept) if paused + kept else math.nan


def _until(context: Context, fact: Fact) -> float:
    """Return up to when a fact was known, to a millisecond: what is over is told as of the time when it held."""
    return float(fact.get("to") or context.node(fact).last) + 1e-3


def _low_time(context: Context, fact: Fact) -> Expected:
    """Return for how long it was low; instances of partitioned GPUs are judged by whole minutes."""
    lasted = float(fact["to"] - fact["from"])
    return Range(lasted, lasted + MINUTE_S) if ".mig" in str(fact.get("device")) else lasted


def _instance_activity(reduced: str) -> Recompute:
    def recompute(context: Context, fact: Fact) -> Expected:
        every = context.node(fact).of("SMActivityPercent")
        series = [every[fact["device"]]] if fact.get("device") else list(every.values())
        means = np.concatenate([_minute_means(each, fact) for each in series])
        value = float(np.quantile(means, 0.95)) if reduced == "p95" else float(means.max())
        return Range(value - 1.0, value + 1.0)

    return recompute


def _minute_means(series: Series, fact: Fact) -> Floats:
    minutes = np.floor(series.times / MINUTE_S)
    inside = within(series.times, fact.get("from"), fact.get("to"))
    return np.array([series.values[minutes == each].mean() for each in np.unique(minutes[inside])])


def _affected(context: Context, fact: Fact) -> Expected:
    node = context.node(fact)
    return Range(1.0, float(max(len(node.gpus), len(node.of("SMActivityPercent")))))


def _name(context: Context, fact: Fact) -> Expected:
    return str(fact["value"])


FACTS: dict[str, Recompute] = {
    "mean_utilization": _mean,
    "mean_utilization_at_work": _mean_at_work,
    "p95_utilization_at_work": _quantile(0.95),
    "p5_utilization_at_work": _quantile(0.05),
    "samples_at_work": _samples_at_work,
    "mean_activity_at_work": _activity("mean"),
    "p95_activity_at_work": _activity("p95"),
    "minutes_at_work": lambda _, fact: Range(1.0, (fact["to"] - fact["from"]) / MINUTE_S + 1.0),
    "activity": _name,
    "idle_as": _name,
    "idle_time": _idle_time,
    "idle_since": _idle_since,
    "first_sample": _first_sample,
    "stream_end": _stream_end,
    "highest_mean_utilization": _highest_mean,
    "mean_sm_activity": lambda context, fact: mean_of(samples(context, fact, "SMActivityPercent")),
    "power": _newest("PowerWatts"),
    "power_at_work": lambda context, fact: Range(
        0.0, float(context.node(fact).of("PowerWatts")[fact["device"]].values.max())
    ),
    "memory_in_use": _newest("MemoryUsedBytes"),
    "memory_total": _newest("MemoryTotalBytes"),
    "gpus_holding": _affected,
    "gpus_affected": _affected,
    "gpus": lambda context, fact: float(len(context.node(fact).gpus)),
    "gpus_judged": _affected,
    "idle_share": _idle_share,
    "samples": _samples,
    "pause_length": _pause_length,
    "period": _period,
    "pause_share": _pause_share,
    "paused_time_share": _paused_time_share,
    "paused_share": _paused_share,
    "low_time": _low_time,
    "low_points": lambda context, fact: Range(0.0, float(context.raw.work(context.node(fact)).kept.sum())),
    "dip_share": lambda *_: Range(0.0, 1.0),
    "p95_sm_activity": _instance_activity("p95"),
    "highest_sm_activity": _instance_activity("max"),
    "instances": lambda context, fact: float(len(context.node(fact).of("SMActivityPercent"))),
    "minutes_measured": lambda _, fact: Range(1.0, (fact["to"] - fact["from"]) / MINUTE_S + 1.0),
}
