"""When each operation ends if all last as long as given, by what each waits for."""

from dataclasses import dataclass

import numpy as np

from trainguard.formats.operations import Floats, Ints
from trainguard.stragglers.links import Links
from trainguard.stragglers.operations import Operations


@dataclass(frozen=True, slots=True)
class _Level:
    """Groups that wait for earlier levels alone: places of members, of what they wait for, and where each begins."""

    members: slice
    waits: slice
    begins: Ints
    group: Ints


class Replay:
    """Operations in an order in which each comes after all that it waits for."""

    def __init__(self, ops: Operations, links: Links) -> None:
        group = np.unique(links.group, return_inverse=True)[1]
        level, self.circular = _levels(group, links)
        by_group = np.lexsort((group, level[group]))
        self._order = by_group
        place = np.empty(len(ops), np.int64)
        place[by_group] = np.arange(len(ops))
        waits = np.lexsort((group[links.after], level[group[links.after]]))
        self._waits = place[links.before[waits]]
        waiting = group[links.after[waits]]
        self._levels = _slices(level, group[by_group], waiting)
        self._steps = np.argsort(ops.step[by_group], kind="stable")
        self._begins = np.searchsorted(ops.step[by_group][self._steps], np.arange(len(ops.steps)))

    def steps(self, durations: Floats) -> Floats:
        """Return how long each step takes; of operations of a group ``durations`` count from the last that starts."""
        lasting = durations[self._order]
        ends = np.empty_like(lasting)
        for level in self._levels:
            if len(level.begins):
                ready = np.maximum.reduceat(ends[self._waits[level.waits]], level.begins)
                ends[level.members] = ready[level.group] + lasting[level.members]
            else:
                ends[level.members] = lasting[level.members]
        found: Floats = np.maximum.reduceat(ends[self._steps], self._begins)
        return found


def _levels(group: Ints, links: Links) -> tuple[Ints, Ints]:
    """Return for each group one more than the level of all that it waits for, and the rows of groups in a circle."""
    count = int(group.max(initial=-1)) + 1
    before, after = group[links.before], group[links.after]
    order = np.argsort(before, kind="stable")
    targets = after[order]
    begins = np.searchsorted(before[order], np.arange(count + 1))
    left = np.bincount(after, minlength=count)
    level = np.full(count, -1)
    ready, depth = np.flatnonzero(left == 0), 0
    while len(ready):
        level[ready] = depth
        sizes = begins[ready + 1] - begins[ready]
        starts = np.repeat(begins[ready] - (np.cumsum(sizes) - sizes), sizes)
        reached, times = np.unique(targets[starts + np.arange(len(starts))], return_counts=True)
        left[reached] -= times
        ready, depth = reached[left[reached] == 0], depth + 1
    return level, np.flatnonzero(level[group] < 0)


def _slices(level: Ints, members: Ints, waiting: Ints) -> list[_Level]:
    """Return the levels; groups of members and of what waits are sorted by level."""
    depths = np.arange(int(level.max(initial=-1)) + 2)
    of_members = np.searchsorted(level[members], depths)
    of_waits = np.searchsorted(level[waiting], depths)
    found = []
    for at in range(len(depths) - 1):
        inside, behind = slice(of_members[at], of_members[at + 1]), slice(of_waits[at], of_waits[at + 1])
        groups, begins = waiting[behind], members[inside]
        changed = np.flatnonzero(np.diff(groups, prepend=-1))
        numbers = np.cumsum(np.diff(begins, prepend=begins[0] - 1) != 0) - 1
        found.append(_Level(inside, behind, changed, numbers))
    return found
