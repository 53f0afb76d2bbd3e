"""Which ranks may be compared, and who comes last into a collective, without clocks that agree.

Ranks are alike with the same GPU, mostly the same kernels, and traces of one window. A collective ends on all ranks at
once: the last to come has the shortest kernel, and every other one waits as much longer as it came earlier.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Ints
from trainguard.kernels.document import RankProfile, TransferEntry
from trainguard.kernels.entries import CollectiveStepsEntry
from trainguard.kernels.times.intervals import windows_of
from trainguard.kernels.work import bus_factor

# So long after its first trace a window's others begin, as those of a capture in the stack.
WINDOW_NS = 300 * 1_000_000_000


def compared_places(ranks: Sequence[RankProfile]) -> list[int]:
    """Return the places of compared traces, at most one of each rank: those of the window that most ranks have."""
    whole = [place for place, rank in enumerate(ranks) if rank.quality.is_whole]
    named = [place for place in whole if ranks[place].rank is not None]
    if len({ranks[place].rank for place in named}) == len(named):
        return whole
    named.sort(key=lambda each: (ranks[each].start_unix_ns or 0, ranks[each].trace))
    starts = [(place, ranks[place].rank, ranks[place].start_unix_ns or 0) for place in named]
    chosen = max(windows_of(starts, WINDOW_NS), key=len)
    return sorted({*chosen, *(place for place in whole if ranks[place].rank is None)})


NAMES = 50
LEAST_SHARED = 0.5


def likes_of(ranks: Sequence[RankProfile]) -> list[int]:
    """Return for each rank the number of its group; a rank joins the first group whose first member is like it."""
    firsts: list[tuple[tuple[str, ...], frozenset[str]]] = []
    numbers = []
    for rank in ranks:
        gpus, names = tuple(sorted(set(rank.gpus))), _names(rank)
        for number, (other_gpus, other_names) in enumerate(firsts):
            if gpus == other_gpus and _shared(names, other_names) >= LEAST_SHARED:
                numbers.append(number)
                break
        else:
            numbers.append(len(firsts))
            firsts.append((gpus, names))
    return numbers


def groups_of(likes: Sequence[int]) -> list[list[int]]:
    return [[place for place, like in enumerate(likes) if like == number] for number in sorted(set(likes))]


def _names(rank: RankProfile) -> frozenset[str]:
    return frozenset(kernel.name for kernel in [each for each in rank.kernels if not each.communication][:NAMES])


def _shared(some: frozenset[str], others: frozenset[str]) -> float:
    """Return what share of all names both have; 1 where neither has any."""
    return len(some & others) / len(some | others) if some | others else 1.0


# A collective that takes less of a step says nothing about ranks.
LEAST_SHARE = 0.01

# Of these each side waits for its own partner.
_POINT_TO_POINT = re.compile(r"send|recv|p2p", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A collective on R ranks in S steps in which all of them ran it equally often.

    ``ranks`` are places. ``total_ns`` is int64[R, S]; ``bytes``, int64[S], is the most that a rank sends or gets, -1
    where unknown.
    """

    ranks: list[int]
    steps: list[int]
    total_ns: Ints
    bytes: Ints
    of: CollectiveStepsEntry

    @property
    def name(self) -> str:
        return f"{self.of.name} of group {self.of.group}" if self.of.group else self.of.name

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

    def lead_ns(self, rank: int) -> Ints:
        """Return how much later than the middle of the others ``ranks[rank]`` came, int64[S]; negative for earlier."""
        others = np.sort(np.delete(self.total_ns, rank, axis=0), axis=0)
        lead: Ints = others[(len(self.ranks) - 2) // 2] - self.total_ns[rank]
        return lead


def widest(ranks: Sequence[RankProfile], found: Sequence[Waiting]) -> Waiting | None:
    """Return the collective whose time differs most between its ranks; None where none is comparable."""
    step_ns = max((ranks[place].mean_step_ns for each in found for place in each.ranks), default=0.0)
    large = [each for each in found if float(each.total_ns.mean()) >= LEAST_SHARE * step_ns]
    return max(large, key=lambda each: (float(each.total_ns.std(axis=0).mean()), each.name), default=None)


def compared(ranks: Sequence[RankProfile], places: Sequence[int]) -> list[Waiting]:
    """Return the collectives that two of some ranks or more ran equally often in the same steps."""
    by_key: dict[tuple[str, str, str], dict[int, CollectiveStepsEntry]] = {}
    for place in places:
        for entry in ranks[place].collective_steps:
            if not _POINT_TO_POINT.search(entry.name):
                by_key.setdefault((entry.name, entry.group, entry.dtype), {})[place] = entry
    return [found for _, mine in sorted(by_key.items()) if (found := _waiting(mine)) is not None]


def _waiting(mine: Mapping[int, CollectiveStepsEntry]) -> Waiting | None:
    """Return a collective by its entries of ranks' places; None where fewer than two ranks have common steps."""
    if len(mine) < 2:
        return None
    by_step = [
        dict(
            zip(
                each.steps,
                zip(each.counts, each.total_ns, each.bytes or [-1] * len(each.steps), strict=True),
                strict=True,
            )
        )
        for each in mine.values()
    ]
    common = sorted(set.intersection(*(set(each) for each in by_step)))
    steps = [step for step in common if len({each[step][0] for each in by_step}) == 1]
    if not steps:
        return None
    total, size = (np.array([[each[step][at] for step in steps] for each in by_step], dtype=np.int64) for at in (1, 2))
    moved: Ints = np.where((size >= 0).all(axis=0), size.max(axis=0), -1)
    return Waiting(list(mine), steps, total, moved, next(iter(mine.values())))


MOST_TRANSFERS = 50


def transfers_of(found: Iterable[Waiting]) -> list[TransferEntry]:
    """Return collectives with their time on the rank that came last; most time first."""
    return sorted(map(_entry, found), key=lambda each: (-each.transfer_ns - each.wait_ns, each.name, each.group))[
        :MOST_TRANSFERS
    ]


def _entry(waiting: Waiting) -> TransferEntry:
    # The rank that comes last has the shortest kernel: it waits for nobody.
    transfer = int(waiting.total_ns.min(axis=0).sum())
    size = int(waiting.bytes.sum()) if (waiting.bytes >= 0).all() else None
    rate = size / transfer if size is not None and transfer else None
    of = waiting.of
    factor = bus_factor(of.name, of.group_size) if of.group_size else None
    return TransferEntry(
        name=of.name,
        group=of.group,
        group_size=of.group_size,
        dtype=of.dtype,
        ranks=len(waiting.ranks),
        steps=len(waiting.steps),
        transfer_ns=transfer,
        wait_ns=round(float(waiting.wait_ns.sum(axis=1).mean())),
        bytes=size,
        algorithm_gb_per_s=None if rate is None else round(rate, 3),
        bus_gb_per_s=None if rate is None or factor is None else round(rate * factor, 3),
    )
