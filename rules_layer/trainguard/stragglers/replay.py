"""When operations end if all last as long as given, and how long steps take then: as recorded, or at an even pace."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainguard.formats.operations import Bools, Floats, Ints
from trainguard.stragglers.links import Links, links_of
from trainguard.stragglers.operations import RECEIVES, SENDS, Operations, combined

# Groups that wait for earlier levels alone: places of members, of what they wait for, where each begins, and its group.
_Level = tuple[slice, slice, Ints, Ints]


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
        for members, waits, begins, group in self._levels:
            if len(begins):
                ready = np.maximum.reduceat(ends[self._waits[waits]], begins)
                ends[members] = ready[group] + lasting[members]
            else:
                ends[members] = lasting[members]
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
    found: list[_Level] = []
    for at in range(len(depths) - 1):
        inside, behind = slice(of_members[at], of_members[at + 1]), slice(of_waits[at], of_waits[at + 1])
        groups, begins = waiting[behind], members[inside]
        changed = np.flatnonzero(np.diff(groups, prepend=-1))
        numbers = np.cumsum(np.diff(begins, prepend=begins[0] - 1) != 0) - 1
        found.append((inside, behind, changed, numbers))
    return found


# Send and receive of a message are one kind of work.
MERGED = {name: f"{name.split('-')[0]}-pp-comm" for name in (*SENDS, *RECEIVES)}


@dataclass(frozen=True)
class WhatIf:
    """Operations that can be replayed; ``lasting`` are their seconds, of transfers from the last member's start on."""

    ops: Operations
    replay: Replay
    lasting: Floats

    @cached_property
    def even(self) -> Floats:
        """Seconds of each at its kind's pace: the mean of work, as it can be shared out, or the median transfer."""
        found = self.lasting.copy()
        for kind in range(len(self.ops.kinds)):
            rows = self.ops.kind == kind
            if rows.any():
                is_transfer = bool(self.ops.is_transfer[rows].any())
                found[rows] = np.median(self.lasting[rows]) if is_transfer else self.lasting[rows].mean()
        return found

    @cached_property
    def work_kinds(self) -> tuple[list[str], Ints]:
        """Kinds of operations with sends and receives as one, and that of each operation."""
        names, place = np.unique([MERGED.get(name, name) for name in self.ops.kinds], return_inverse=True)
        return names.tolist(), place[self.ops.kind]

    @cached_property
    def recorded_steps(self) -> Floats:
        """Seconds of each step from its first start to its last end."""
        ops = self.ops
        begins = np.searchsorted(ops.step, np.arange(len(ops.steps)))
        found: Floats = np.maximum.reduceat(ops.end, begins) - np.minimum.reduceat(ops.start, begins)
        return found

    @cached_property
    def replayed_s(self) -> float:
        return self.mean_step(self.lasting)

    @cached_property
    def even_s(self) -> float:
        return self.mean_step(self.even)

    def mean_step(self, durations: Floats) -> float:
        return float(self.replay.steps(durations).mean())

    def slowdown_of(self, rows: Bools) -> float:
        """Return how many times as long a step takes if these operations last as recorded, and the others are even."""
        return self.mean_step(np.where(rows, self.lasting, self.even)) / self.even_s if self.even_s else 1.0

    def saved_by(self, durations: Floats) -> float:
        """Return the part of a step that is saved if operations last as long as given; below 0 if it takes longer."""
        return 1.0 - self.mean_step(durations) / self.replayed_s if self.replayed_s else 0.0

    def at_pace_of(self, rows: Bools, peers: Ints) -> Floats:
        """Return durations with those of ``rows`` at the median of others of their kind and of the same ``peers``."""
        keys = combined(self.ops.kind, peers)
        wanted = np.zeros(int(keys.max(initial=0)) + 1, bool)
        wanted[keys[rows]] = True
        others, mine = np.flatnonzero(wanted[keys] & ~rows), np.flatnonzero(rows)
        others = others[np.argsort(keys[others], kind="stable")]
        found = self.lasting.copy()
        for key in np.flatnonzero(wanted):
            low, high = np.searchsorted(keys[others], [key, key + 1])
            if high > low:
                found[mine[keys[mine] == key]] = np.median(self.lasting[others[low:high]])
        return found


def what_if(ops: Operations) -> tuple[WhatIf | None, Counter[str]]:
    """Return the replay of all steps that can be replayed, and the faults of the others; None where none can be."""
    faults: Counter[str] = Counter()
    links = links_of(ops) if len(ops) else None
    if links is not None and len(links.alone):
        faults["operations without a partner"] = len(links.alone)
        ops = ops.without_steps(np.unique(ops.step[links.alone]))
        links = links_of(ops) if len(ops) else None
    if links is None or not len(ops):
        return None, faults
    replay = Replay(ops, links)
    if len(replay.circular):
        faults["operations that wait for each other"] = len(replay.circular)
        ops = ops.without_steps(np.unique(ops.step[replay.circular]))
        if not len(ops):
            return None, faults
        links = links_of(ops)
        replay = Replay(ops, links)
    return WhatIf(ops, replay, _lasting(ops, links)), faults


def _lasting(ops: Operations, links: Links) -> Floats:
    last = np.full(len(ops), -np.inf)
    np.maximum.at(last, links.group, ops.start)
    found: Floats = np.maximum(ops.end - last[links.group], 0.0)
    return found
