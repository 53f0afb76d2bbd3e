"""Which points of a node are of work: without start-up, pauses and the tail, as docs/rules/README.md defines them."""

import math
from dataclasses import dataclass, field

import numpy as np

from tests.claims.raw import Flags, Floats, Node, Points

PAUSE_S, PAUSE_POINTS = 60.0, 3
CHANCE, MOST_BY_CHANCE = 0.001, 60
WORK_S, WORK_POINTS = 60.0, 3
UNSEEN_S = 60.0
# Times are given to the millisecond: so the distance of three intervals may differ from them by as much.
CLOCK_S = 1e-3


@dataclass(frozen=True, slots=True)
class Run:
    """Points from ``first`` up to ``last``, both included, that are all active or all idle, without a gap."""

    first: int
    last: int
    active: bool
    after_gap: bool


def runs_of(node: Node, until: float = math.inf) -> list[Run]:
    """Return the runs of points up to then that have samples of GPUs, by their places in ``node.points``."""
    points = node.points
    rows = np.flatnonzero(points.seen & (points.times <= until))
    found: list[Run] = []
    longest = max(UNSEEN_S, 3.0 * node.gpu_interval_s) + CLOCK_S
    for place, row in enumerate(rows.tolist()):
        gap = place > 0 and points.times[row] - points.times[rows[place - 1]] > longest
        active = bool(points.active[row])
        if found and found[-1].active == active and not gap:
            found[-1] = Run(found[-1].first, row, active, found[-1].after_gap)
        else:
            found.append(Run(row, row, active, gap))
    return found


@dataclass(frozen=True, slots=True)
class Work:
    """A node's work: the kept points bool[T], when it began, and its pauses as (begin, end of the idle time)."""

    kept: Flags
    began: float | None
    pauses: list[tuple[float, float]]
    # The beginnings of idle times since then that may be readings of busy GPUs.
    chance: frozenset[float]
    # Whether start-up is over: without that, what is kept may turn out to be of it.
    started: bool


@dataclass
class _Sorter:
    """Sorts the runs of a node, one after another, into those that are kept and those that are not.

    ``before`` counts the points that are kept so far, or wait for the end of start-up, ``idle_before`` the idle ones.
    """

    points: Points
    interval_s: float
    kept: list[Run] = field(default_factory=list)
    waiting: list[Run] = field(default_factory=list)
    idle: list[Run] = field(default_factory=list)
    pauses: list[tuple[float, float]] = field(default_factory=list)
    chance: set[float] = field(default_factory=set)
    active: int = 0
    before: int = 0
    idle_before: int = 0
    began: float | None = None
    started: bool = False

    def take(self, run: Run) -> None:
        """Take in the next run."""
        if run.after_gap:
            self.idle = []
        if not run.active:
            self.idle.append(run)
            if not self.started and self._pauses(float(self.points.times[run.last])):
                self._forget()
            return
        start = float(self.points.times[run.first])
        between, is_pause = self.idle, bool(self.idle) and self._pauses(start)
        if between and self._is_chance():
            self.chance.add(float(self.points.times[between[0].first]))
        if is_pause:
            self._pause(start)
        self.idle = []
        self._work(run, [] if is_pause else between, start)

    def _pauses(self, now: float) -> bool:
        number = sum(_size(self.points, run) for run in self.idle)
        long = number >= PAUSE_POINTS and now - float(self.points.times[self.idle[0].first]) > PAUSE_S
        return long and not self._is_chance()

    def _is_chance(self) -> bool:
        """Tell whether the points that count, or wait for the end of start-up, make the idle time likely by chance."""
        number = sum(_size(self.points, run) for run in self.idle)
        likely = ((self.idle_before + 1) / (self.before + 2)) ** number > CHANCE
        return PAUSE_POINTS <= number <= MOST_BY_CHANCE and likely

    def _forget(self) -> None:
        self.waiting, self.began, self.before, self.idle_before = [], None, 0, 0

    def _count(self, runs: list[Run]) -> None:
        self.before += sum(_size(self.points, run) for run in runs)
        self.idle_before += sum(_size(self.points, run) for run in runs if not run.active)

    def _pause(self, end: float) -> None:
        if self.started:
            self.pauses.append((float(self.points.times[self.idle[0].first]), end))
        else:
            self._forget()

    def _work(self, run: Run, between: list[Run], start: float) -> None:
        added = [*(between if self.started or self.waiting else []), run]
        self._count(added)
        if self.started:
            self.kept += added
            return
        self.began = start if self.began is None else self.began
        self.waiting += added
        self.active += _size(self.points, run)
        if self.active >= WORK_POINTS and self.active * self.interval_s >= WORK_S:
            self.started, self.kept = True, self.waiting


def work_of(node: Node, until: float = math.inf) -> Work:
    """Return which points of a node are kept, as its points up to ``until``, epoch seconds, show it."""
    sorter = _Sorter(node.points, node.gpu_interval_s)
    for run in runs_of(node, until):
        sorter.take(run)
    kept = np.zeros(node.points.times.size, dtype=np.bool_)
    for run in sorter.kept if sorter.started else sorter.waiting if sorter.began is not None else []:
        kept[run.first : run.last + 1] = True
    return Work(kept & node.points.seen, sorter.began, sorter.pauses, frozenset(sorter.chance), sorter.started)


def _size(points: Points, run: Run) -> int:
    return int(np.count_nonzero(points.seen[run.first : run.last + 1]))


def lasting(pauses: list[tuple[float, float]], shortest_s: float, recur_s: float, number: int) -> list[int | None]:
    """Tell with which pause each one recurs: where ``number`` of them, or more, ended within ``recur_s``; else None."""
    found: list[int | None] = [None] * len(pauses)
    ends = [np.floor(end / 60.0) * 60.0 for _, end in pauses]
    for place in range(number - 1, len(pauses)):
        if ends[place - number + 1] > ends[place] - recur_s and pauses[place][1] - pauses[place][0] > shortest_s:
            for each in range(place - number + 1, place + 1):
                found[each] = place if found[each] is None else found[each]
    return found


def within(times: Floats, start: float | None, end: float | None) -> Flags:
    """Tell which times lie from ``start`` to ``end``, both included, to a millisecond."""
    chosen = np.ones(times.size, dtype=np.bool_)
    if start is not None:
        chosen &= times >= start - 2e-3
    if end is not None:
        chosen &= times <= end + 2e-3
    return chosen
