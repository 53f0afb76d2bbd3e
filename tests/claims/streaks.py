"""For how long each GPU of a node has been of one kind, look by look, as LowGPUUtilization's page says it."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.claims.context import Context, Fact
from tests.claims.looks import (
    Look,
    Looks,
    is_sampled,
    lasting_points,
    looks_at,
    paid_share,
    patience_points,
    quantile,
    used_so_far,
    window_points,
)
from tests.claims.raw import Floats, Node

UNDER, FLUCTUATING = "under", "fluctuating"
MARGIN = 5.0
COSTLY = 0.15
SURELY = 0.999
WHOLE = 100.0


@dataclass
class Streak:
    """Since when a GPU is of a kind: ``since`` of kept points seen so far, ``begun`` of those that show it."""

    kind: str
    since: int
    begun: int
    onset: float
    lost: float = 0.0
    points: int = 0

    @property
    def cost(self) -> float:
        """Share of the time that the dips leave unused."""
        return self.lost / self.points if self.points else 0.0

    @property
    def is_costly(self) -> bool:
        """Whether the dips cost enough, and more than chance makes of half as many."""
        by_chance = _chance(self.points * COSTLY / 2.0)
        return self.kind == UNDER or (self.cost >= COSTLY and self.lost > by_chance)

    def lasts(self, kept: int, *, closed: bool) -> int:
        """Return for how many points it has lasted; at the end from its beginning on."""
        return kept - (self.begun if closed else self.since)


def _chance(mean: float) -> int:
    """Return the least count that a Poisson variable of this mean exceeds once in a thousand times."""
    count, total = 0, math.exp(-mean)
    while total < SURELY:
        count += 1
        total += math.exp(count * math.log(mean) - mean - math.lgamma(count + 1.0))
    return count


@dataclass
class Streaks:
    """Follows the GPUs of a node through its looks."""

    looks: Looks
    parameters: dict[str, Any]
    held: dict[str, Streak] = field(default_factory=dict)
    wasted: dict[str, float] = field(default_factory=dict)
    fresh_from: int = 0

    def __post_init__(self) -> None:
        """Take what does not change from look to look."""
        self.window = self.needed = self.patience = 0
        self.values = {gpu: self.looks.column("GPUUtilization", gpu) for gpu in self.looks.node.gpus}
        self.times = self.looks.node.points.times[self.looks.rows]

    def take(self, look: Look) -> None:
        """Go on with a look."""
        self.window = window_points(self.parameters, look.interval_s)
        self.needed = lasting_points(self.parameters, look.interval_s)
        self.patience = patience_points(self.parameters, look.interval_s)
        before, self.held = self.held, {}
        for gpu in used_so_far(self.looks, look):
            kept = self.values[gpu][: look.kept]
            newest = kept[-self.window :]
            if int(np.count_nonzero(~np.isnan(kept))) <= self.patience or not is_sampled(newest):
                continue
            kind = self._kind(newest, before.get(gpu), look.kept)
            if kind is not None:
                self.held[gpu] = self._streak(gpu, kind, before.get(gpu), look.kept)
        self.fresh_from = look.kept

    def _kind(self, newest: Floats, before: Streak | None, kept: int) -> str | None:
        found = before.kind if before is not None and kept - before.since >= self.needed and before.is_costly else None
        if quantile(newest, 0.95) < self.parameters["threshold_p95"] + (MARGIN if found == UNDER else 0.0):
            return UNDER
        least = self.parameters["threshold_p5"]
        if quantile(newest, 0.05) >= least + (MARGIN if found == FLUCTUATING else 0.0):
            return None
        below = newest[~np.isnan(newest)] < least + (MARGIN if found else 0.0)
        dips = int(below[0]) + int(np.count_nonzero(below[1:] & ~below[:-1]))
        return FLUCTUATING if dips > 1 else None

    def _streak(self, gpu: str, kind: str, before: Streak | None, kept: int) -> Streak:
        newest = self.values[gpu][:kept][-self.window :]
        busy = quantile(newest, 0.95)
        if before is not None and before.kind == kind:
            streak, added = before, self.values[gpu][self.fresh_from : kept]
        else:
            streak, added = Streak(kind, kept, *self._onset(gpu, kind, kept)), newest
            if kind == UNDER and streak.begun == 0:
                self.wasted[gpu] = max(_undone(self.values[gpu][:kept]) - _undone(newest), 0.0)
        dips = added[added < busy / 2.0]
        cost = float((1.0 - dips / busy).sum()) if dips.size else 0.0
        streak.lost += cost
        streak.points += added.size
        wasted = cost if kind == FLUCTUATING else float(np.nansum(WHOLE - added)) / WHOLE
        self.wasted[gpu] = self.wasted.get(gpu, 0.0) + wasted
        return streak

    def _onset(self, gpu: str, kind: str, kept: int) -> tuple[int, float]:
        values, began = self.values[gpu][:kept], self.looks.began
        if kind == UNDER and quantile(np.floor(values), 0.95) < self.parameters["threshold_p95"]:
            return 0, began
        first = max(kept - self.window, 0)
        if kind == FLUCTUATING:
            first += int(np.flatnonzero(values[first:] < self.parameters["threshold_p5"])[0])
        return first, float(self.times[first])

    def fired(self, look: Look, *, closed: bool) -> list[str]:
        """Return the GPUs that have been of a kind for long enough, and at enough cost."""
        found = [
            gpu
            for gpu, streak in self.held.items()
            if streak.is_costly and streak.lasts(look.kept, closed=closed) >= self.needed
        ]
        used, interval_s = used_so_far(self.looks, look), look.interval_s
        lost_s = sum(self.wasted[gpu] for gpu in found) * interval_s / max(len(used), 1)
        if closed and paid_share(self.looks, look, lost_s) < COSTLY:
            return [gpu for gpu in found if look.kept - self.held[gpu].since >= self.needed]
        return found


def _undone(values: Floats) -> float:
    return float(np.nansum(WHOLE - np.floor(values))) / WHOLE


def streaks_at(context: Context, fact: Fact) -> tuple[Streaks, Look, bool]:
    """Return the streaks as of the time of a finding, the look at that time, and whether it is the one at the end."""
    told = context.first("gpus_affected")
    if told is None:
        raise KeyError("gpus_affected")
    node: Node = context.node(told)
    closed, until = context.first("stream_end") is not None, float(told["to"])
    key = ("streaks", node.name, until, closed)
    if key not in context.raw.cached:
        looks = looks_at(context.raw, node)
        streaks = Streaks(looks, context.parameters)
        chosen = [look for look in looks.up_to(until) if closed or not look.closed]
        for look in chosen:
            streaks.take(look)
        context.raw.cached[key] = streaks, chosen[-1], closed
    found: tuple[Streaks, Look, bool] = context.raw.cached[key]
    return found
