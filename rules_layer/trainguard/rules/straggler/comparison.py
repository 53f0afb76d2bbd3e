"""What each rank has of its own in a step beside its peers, in blocks of five minutes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.rules.straggler.own_time import PARTS
from trainguard.rules.straggler.pace import Pace, ProcessPace

# A block of five minutes with fewer steps of a process says too little.
LEAST_STEPS = 20
# What a rank takes longer must be this share of the step: else nobody waits for it for long.
COSTLY_SHARE = 0.1
# A rank is slow by a part of the step, such as its data, where that is this share of what it takes longer.
MOST_OF = 0.5

OTHER = "other"

# All training processes of a job by name, in order.
Ranks = Mapping[str, ProcessPace]


def common_blocks(ranks: Ranks) -> list[int]:
    """Return the blocks in which every process has steps enough, without the newest, which may go on."""
    newest = max(max(pace.blocks) for pace in ranks.values())
    known = [{block for block, each in pace.blocks.items() if each.steps >= LEAST_STEPS} for pace in ranks.values()]
    return sorted(set.intersection(*known) - {newest})


@dataclass(frozen=True)
class PerStep:
    """Of R processes in B blocks the steps, and microseconds a step, float64[R, B] each.

    ``totals`` are with waits for peers, of which ``least`` is what a step takes of them at least; ``parts``, float64[P,
    R, B], are those of own work. ``timed`` says whether the waits for peers are known; else ``least`` is 0.
    """

    steps: IntArray
    own: FloatArray
    totals: FloatArray
    least: FloatArray
    parts: FloatArray
    timed: bool

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the means over all steps of the blocks, of float64[…, R, B]: float64[…, R]."""
        found: FloatArray = (values * self.steps).sum(axis=-1) / self.steps.sum(axis=-1)
        return found

    def slow(self, slower: float) -> BoolArray:
        """Return which processes are slow in which blocks, bool[R, B]."""
        others = np.stack([median_of_others(column) for column in self.own.T], axis=1)
        excess = self.own - others
        slow: BoolArray = (excess > slower / 100.0 * others) & (excess >= COSTLY_SHARE * self.totals)
        return slow

    def late(self) -> FloatArray:
        """Return what each process takes longer than its peers in a step, microseconds, float64[R]."""
        own = self.mean(self.own)
        late: FloatArray = own - median_of_others(own)
        return late

    def late_in(self, rank: int) -> str | None:
        """Return the part of own work with most of what a process takes longer than its peers; None without one."""
        longer = [float(row[rank] - median_of_others(row)[rank]) for row in self.mean(self.parts)]
        most = int(np.argmax(longer))
        return self.names[most] if longer[most] >= MOST_OF * float(self.late()[rank]) else None

    @property
    def names(self) -> tuple[str, ...]:
        return (*PARTS, OTHER) if self.timed else PARTS[:1]

    def waited_in_turn(self) -> float:
        """Return the share of a step that even the process with the least waits for others, beside communication."""
        totals, waits = self.mean(self.totals), self.mean(self.totals - self.own)
        return float((waits.min() - self.mean(self.least).min()) / max(totals.mean(), 1.0)) if self.timed else 0.0


def per_step(ranks: Ranks, blocks: Sequence[int]) -> PerStep:
    return _per_step([[pace.blocks[block] for block in blocks] for pace in ranks.values()])


def over_the_job(ranks: Ranks) -> PerStep:
    return _per_step([[pace.whole] for pace in ranks.values()])


def _per_step(paces: list[list[Pace]]) -> PerStep:
    timed = all(2 * each.timed.steps >= each.steps for row in paces for each in row)
    sums = np.array([[_timed(each) if timed else _untimed(each) for each in row] for row in paces])
    steps = sums[:, :, 0]
    each_step = np.moveaxis(sums[:, :, 1:] / steps[:, :, None], 2, 0)
    return PerStep(steps, each_step[0], each_step[1], each_step[2], each_step[3:], timed)


def _timed(pace: Pace) -> tuple[int, ...]:
    of = pace.timed
    other_us = max(of.own_us - sum(of.parts_us), 0)
    return of.steps, of.own_us, of.own_us + of.peers_us, of.least_us, *of.parts_us, other_us


def _untimed(pace: Pace) -> tuple[int, ...]:
    return pace.steps, pace.own_us, pace.total_us, 0, pace.wait_us


def median_of_others(values: FloatArray) -> FloatArray:
    """Return, for each of N > 1 values, the median of all others: float64[N]."""
    order = np.sort(values)
    place = np.searchsorted(order, values, side="left")
    count = values.size - 1

    def kept(index: int) -> FloatArray:
        found: FloatArray = np.where(place <= index, order[index + 1], order[index])
        return found

    middle: FloatArray = (kept((count - 1) // 2) + kept(count // 2)) / 2.0
    return middle
