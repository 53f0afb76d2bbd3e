"""How long steps take as recorded, at an even pace, and with a part of the operations at either."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainguard.formats.operations import Bools, Floats, Ints
from trainguard.stragglers.links import Links, links_of
from trainguard.stragglers.operations import RECEIVES, SENDS, Operations, combined
from trainguard.stragglers.replay import Replay

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
    if links is not None and links.faults:
        faults.update({name: len(rows) for name, rows in links.faults.items()})
        ops = ops.without_steps(np.unique(ops.step[np.concatenate(list(links.faults.values()))]))
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
