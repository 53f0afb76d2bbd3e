"""Compares hashes of what several ranks hold copies of: which ranks differ from most, and in which tensors.

Only hashes of one moment are compared: the same training step, attempt, place in the program (collectives that the
group has begun) and names, types and shapes of tensors, not further apart than 30 s by the ranks' clocks.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from trainguard.formats.tensors.replicas import CopySet, Hashes, RankHashes

# Ranks that train together end a step within a step's time; a job that begins again takes longer.
APART_S = 30.0

# So large a share of tensors that differ without a majority, of so many or more, is no flipped bit.
MOST_TENSORS, FEWEST_TENSORS = 0.5, 4


class Difference(NamedTuple):
    """How the copies of one set differ, and of how many ranks.

    ``apart`` are ranks unlike a majority of more than half, ``tensors`` those that differ, as places in the set, first
    those with a majority; ``undecided`` have none. ``rank`` says their names, in its set of that ``place``.
    """

    copies: CopySet
    ranks: tuple[int, ...]
    apart: tuple[int, ...]
    tensors: tuple[int, ...]
    undecided: int
    rank: int
    place: int

    @property
    def is_unkept(self) -> bool:
        """Whether most tensors differ, and no majority says how they should be."""
        return self.copies.count >= FEWEST_TENSORS and self.undecided >= MOST_TENSORS * self.copies.count


class Compared(msgspec.Struct):
    """What came of the comparison of a step: ranks that were compared, and those that could not be.

    ``missing`` counts the copies of one set that were not saved, at most, ``tensors`` the distinct tensors of which
    copies were compared.
    """

    ranks: set[int] = msgspec.field(default_factory=set)
    tensors: int = 0
    missing: int = 0
    of_other_moment: set[int] = msgspec.field(default_factory=set)
    of_other_tensors: set[int] = msgspec.field(default_factory=set)
    without_copies: set[int] = msgspec.field(default_factory=set)
    differences: list[Difference] = msgspec.field(default_factory=list)


class _Held(NamedTuple):
    rank: int
    at: float
    place: int
    moment: tuple[object, ...]
    copies: CopySet
    hashes: Hashes


def compare(found: Sequence[RankHashes]) -> Compared:
    """Compare what ranks hold copies of with each other, set by set."""
    compared = Compared(without_copies={each.rank for each in found if not each.about.sets})
    by_set: dict[tuple[str, str, str], list[_Held]] = defaultdict(list)
    for each in found:
        for place, (copies, hashes) in enumerate(zip(each.about.sets, each.hashes, strict=True)):
            moment = each.about.mode_step, each.about.attempt, copies.moment
            held = _Held(each.rank, each.about.at, place, moment, copies, hashes)
            by_set[copies.of, copies.ranks, copies.device].append(held)
    for holders in by_set.values():
        _compare_set(compared, holders)
    return compared


def _compare_set(compared: Compared, holders: list[_Held]) -> None:
    parts = list(_comparable(holders))
    largest = max(parts, key=len)
    for part in parts:
        if len(part) > 1:
            compared.ranks |= {each.rank for each in part}
            compared.tensors += part[0].copies.count
            compared.differences += _difference(part)
        if part is not largest:
            same = part[0].copies.layout == largest[0].copies.layout
            (compared.of_other_moment if same else compared.of_other_tensors).update(each.rank for each in part)
    compared.missing = max(compared.missing, largest[0].copies.copies - len({each.rank for each in holders}))


def _comparable(holders: list[_Held]) -> Iterator[list[_Held]]:
    """Split the holders of a set into those that are of one moment and one list of tensors."""
    alike: dict[tuple[object, ...], list[_Held]] = defaultdict(list)
    for each in holders:
        alike[each.copies.layout, each.copies.count, *each.moment].append(each)
    for together in alike.values():
        in_time = sorted(together, key=lambda each: each.at)
        begins = 0
        for place, (before, after) in enumerate(pairwise(in_time), 1):
            if not after.at - before.at <= APART_S:
                yield in_time[begins:place]
                begins = place
        yield in_time[begins:]


def _difference(holders: list[_Held]) -> list[Difference]:
    first = holders[0].hashes
    if all(np.array_equal(first, each.hashes) for each in holders[1:]):
        return []
    table = np.stack([each.hashes for each in holders])
    decided, undecided = list[int](), list[int]()
    apart = set[int]()
    for column in np.flatnonzero((table != table[0]).any(axis=0)).tolist():
        values = table[:, column].tolist()
        ((most, count),) = Counter(values).most_common(1)
        if 2 * count > len(values):
            decided.append(column)
            apart |= {each.rank for each, value in zip(holders, values, strict=True) if value != most}
        else:
            undecided.append(column)
    ranks = tuple(sorted(each.rank for each in holders))
    tensors = (*decided, *undecided)
    speaker = holders[0]
    return [
        Difference(speaker.copies, ranks, tuple(sorted(apart)), tensors, len(undecided), speaker.rank, speaker.place)
    ]
