"""Recomputes the facts of BatchSize."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.claims.context import Context, Expected, Fact, Recompute
from tests.claims.looks import (
    Look,
    Looks,
    is_same_point,
    is_sampled,
    looks_at,
    paid_share,
    patience_points,
    quantile,
    used_so_far,
    window_points,
)
from tests.claims.low import FACTS as LOW
from tests.claims.raw import ACTIVE, Floats, Node
from tests.claims.work import within

GAP = 2.1
SERIES = ("GPUUtilization", "GPUMemoryUtilization")


@dataclass
class Low:
    """Follows a node through its looks: since which kept point all of it is low, and at how many it was judged."""

    looks: Looks
    parameters: dict[str, Any]
    begun: int | None = None
    onset: float = math.nan
    judged: int = 0
    low: int = 0
    kept: int = 0

    def __post_init__(self) -> None:
        """Take what does not change from look to look."""
        self.cores = self.looks.node.points.cpu_mean[self.looks.rows]
        self.gpus = {gpu: [self.looks.column(name, gpu) for name in SERIES] for gpu in self.looks.node.gpus}
        self.limits = [
            self.parameters[f"{name}_threshold_p95"] for name in ("cpu", "gpu", "gpu_memory")
        ]  # of cores, of utilization, of memory activity

    def take(self, look: Look) -> None:
        """Go on with a look."""
        window_size = window_points(self.parameters, look.interval_s)
        used, fresh = used_so_far(self.looks, look), look.kept - self.kept
        self.kept = look.kept
        window = slice(max(look.kept - window_size, 0), look.kept)
        columns = [(self.cores[window], self.limits[0])]
        columns += [
            (values[window], limit)
            for gpu in used
            for values, limit in zip(self.gpus[gpu], self.limits[1:], strict=True)
        ]
        judged = (
            look.kept > patience_points(self.parameters, look.interval_s)
            and bool(used)
            and all(is_sampled(values) for values, _ in columns)
        )
        self.judged += fresh if judged else 0
        if not judged or any(quantile(values, 0.95) >= limit for values, limit in columns):
            self.begun = None
            return
        self.low += fresh
        if self.begun is None:
            self._begin(used, window)

    def _begin(self, used: list[str], window: slice) -> None:
        """Say since when: where all points of work so far were low, since the work began, else since the window did."""
        highest = max(quantile(np.floor(self.gpus[gpu][0][: self.kept]), 0.95) for gpu in used)
        self.begun = 0 if highest < self.limits[1] else window.start
        self.onset = float(self.looks.node.points.times[self.looks.rows[self.begun]])

    def unused_s(self, look: Look) -> float:
        """What the points left unused, seconds of the node: no more than those at which all was low."""
        if not self.judged:
            return 0.0
        used = [gpu for gpu in self.gpus if (self.gpus[gpu][0][: self.kept] >= ACTIVE).any()]
        undone = sum(float(np.nansum(100.0 - np.floor(self.gpus[gpu][0][: self.kept]))) for gpu in used)
        points = min(undone / 100.0 / max(len(used), 1), self.low / self.judged * self.kept)
        return points * look.interval_s


def _low(context: Context, fact: Fact) -> tuple[Low, Look]:
    """Return what was known of a node as of the time of a finding."""
    told = context.first("unused_share")
    if told is None:
        raise KeyError("unused_share")
    node, until = context.node(told), float(told["to"])
    key = ("batch", node.name, until)
    if key not in context.raw.cached:
        looks = looks_at(context.raw, node)
        low, chosen = Low(looks, context.parameters), looks.up_to(until)
        for look in chosen:
            low.take(look)
        context.raw.cached[key] = low, chosen[-1]
    found: tuple[Low, Look] = context.raw.cached[key]
    return found


def _kept_of(context: Context, fact: Fact, metric: str, device: str) -> Floats:
    looks = looks_at(context.raw, context.node(fact))
    chosen = within(looks.node.points.times[looks.rows], fact.get("from"), fact.get("to"))
    return looks.column(metric, device)[chosen]


def _p95_of_gpu(metric: str) -> Recompute:
    """Return the 95th percentile of the named GPU; NaN where that of another one in use is higher."""

    def recompute(context: Context, fact: Fact) -> Expected:
        node = context.node(fact)
        found = {gpu: quantile(_kept_of(context, fact, metric, gpu), 0.95) for gpu in node.used_gpus}
        named = found.get(fact["device"], math.nan)
        return named if named >= max(found.values(), default=math.nan) - 0.1 else math.nan

    return recompute


def _p95_of_cores(context: Context, fact: Fact) -> Expected:
    node = context.node(fact)
    chosen = context.raw.work(node).kept & within(node.points.times, fact.get("from"), fact.get("to"))
    return quantile(node.points.cpu_mean[chosen], 0.95)


def _window(context: Context, fact: Fact) -> Expected:
    """Return for how long the window's points stand: each until the next one, over no pause, within the samples."""
    _, look = _low(context, fact)
    node: Node = context.node(fact)
    kept = context.raw.work(node).kept & within(node.points.times, fact["from"], fact["to"])
    times = node.points.times[kept]
    distances = np.diff(times)
    usual = float(np.median(distances)) if distances.size else node.gpu_interval_s
    goes_on = max(look.until - float(times[-1]), look.interval_s)
    return float(np.where(distances > GAP * usual, usual, distances).sum()) + min(usual, goes_on)


def _points_low(context: Context, fact: Fact) -> Expected:
    low, look = _low(context, fact)
    return math.nan if low.begun is None else float(look.kept - low.begun)


def _low_time(context: Context, fact: Fact) -> Expected:
    """Return for how long it was low, from the time that showed it first."""
    low, _ = _low(context, fact)
    return float(fact["to"]) - low.onset if is_same_point(context, fact, low.onset) else math.nan


def _unused_share(context: Context, fact: Fact) -> Expected:
    low, look = _low(context, fact)
    return paid_share(low.looks, look, low.unused_s(look))


FACTS: dict[str, Recompute] = {
    "p95_utilization_at_work": _p95_of_gpu("GPUUtilization"),
    "p95_memory_activity_at_work": _p95_of_gpu("GPUMemoryUtilization"),
    "p95_core_utilization_at_work": _p95_of_cores,
    "samples": LOW["samples_at_work"],
    "window": _window,
    "points_low": _points_low,
    "low_time": _low_time,
    "unused_share": _unused_share,
}
