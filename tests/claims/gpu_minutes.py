"""What further series of GPUs say about them, minute by minute: an object of samples is a minute."""

import math
from dataclasses import dataclass

import numpy as np

from tests.claims.context import Context, Fact
from tests.claims.looks import Look, Looks, lasting_points, looks_at, window_points
from tests.claims.raw import ACTIVE, Floats

MINUTE_S = 60.0
MOST_MINUTES = 60
SM, TENSORS, MEMORY = "SM activity", "activity of tensor cores and memory", "memory activity"
ENGINE = "EngineActivityPercent"
SERIES = {SM: "SMActivityPercent", TENSORS: "TensorActivityPercent", MEMORY: "GPUMemoryUtilization"}
LEAST_ACTIVITY = {TENSORS: 5.0, MEMORY: 1.0}
LITTLE_SHARE, LITTLE_WATTS = 0.6, 150.0
HELD_S, IDLE_S, STALE_S = 900.0, 1_200.0, 180.0
LEAST_BYTES, MEGA = 2e9, 1e6
QUIET = 5.0
FADING = 20
USED = 1.0


@dataclass(frozen=True, slots=True)
class Minute:
    """A minute of work of a GPU: its samples' times, epoch seconds, means in percent, and whether it was low."""

    begin: float
    end: float
    busy: float
    activity: float
    power: float
    low_sm: bool


def of_look(looks: Looks, look: Look, metric: str, device: str) -> Floats:
    """Return the samples of a series in the object of a look."""
    series = looks.node.of(metric).get(device)
    if series is None:
        return np.zeros(0)
    chosen = (series.times > look.after + 1e-4) & (series.times <= look.until + 1e-4)
    values: Floats = series.values[chosen]
    return values


def seen_looks(looks: Looks, until: float) -> list[Look]:
    """Return the looks up to a time that have new points."""
    return [look for look in looks.up_to(until) if look.end > look.first]


def measure_of(looks: Looks, gpu: str) -> str:
    """Return of what a GPU's activity is: the best that its series say."""
    if gpu in looks.node.of(SERIES[SM]):
        return SM
    return TENSORS if gpu in looks.node.of(SERIES[TENSORS]) else MEMORY


def minutes_of_work(context: Context, fact: Fact, gpu: str, until: float) -> list[Minute]:
    """Return the minutes, up to a time, in which some GPU worked at every point and this one's activity is known."""
    looks = looks_at(context.raw, context.node(fact))
    measure, column = measure_of(looks, gpu), looks.node.gpus.index(gpu)
    points, found = looks.node.points, []
    limits = looks.node.of("PowerLimitWatts").get(gpu)
    for look in seen_looks(looks, until):
        rows = slice(look.first, look.end)
        sampled = points.gpus[rows, column]
        sampled = sampled[~np.isnan(sampled)]
        activity = _activity(looks, look, gpu, measure)
        if not points.active[rows][points.seen[rows]].all() or not sampled.size or math.isnan(activity):
            continue
        watts = _mean(of_look(looks, look, "PowerWatts", gpu))
        known = np.zeros(0) if limits is None else limits.between(None, look.until)
        least = LITTLE_SHARE * float(known[-1]) if known.size else LITTLE_WATTS
        below = activity < min(LEAST_ACTIVITY.get(measure, 100.0), context.parameters["threshold_sm"])
        draws_little = measure == SM or math.isnan(watts) or watts < least
        busy = float(sampled.mean())
        is_hollow = busy >= context.parameters["threshold_p95"] and below and draws_little
        times = points.times
        found.append(Minute(times[look.first], times[look.end - 1], busy, activity, watts, bool(is_hollow)))
    return found


def _activity(looks: Looks, look: Look, gpu: str, measure: str) -> float:
    if measure == SM:
        return _mean(of_look(looks, look, SERIES[SM], gpu))
    memory = _mean(of_look(looks, look, "DRAMActivityPercent", gpu))
    if math.isnan(memory):
        column = looks.node.of(SERIES[MEMORY]).get(gpu)
        times = looks.node.points.times
        memory = math.nan if column is None else _mean(_between(column.times, column.values, times, look))
    if measure == MEMORY:
        known = of_look(looks, look, "PowerWatts", gpu).size
        return memory if known else math.nan
    return max(_mean(of_look(looks, look, SERIES[TENSORS], gpu)), memory)


def _between(times: Floats, values: Floats, points: Floats, look: Look) -> Floats:
    end = points[look.end] if look.end < points.size else math.inf
    chosen: Floats = values[(times >= points[look.first] - 1e-4) & (times < end - 1e-4)]
    return chosen


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else math.nan


def newest_minutes(context: Context, fact: Fact) -> list[Minute]:
    """Return the minutes of work of a fact's GPU that begin and end in its time, the newest 60 of them."""
    minutes = minutes_of_work(context, fact, str(fact["device"]), float(fact["to"]))
    return [each for each in minutes if math.floor(each.begin) >= math.floor(fact["from"])][-MOST_MINUTES:]


def hollow_gpus(context: Context, fact: Fact) -> int:
    """Return how many GPUs had low SM activity in all of their newest minutes, for a window and twice that."""
    node, parameters = context.node(fact), context.parameters
    interval_s = node.gpu_interval_s
    points = window_points(parameters, interval_s) + lasting_points(parameters, interval_s)
    needed = min(math.ceil(points * interval_s / MINUTE_S - 1e-9), MOST_MINUTES)
    newest = [minutes_of_work(context, fact, gpu, float(fact["to"]))[-needed:] for gpu in node.gpus]
    return sum(len(each) == needed and all(minute.low_sm for minute in each) for each in newest)


@dataclass(frozen=True, slots=True)
class Held:
    """What memory a GPU holds: since when all of it was held, and the GPU idle, epoch seconds; inf where it is not."""

    used: float
    held_since: float
    idle_since: float
    at: float


def held_by(context: Context, fact: Fact) -> dict[str, Held]:
    """Return what is known of the GPUs' memory at the end of a fact's time."""
    looks, until = looks_at(context.raw, context.node(fact)), float(fact["to"])
    found: dict[str, Held] = {}
    for look in seen_looks(looks, until):
        for gpu in looks.node.gpus:
            if any(of_look(looks, look, series, gpu).size for series in ("MemoryUsedBytes", "MemoryUsedPercent")):
                found[gpu] = _held(context, looks, look, gpu, found.get(gpu))
    return {gpu: each for gpu, each in found.items() if until - each.at <= STALE_S}


def _held(context: Context, looks: Looks, look: Look, gpu: str, before: Held | None) -> Held:
    used, total = of_look(looks, look, "MemoryUsedBytes", gpu), looks.node.of("MemoryTotalBytes").get(gpu)
    sizes = np.zeros(0) if total is None else total.between(None, look.until)
    unit = MEGA
    if not used.size:
        used, sizes, unit = of_look(looks, look, "MemoryUsedPercent", gpu), np.array([100.0]), 0.1
    least = context.parameters["threshold_memory"] / 100.0 * float(sizes[-1]) if sizes.size else LEAST_BYTES
    begin = math.floor(looks.node.points.times[look.first])
    sampled = looks.node.points.gpus[look.first : look.end, looks.node.gpus.index(gpu)]
    sampled = sampled[~np.isnan(sampled)]
    is_idle = bool(sampled.size and sampled.max() < ACTIVE and sampled.mean() < QUIET)
    if before is not None and begin - before.at > STALE_S:
        before = None
    earlier = (math.inf, math.inf) if before is None else (before.held_since, before.idle_since)
    return Held(
        used=unit * round(float(used.min()) / unit),
        held_since=min(earlier[0], begin) if used.min() >= least else math.inf,
        idle_since=min(earlier[1], begin) if is_idle else math.inf,
        at=math.floor(look.until),
    )


def holding(context: Context, fact: Fact) -> dict[str, Held]:
    """Return the GPUs that have held memory for a quarter of an hour."""
    now = float(fact["to"]) + context.node(fact).gpu_interval_s
    return {gpu: each for gpu, each in held_by(context, fact).items() if now - each.held_since >= HELD_S - 1e-3}


def taken(context: Context, fact: Fact) -> int:
    """Return how many GPUs have never worked, hold memory, and have been idle for 20 minutes."""
    node = context.node(fact)
    now = float(fact["to"]) + node.gpu_interval_s
    return sum(
        now - each.idle_since >= IDLE_S - 1e-3
        for gpu, each in holding(context, fact).items()
        if not (node.of("GPUUtilization")[gpu].between(None, float(fact["to"])) >= ACTIVE).any()
    )


def fading_mean(context: Context, fact: Fact, metric: str, *, active: bool) -> float:
    """Return the mean of a series' minutes in which the GPU was active, or of those since: each is a part of 20."""
    looks, gpu = looks_at(context.raw, context.node(fact)), str(fact["device"])
    mean, count = math.nan, 0
    for look in seen_looks(looks, float(fact["to"])):
        rows = looks.node.points.gpus[look.first : look.end, looks.node.gpus.index(gpu)]
        worked = bool((np.nan_to_num(rows, nan=-1.0) >= ACTIVE).any())
        if worked and not active:
            mean, count = math.nan, 0
        values = of_look(looks, look, metric, gpu)
        if worked == active and values.size:
            count = min(count + 1, FADING)
            mean = _mean(values) if count == 1 else mean + (_mean(values) - mean) / count
    return mean


def instance_minutes(context: Context, fact: Fact, instance: str) -> list[tuple[float, float]]:
    """Return begin, epoch seconds, and mean SM activity of an instance's minutes up to the end of a fact's time."""
    looks = looks_at(context.raw, context.node(fact))
    measured = SERIES[SM] if instance in looks.node.of(SERIES[SM]) else ENGINE
    series = looks.node.of(measured)[instance]
    found = []
    for look in looks.up_to(float(fact["to"])):
        values = of_look(looks, look, measured, instance)
        if values.size and not look.closed:
            first = series.times[np.searchsorted(series.times, look.after + 1e-4, side="right")]
            found.append((float(first), float(values.mean())))
    return found


def instances_of(context: Context, fact: Fact) -> list[str]:
    """Return the instances whose activity is sampled: that of their SMs, or of their engine."""
    node = context.node(fact)
    return sorted(name for name in {*node.of(SERIES[SM]), *node.of(ENGINE)} if ".mig" in name)


def judged_instances(context: Context, fact: Fact) -> dict[str, list[tuple[float, float]]]:
    """Return the minutes of the instances that worked once; of all where none did."""
    known = instances_of(context, fact)
    every = {name: instance_minutes(context, fact, name) for name in known}
    used = {name: found for name, found in every.items() if any(mean >= USED for _, mean in found)}
    return used or every


def newest_of(minutes: list[tuple[float, float]], fact: Fact) -> Floats:
    """Return the means of the minutes that begin in a fact's time."""
    return np.array([mean for begin, mean in minutes if math.floor(begin) >= math.floor(fact["from"])])


def low_instances(context: Context, fact: Fact) -> int:
    """Return how many instances were low in all of their newest minutes, for long enough."""
    judged, parameters = judged_instances(context, fact), context.parameters
    interval_s = context.node(fact).gpu_interval_s
    points = window_points(parameters, interval_s) + lasting_points(parameters, interval_s)
    used = any(mean >= USED for minutes in judged.values() for _, mean in minutes)
    needed = min(math.ceil((points * interval_s if used else IDLE_S) / MINUTE_S - 1e-9), MOST_MINUTES)
    return sum(
        len(minutes) >= needed and all(mean < parameters["threshold_sm"] for _, mean in minutes[-needed:])
        for minutes in judged.values()
    )
