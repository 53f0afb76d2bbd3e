"""Which points of a node are of work: without start-up, pauses and the tail, as docs/rules/README.md defines them."""

from dataclasses import dataclass

import numpy as np

from tests.claims.raw import Flags, Floats, Node, Points

PAUSE_S, PAUSE_POINTS = 60.0, 3
WORK_S, WORK_POINTS = 60.0, 3
UNSEEN_S = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """Points from ``first`` up to ``last``, both included, that are all active or all idle, without a gap."""

    first: int
    last: int
    active: bool
    after_gap: bool


def runs_of(node: Node) -> list[Run]:
    """Return the runs of points that have samples of GPUs, by their places in ``node.points``."""
    points = node.points
    rows = np.flatnonzero(points.seen)
    found: list[Run] = []
    longest = max(UNSEEN_S, 3.0 * node.interval_s)
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


def work_of(node: Node) -> Work:
    """Return which points of a node are kept."""
    points, runs = node.points, runs_of(node)
    kept = np.zeros(points.times.size, dtype=np.bool_)
    pauses: list[tuple[float, float]] = []
    waiting: list[Run] = []
    total, began, started = 0, None, False
    idle: list[Run] = []
    for run in runs:
        if run.after_gap:
            idle = []
        if not run.active:
            idle.append(run)
            if not started and _is_pause(idle, points, float(points.times[run.last]), node):
                waiting, began = [], None
            continue
        start = float(points.times[run.first])
        pause = bool(idle) and _is_pause(idle, points, start, node)
        if pause and started:
            pauses.append((float(points.times[idle[0].first]), start))
        if pause and not started:
            waiting, began = [], None
        between, idle = ([] if pause else idle), []
        if not started:
            began = start if began is None else began
            waiting += [*(between if waiting else []), run]
            total += _size(points, run)
            started = total >= WORK_POINTS and total * node.interval_s >= WORK_S
            if not started:
                continue
            between, run_list = [], waiting
        else:
            run_list = [*between, run]
        for each in run_list:
            kept[each.first : each.last + 1] = True
    if not started and began is not None:
        for each in waiting:
            kept[each.first : each.last + 1] = True
    return Work(kept & points.seen, began, pauses)


def _size(points: Points, run: Run) -> int:
    return int(np.count_nonzero(points.seen[run.first : run.last + 1]))


def _is_pause(idle: list[Run], points: Points, now: float, node: Node) -> bool:
    del node
    number = sum(_size(points, run) for run in idle)
    return number >= PAUSE_POINTS and now - float(points.times[idle[0].first]) > PAUSE_S


def lasting(pauses: list[tuple[float, float]], shortest_s: float, recur_s: float, number: int) -> list[bool]:
    """Tell which pauses recur: ``number`` of them, or more, ended within ``recur_s``."""
    marks = [False] * len(pauses)
    ends = [np.floor(end / 60.0) * 60.0 for _, end in pauses]
    for place in range(number - 1, len(pauses)):
        if ends[place - number + 1] > ends[place] - recur_s and pauses[place][1] - pauses[place][0] > shortest_s:
            marks[place - number + 1 : place + 1] = [True] * number
    return marks


def within(times: Floats, start: float | None, end: float | None) -> Flags:
    """Tell which times lie from ``start`` to ``end``, both included, to a millisecond."""
    chosen = np.ones(times.size, dtype=np.bool_)
    if start is not None:
        chosen &= times >= start - 2e-3
    if end is not None:
        chosen &= times <= end + 2e-3
    return chosen
