"""Who comes last into a collective, without clocks that agree.

A collective ends on all its ranks at once, when the last of them has come. The rank that comes last has the shortest
kernel, and every other one waits as much longer as it came earlier.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Ints
from trainguard.kernels.document import RankProfile
from trainguard.kernels.entries import CollectiveStepsEntry

LEAST_SHARE = 0.01
"""A collective that takes less of a step says nothing about ranks."""

_POINT_TO_POINT = re.compile(r"send|recv|p2p", re.IGNORECASE)
"""Of these each side waits for its own partner."""

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A collective on several ranks.

    Attributes
    ----------
    name : str
    ranks : list of int
        Places of the ranks that have it.
    steps : list of int
        Numbers of the steps in which all of them ran it equally often.
    total_ns : ndarray of int64[R, S]
        Its time by rank and step.
    bytes : ndarray of int64[S]
        What a rank sends or gets in a step, the most of a rank; -1 where a trace does not say it.
    of : CollectiveStepsEntry
        What it is, as its first rank says it.
    """

    name: str
    ranks: list[int]
    steps: list[int]
    total_ns: Ints
    bytes: Ints
    of: CollectiveStepsEntry

    @property
    def wait_ns(self) -> Ints:
        """How much longer than on the rank that came last, int64[R, S]."""
        waits: Ints = self.total_ns - self.total_ns.min(axis=0)
        return waits

    @property
    def last(self) -> Ints:
        """For each step the place among ``ranks`` of the one that came last, int64[S]."""
        places: Ints = self.total_ns.argmin(axis=0)
        return places

    @property
    def lateness_ns(self) -> Ints:
        """For each step how much later than the median rank the last one came, int64[S]."""
        ordered = np.sort(self.total_ns, axis=0)
        late: Ints = ordered[len(self.ranks) // 2] - ordered[0]
        return late


def widest(ranks: Sequence[RankProfile], found: Sequence[Waiting]) -> Waiting | None:
    """Return the collective whose time differs most between its ranks; None where none is comparable."""
    step_ns = max((_mean_step(ranks[place]) for place in {place for each in found for place in each.ranks}), default=0)
    large = [each for each in found if float(each.total_ns.mean()) >= LEAST_SHARE * step_ns]
    return max(large, key=lambda each: (float(each.total_ns.std(axis=0).mean()), each.name), default=None)


def compared(ranks: Sequence[RankProfile], places: Sequence[int]) -> list[Waiting]:
    """Return the collectives that two of some ranks or more ran equally often in the same steps."""
    return [each for key in _keys(ranks, places) if (each := _waiting(ranks, places, key)) is not None]


def _keys(ranks: Sequence[RankProfile], places: Sequence[int]) -> list[Key]:
    entries = (entry for place in places for entry in ranks[place].collective_steps)
    return sorted({_key(entry) for entry in entries if not _POINT_TO_POINT.search(entry.name)})


def _key(entry: CollectiveStepsEntry) -> Key:
    return entry.name, entry.group, entry.dtype


def _waiting(ranks: Sequence[RankProfile], places: Sequence[int], key: Key) -> Waiting | None:
    mine = {place: entry for place in places for entry in ranks[place].collective_steps if _key(entry) == key}
    if len(mine) < 2:
        return None
    by_step = [_by_step(each) for each in mine.values()]
    common = sorted(set.intersection(*(set(each) for each in by_step)))
    steps = [step for step in common if len({each[step][0] for each in by_step}) == 1]
    if not steps:
        return None
    total, size = (np.array([[each[step][at] for step in steps] for each in by_step], dtype=np.int64) for at in (1, 2))
    name = key[0] if not key[1] else f"{key[0]} of group {key[1]}"
    moved: Ints = np.where((size >= 0).all(axis=0), size.max(axis=0), -1)
    return Waiting(name, list(mine), steps, total, moved, next(iter(mine.values())))


def _by_step(entry: CollectiveStepsEntry) -> dict[int, tuple[int, int, int]]:
    """Return runs, time and bytes by the step's number."""
    sizes = entry.bytes or [-1] * len(entry.steps)
    return dict(zip(entry.steps, zip(entry.counts, entry.total_ns, sizes, strict=True), strict=True))


def _mean_step(rank: RankProfile) -> float:
    return float(np.mean([step.gpu_duration_ns for step in rank.steps])) if rank.steps else 0.0
