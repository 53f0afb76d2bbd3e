"""When a node was looked at: once for each object of its samples, and once at the end; and what was known by then."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.claims.context import Context, Fact, Raw
from tests.claims.intervals import intervals_of
from tests.claims.raw import ACTIVE, Flags, Floats, Node
from tests.claims.work import WORK_POINTS, WORK_S

MINUTE_S = 60.0
LEAST_POINTS, MOST_POINTS = 20, 2_500
# A window must show the same while it moves on by so many windows.
LASTING = 2

SAMPLED = 0.25


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a node: the points from ``first`` up to, not including, ``end`` are new, ``kept`` are kept so far.

    ``after`` and ``until`` are the newest samples of the object before and of this one, epoch seconds, ``interval_s``
    is the distance of the GPUs' samples as it was known. The newest point of an object waits for the next one;
    ``closed`` is the look at the end, which has it.
    """

    first: int
    end: int
    kept: int
    after: float
    until: float
    interval_s: float
    closed: bool = False


@dataclass(frozen=True)
class Looks:
    """All looks at a node; ``rows`` are the places of its kept points, int64[K]."""

    node: Node
    rows: "np.ndarray[Any, np.dtype[np.int64]]"
    looks: list[Look]

    @property
    def began(self) -> float:
        """When the work began that counts, epoch seconds."""
        return float(self.node.points.times[self.rows[0]]) if self.rows.size else math.nan

    def up_to(self, time: float) -> list[Look]:
        """Return the looks at which no point after a time was complete."""
        points = self.node.points.times
        return [look for look in self.looks if look.end and points[look.end - 1] <= time + 1e-3]

    def column(self, metric: str, gpu: str) -> Floats:
        """Return a series at the kept points, NaN without a sample: float64[K]."""
        values: Floats = at_points(self.node, metric, gpu)[self.rows]
        return values


def at_points(node: Node, metric: str, device: str) -> Floats:
    """Return a series at a node's points, NaN without a sample: float64[T]."""
    values = np.full(node.points.times.size, np.nan)
    series = node.of(metric).get(device)
    if series is not None:
        places = np.searchsorted(node.points.times, series.times, side="right") - 1
        values[places[places >= 0]] = series.values[places >= 0]
    return values


def looks_at(raw: Raw, node: Node) -> Looks:
    """Return when a node was looked at."""
    key = ("looks", node.name)
    if key not in raw.cached:
        raw.cached[key] = _looks_at(raw, node)
    found: Looks = raw.cached[key]
    return found


def _looks_at(raw: Raw, node: Node) -> Looks:
    points, kept = node.points, raw.work(node).kept
    rows = np.flatnonzero(kept)
    known = _known(node, kept)
    looks: list[Look] = []
    begin, after, interval_s = 0, -math.inf, node.gpu_interval_s
    for until, interval_s in zip(np.maximum.accumulate(node.objects).tolist(), intervals_of(node), strict=True):
        end = int(np.searchsorted(points.times, until + 1e-4, side="right")) - 1
        if end < begin:
            continue
        number = int(np.count_nonzero(known <= points.times[end - 1])) if end else 0
        looks.append(Look(begin, end, number, after, until, interval_s))
        begin, after = end, until
    looks.append(Look(begin, points.times.size, rows.size, after, after, interval_s, closed=True))
    return Looks(node, rows, looks)


def _known(node: Node, kept: Flags) -> Floats:
    """Return when it was known of each kept point that it is one: idle ones with the next work, after start-up all."""
    points = node.points
    active = np.flatnonzero(points.active)
    following = np.searchsorted(active, np.flatnonzero(kept))
    times = np.append(points.times[active], math.inf)[following]
    known: Floats = np.maximum(times, started_at(node))
    return known


def started_at(node: Node) -> float:
    """Return when a node had worked for a minute in all, epoch seconds: then its start-up is known to be over."""
    times = node.points.times[node.points.active]
    needed = max(WORK_POINTS, math.ceil(WORK_S / node.gpu_interval_s - 1e-9))
    return float(times[needed - 1]) if times.size >= needed else math.inf


def patience_points(parameters: dict[str, Any], interval_s: float) -> int:
    """Return how many points a rule waits for: at least 20 of its own default, which alone the jobs here have."""
    if parameters.get("patience_s") is not None:
        return max(LEAST_POINTS, round(float(parameters["patience_s"]) / interval_s))
    return int(parameters["patience"])


def window_s(parameters: dict[str, Any], interval_s: float) -> float:
    """Return how long a rule's window is meant to be, seconds."""
    if parameters.get("window_s") is not None:
        return float(parameters["window_s"])
    return max(int(parameters["window"]), LEAST_POINTS) * interval_s


def window_points(parameters: dict[str, Any], interval_s: float) -> int:
    """Return how many points a rule's window has."""
    return min(max(1, LEAST_POINTS, round(window_s(parameters, interval_s) / interval_s)), MOST_POINTS)


def lasting_points(parameters: dict[str, Any], interval_s: float) -> int:
    """Return for how many points a rule must see the same."""
    return max(1, round(LASTING * window_s(parameters, interval_s) / interval_s))


def is_sampled(values: Floats) -> bool:
    """Tell whether a window has numbers enough."""
    return int(np.count_nonzero(~np.isnan(values))) >= max(LEAST_POINTS, SAMPLED * values.size)


def quantile(values: Floats, share: float) -> float:
    """Return a quantile of what are numbers; NaN without any."""
    numbers = values[~np.isnan(values)]
    return float(np.quantile(numbers, share)) if numbers.size else math.nan


def used_so_far(looks: Looks, look: Look) -> list[str]:
    """Return the GPUs that were active at a look or before."""
    points = looks.node.points
    ever = np.any(np.nan_to_num(points.gpus[: look.end], nan=-1.0) >= ACTIVE, axis=0)
    return [gpu for gpu, used in zip(looks.node.gpus, ever.tolist(), strict=True) if used]


def paid_share(looks: Looks, look: Look, lost_s: float) -> float:
    """Return lost seconds of a node as a share of its time up to a look."""
    times = looks.node.points.times
    paid = float(times[look.end - 1]) - float(times[0]) + look.interval_s
    return min(max(lost_s / paid, 0.0), 1.0)


def is_same_point(context: Context, fact: Fact, onset: float) -> bool:
    """Tell whether a fact begins at a point: the samples of one may lie a hundredth of the interval apart."""
    return abs(onset - float(fact["from"])) <= 0.01 * (1.0 + context.node(fact).interval_s)
