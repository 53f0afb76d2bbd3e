"""Recomputes the facts of CPUBottleneck and IOBottleneck."""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tests.claims.context import Context, Expected, Fact, Recompute, mean_of
from tests.claims.raw import Flags, Floats, Node
from tests.claims.work import CLOCK_S, lasting, within

PAUSE_S, RECUR_S, RECURRENCES = 60.0, 7_200.0, 3
UNUSED_S = 600.0
GOOD = 80.0
WINDOW_MINUTES = 30


@dataclass
class Waits:
    """What a rule on bottlenecks counts of a node."""

    node: Node
    began: float | None
    rule: str
    parameters: dict[str, float]

    @cached_property
    def core(self) -> tuple[Floats, Floats, Floats, float]:
        """The core nearest its limit, the two measures of a minute, and the limit."""
        points = self.node.points
        if self.rule == "CPUBottleneck":
            return points.cpu_highest, points.cpu_mean, points.cores_full, self.parameters["cpu_threshold"]
        return points.io_highest, points.io_mean, points.io_highest, self.parameters["io_threshold"]

    @cached_property
    def used(self) -> Flags:
        """Which GPUs are in use at each point: once active, and not idle for ten minutes while others worked."""
        points = self.node.points
        busy = np.nan_to_num(points.gpus, nan=-1.0) >= 10.0
        found = np.zeros(points.gpus.shape, dtype=np.bool_)
        unused = np.zeros(points.gpus.shape[1])
        ever = np.zeros(points.gpus.shape[1], dtype=np.bool_)
        for minute in np.unique(self.known):
            rows = np.flatnonzero(self.known == minute)
            ever |= busy[rows].any(axis=0)
            found[rows] = ever & (unused * self.node.gpu_interval_s < UNUSED_S)
            for row in rows:
                if points.active[row]:
                    unused = np.where(busy[row], 0.0, unused + 1.0)
        return found

    @cached_property
    def judged(self) -> Flags:
        """Which points count: those of work, short idle times, and pauses that recur."""
        points = self.node.points
        highest = self.core[0]
        chosen = ~np.isnan(highest) & ~np.isnan(np.where(self.used, points.gpus, np.nan)).all(axis=1)
        if self.began is None:
            return np.zeros(chosen.size, dtype=np.bool_)
        chosen &= points.times >= self.began - 1e-3
        active = np.flatnonzero(points.active & (points.times >= self.began - 1e-3))
        if not active.size:
            return np.zeros(chosen.size, dtype=np.bool_)
        chosen[active[-1] + 1 :] = False
        for begin, end, counted in self.pauses:
            if counted is None:
                chosen[begin:end] = False
        return chosen

    @cached_property
    def pauses(self) -> list[tuple[int, int, int | None]]:
        """Its pauses as rows, up to the one after the last, and the row with whose minute each counts, if it does."""
        times = self.node.points.times
        active = np.flatnonzero(
            self.node.points.active & (times >= (math.inf if self.began is None else self.began) - 1e-3)
        )
        longest = max(PAUSE_S, 2.0 * self.node.gpu_interval_s)
        idle = [(int(one) + 1, int(next_)) for one, next_ in pairwise(active.tolist()) if next_ > one + 1]
        rows = [(begin, end) for begin, end in idle if times[end] - times[begin] > longest + CLOCK_S]
        counted = lasting(
            [(float(times[begin]), float(times[end])) for begin, end in rows], longest, RECUR_S, RECURRENCES
        )
        return [
            (begin, end, None if place is None else rows[place][1])
            for (begin, end), place in zip(rows, counted, strict=True)
        ]

    @cached_property
    def known(self) -> Floats:
        """The minute with which each point is counted: in which the next one is written."""
        return np.floor(np.append(self.node.points.times[1:], np.inf) / 60.0)

    @cached_property
    def parts(self) -> list[Flags]:
        """The judged points by minutes; those of a pause that counts late are apart, where their minute was over."""
        numbers = np.zeros(self.judged.size, dtype=np.int64)
        newest = -math.inf
        for number, (begin, end, counted) in enumerate(self.pauses, 1):
            if counted is None:
                continue
            before = self.minutes[self.node.points.active & (self.known < self.known[counted])]
            newest = max(newest, float(before.max(initial=-math.inf)))
            rows = np.arange(begin, end)
            numbers[rows[self.minutes[rows] <= newest - WINDOW_MINUTES]] = number
            newest = max(newest, float(self.minutes[end - 1]))
        keys = np.unique(np.stack([self.minutes, numbers])[:, self.judged], axis=1).T
        return [self.judged & (self.minutes == minute) & (numbers == number) for minute, number in keys]

    @cached_property
    def low(self) -> Flags:
        """In which points GPUs in use are low, so many that it counts."""
        number = self.used.sum(axis=1)
        low: Flags = np.count_nonzero(self._below, axis=1) >= self.parameters["gpu_fraction"] * number
        return low

    @property
    def _below(self) -> Flags:
        below: Flags = self.used & (np.nan_to_num(self.node.points.gpus, nan=1e9) < self.parameters["gpu_threshold"])
        return below

    @cached_property
    def hits(self) -> Flags:
        """Which points are bottlenecks."""
        return self.judged & self.low & (np.nan_to_num(self.core[0], nan=-1.0) > self.core[3])

    @cached_property
    def gpu(self) -> Floats:
        """Mean of the GPUs in use at each point."""
        values = np.where(self.used, self.node.points.gpus, np.nan)
        some = ~np.isnan(values).all(axis=1)
        means = np.full(some.size, np.nan)
        means[some] = np.nanmean(values[some], axis=1)
        return means

    @cached_property
    def minutes(self) -> Floats:
        """The minute of each point."""
        return np.floor(self.node.points.times / 60.0)

    @cached_property
    def counted(self) -> Floats:
        """When each point counts: an idle one with the next work, one of a pause with that which makes it recur."""
        times = self.node.points.times
        active = np.flatnonzero(self.node.points.active)
        found = np.append(times[active], np.inf)[np.searchsorted(active, np.arange(times.size))]
        for begin, end, with_ in self.pauses:
            found[begin:end] = np.inf if with_ is None else times[with_]
        return found

    def slow(self, until: float | None) -> Flags:
        """Return which judged points lie in minutes that were slow by a time, by what had counted then."""
        then = within(self.counted, None, until)
        found = np.zeros(self.judged.size, dtype=np.bool_)
        for rows in (part & then for part in self.parts):
            found |= rows if rows.any() and self._is_slow(rows) else False
        return found

    def _is_slow(self, rows: Flags) -> bool:
        gpu, level, peak = (mean_of(values[rows]) for values in (self.gpu, *self.core[1:3]))
        if gpu >= GOOD:
            return False
        values = self.node.points.gpus
        number = np.maximum(self.used.sum(axis=1), 1)
        undone = np.where(self._below, 100.0 - np.nan_to_num(values), 0.0).sum(axis=1) / number
        lost = float(undone[rows & self.hits].sum())
        if lost >= 0.5 * float((100.0 - self.gpu[rows]).sum()):
            return True
        if self.rule == "CPUBottleneck":
            return level >= 80.0 or peak >= int(number[rows].max()) + 1.0
        return peak > self.core[3] or level >= 15.0

    def found(self, kind: str, until: float | None) -> Flags:
        """Return which points a finding of a kind describes, by a time."""
        return self.hits if kind.startswith("waits") else self.slow(until)


def waits_of(context: Context, fact: Fact) -> Waits:
    node, raw = context.node(fact), context.raw
    key = (context.rule, node.name)
    if key not in raw.cached:
        raw.cached[key] = Waits(node, raw.work(node).began, context.rule, context.parameters)
    found: Waits = raw.cached[key]
    return found


def _in_time(context: Context, fact: Fact) -> tuple[Waits, Flags]:
    waits = waits_of(context, fact)
    time = within(waits.node.points.times, fact.get("from"), fact.get("to"))
    return waits, time & within(waits.counted, None, fact.get("to"))


def _samples(context: Context, fact: Fact) -> Expected:
    waits, time = _in_time(context, fact)
    return float((waits.judged & time).sum())


def _samples_found(context: Context, fact: Fact) -> Expected:
    waits, time = _in_time(context, fact)
    return float((waits.found(context.finding["finding_kind"], fact.get("to")) & time).sum())


def _share(context: Context, fact: Fact) -> Expected:
    waits, time = _in_time(context, fact)
    judged = int((waits.judged & time).sum())
    return (
        float((waits.found(context.finding["finding_kind"], fact.get("to")) & time).sum()) / judged
        if judged
        else math.nan
    )


def _of_slow(place: int | None) -> Recompute:
    """Return what a measure is over the slow minutes of a fact's time: of the cores, or, without a place, the GPUs."""

    def recompute(context: Context, fact: Fact) -> Expected:
        waits, time = _in_time(context, fact)
        values = waits.gpu if place is None else (waits.core[1] if place == 1 else waits.core[2])
        return mean_of(values[waits.slow(fact.get("to")) & time])

    return recompute


def _found(context: Context, fact: Fact) -> Expected:
    waits, time = _in_time(context, fact)
    return mean_of(waits.core[1][waits.hits & time])


def _core_limit(context: Context, fact: Fact) -> Expected:
    waits, time = _in_time(context, fact)
    rows = np.flatnonzero(waits.hits & time)
    return float(waits.core[0][rows[-1]]) if rows.size else math.nan


FACTS: dict[str, Recompute] = {
    "share_of_samples": _share,
    "samples_found": _samples_found,
    "samples": _samples,
    "window": lambda *_: 60.0 * WINDOW_MINUTES,
    "mean_utilization_slow": _of_slow(None),
    "mean_utilization_newest_slow": _of_slow(None),
    "mean_core_utilization": _of_slow(1),
    "mean_io_wait": _of_slow(1),
    "cores_full": _of_slow(2),
    "highest_io_wait": _of_slow(2),
    "mean_core_utilization_found": _found,
    "mean_io_wait_found": _found,
    "core_limit": _core_limit,
    "low_limit": lambda context, _: float(context.parameters["gpu_threshold"]),
    "gpus_low": lambda context, _: float(context.parameters["gpu_fraction"]),
}
