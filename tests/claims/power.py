"""What each GPU of a node draws at work, minute by minute, as docs/rules/HungJob.md tells work from waiting."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tests.claims.context import Raw
from tests.claims.gpu_faults import utilization
from tests.claims.minutes import Minute, Part, minutes_of
from tests.claims.raw import ACTIVE, Flags, Floats, Node
from tests.claims.work import Work

KEPT_MINUTES, LEAST_MINUTES = 15, 5
BUSY, MOVES, STRAYS = 90.0, 5.0, 0.1
SPINS, STILL, OF_LIMIT, FLAT, MOSTLY = 99.0, 1.0, 0.4, 0.05, 0.9


@dataclass
class AtWork:
    """The mean power of a node's GPUs in their newest minutes at work, watts; ``used`` are those that were active."""

    means: dict[str, list[float]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    work: Work | None = None

    @property
    def known(self) -> dict[str, float]:
        """The median of each GPU that has worked long enough."""
        return {gpu: float(np.median(each)) for gpu, each in self.means.items() if len(each) >= LEAST_MINUTES}


@dataclass(frozen=True, slots=True)
class Readings:
    """A GPU's readings in a minute: at the points with a utilization, float64[T] each, and its power."""

    times: Floats
    use: Floats
    memory: Floats
    power: Part


def power_at_work(raw: Raw, node: Node, near_idle: float, until: float) -> dict[str, float]:
    """Return the power at work of each GPU that is known at ``until``; ``near_idle`` is a share of it, 0 to 1."""
    key = ("power at work", node.name, until)
    if key not in raw.cached:
        seen = AtWork()
        for minute in minutes_of(raw, node, until):
            if minute.rows.size and minute.of("PowerWatts"):
                _take(seen, raw, node, minute, near_idle)
        raw.cached[key] = seen.known
    known: dict[str, float] = raw.cached[key]
    return known


def _take(seen: AtWork, raw: Raw, node: Node, minute: Minute, near_idle: float) -> None:
    """Take in a minute: it is one of work where its newest point shows that some GPU of the node works."""
    use, known = utilization(node, minute), seen.known
    seen.used |= {gpu for gpu in use if _of_points(node, minute, "GPUUtilization", gpu)[1].max() >= ACTIVE}
    readings = {gpu: found for gpu in seen.used if (found := _readings(node, minute, gpu)) is not None}
    spinning = {gpu: since for gpu, each in readings.items() if (since := _spins(minute, gpu, each, known, near_idle))}
    is_told = bool(seen.used) and all(gpu in readings and (gpu in known or gpu in spinning) for gpu in seen.used)
    doubtful = set(spinning) if is_told else {*known, *spinning}
    if is_told and not _is_at_work(readings, known, spinning, near_idle, minute.at):
        return
    if _is_started(seen, raw, node, minute):
        for gpu, mean in use.items():
            power = minute.of("PowerWatts").get(gpu)
            if mean >= ACTIVE and gpu not in doubtful and power is not None:
                newest_means = [*seen.means.get(gpu, []), round(float(power.values.mean()), 1)]
                seen.means[gpu] = newest_means[-KEPT_MINUTES:]


def _is_started(seen: AtWork, raw: Raw, node: Node, minute: Minute) -> bool:
    if seen.work is None or not seen.work.started:
        seen.work = raw.work_until(node, minute.at)
    return seen.work.began is not None and minute.at >= seen.work.began


def _of_points(node: Node, minute: Minute, metric: str, gpu: str) -> tuple[Floats, Floats]:
    """Return the times of a minute's points with a utilization of a GPU, and a metric at them."""
    times = node.points.times
    shown = ~np.isnan(node.points.gpus[minute.rows, node.gpus.index(gpu)])
    rows = minute.rows[shown]
    values = np.full(times.size, np.nan)
    series = node.of(metric).get(gpu)
    if series is not None:
        places = np.searchsorted(times, series.times, side="right") - 1
        values[places[places >= 0]] = series.values[places >= 0]
    return times[rows], values[rows]


def _readings(node: Node, minute: Minute, gpu: str) -> Readings | None:
    power = minute.of("PowerWatts").get(gpu)
    times, use = _of_points(node, minute, "GPUUtilization", gpu)
    if power is None or not times.size:
        return None
    return Readings(times, use, _of_points(node, minute, "GPUMemoryUtilization", gpu)[1], power)


def _is_at_work(
    readings: Mapping[str, Readings],
    known: Mapping[str, float],
    spinning: Mapping[str, float],
    near_idle: float,
    newest: float,
) -> bool:
    """Tell whether some GPU shows work as late as the minute's newest point; one that is not known spins."""
    last = [
        _last_work(each, near_idle * known[gpu])
        if gpu in known
        else float(each.times[each.times < spinning[gpu]].max(initial=-math.inf))
        for gpu, each in readings.items()
    ]
    return max(last) >= newest


def _last_work(found: Readings, least: float) -> float:
    """Return when a GPU showed work last: by its use and its memory, or by more than ``least`` watts."""
    moves = (found.use >= BUSY) & (found.memory > MOVES)
    by_use: Flags = moves | ((found.use >= ACTIVE) & (found.use < BUSY))
    by_power: Flags = found.power.values > least
    return max(
        float(times[shows].max(initial=-math.inf)) if np.mean(shows) > STRAYS else -math.inf
        for times, shows in ((found.times, by_use), (found.power.times, by_power))
    )


def _spins(minute: Minute, gpu: str, found: Readings, known: Mapping[str, float], near_idle: float) -> float | None:
    """Return since when a GPU runs a kernel up to the minute's end that moves no memory and draws little power."""
    limit = minute.of("PowerLimitWatts").get(gpu)
    most = near_idle * known[gpu] if gpu in known else None if limit is None else OF_LIMIT * float(limit.values[-1])
    spins = (found.use >= SPINS) & (found.memory < STILL)
    shares = np.array([spins[place:].mean() for place in range(spins.size)])
    begins = np.flatnonzero(spins & (shares >= MOSTLY))
    if most is None or not begins.size:
        return None
    since = float(found.times[begins[0]])
    drawn = found.power.values[found.power.times >= since]
    if not drawn.size or np.mean(drawn <= most) < MOSTLY:
        return None
    busy = _busy_cores(minute, gpu, since, begins_before=begins[0] == 0)
    still = busy < STILL if busy.size else np.abs(drawn - np.median(drawn)) <= FLAT * np.median(drawn)
    return since if np.mean(still) >= MOSTLY else None


def _busy_cores(minute: Minute, gpu: str, since: float, *, begins_before: bool) -> Floats:
    """Return the SM activity of times wholly after then: each reading is of the time since the last one.

    Where the kernel ``begins_before`` the minute, so does the time of its first reading.
    """
    part = minute.of("SMActivityPercent").get(gpu)
    if part is None:
        return np.zeros(0)
    begins = np.append(since if begins_before else -math.inf, part.times[:-1])
    return part.values[(begins >= since) & (part.times >= since)]
