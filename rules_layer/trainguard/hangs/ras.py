"""Which ranks hold up a job by an answer of NCCL RAS: dead ones, silent ones, and those behind in collectives."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from trainguard.formats.hangs.ras import Communicator, Process, RasAnswer, RasRank


class RasKind(StrEnum):
    """How a rank stands, from the most certain.

    DEAD: RAS has given its process up. UNRESPONSIVE: Its process does not answer RAS. BEHIND: It has launched fewer
    collectives of a communicator than most of its ranks.
    """

    DEAD = "dead"
    UNRESPONSIVE = "unresponsive"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class RasCause:
    """A rank that holds up others; of one that is behind the kind of collective, and how many it has launched."""

    rank: int
    kind: RasKind
    operation: str = ""
    launched: int | None = None


@dataclass(frozen=True, slots=True)
class RasStand:
    """What an answer says: ``ranks`` are all of the largest communicator, ``causes`` the most certain first."""

    ranks: tuple[int, ...]
    causes: tuple[RasCause, ...]


def stand_of(answers: Iterable[RasAnswer]) -> RasStand:
    """Return how the ranks stand; those of a smaller communicator by their place in the largest one."""
    communicators = [each for answer in answers for each in answer.communicators if each.ranks]
    if not communicators:
        return RasStand((), ())
    size = max(each.size for each in communicators)
    of_all = [each for each in communicators if each.size == size]
    places = {each.process: each.rank for communicator in of_all[:1] for each in communicator.ranks}
    causes: dict[int, RasCause] = {}
    for communicator in sorted(communicators, key=lambda each: -each.size):
        # Who waits in the group of all ranks is behind in the groups in it, too.
        has_behind = any(each.kind is RasKind.BEHIND for each in causes.values())
        for cause in _causes(communicator, places, counts=communicator.size == size or not has_behind):
            known = causes.get(cause.rank)
            if known is None or _ORDER.index(cause.kind) < _ORDER.index(known.kind):
                causes[cause.rank] = cause
    found = sorted(causes.values(), key=lambda each: (_ORDER.index(each.kind), each.rank))
    return RasStand(tuple(sorted(places.values())), tuple(found))


_ORDER = tuple(RasKind)


def _causes(communicator: Communicator, places: Mapping[Process, int], *, counts: bool) -> Iterator[RasCause]:
    for each in communicator.ranks:
        rank = places.get(each.process)
        if rank is not None and (each.is_dead or each.is_unresponsive):
            yield RasCause(rank, RasKind.DEAD if each.is_dead else RasKind.UNRESPONSIVE)
    for each, operation in _behind(communicator) if counts else ():
        rank = places.get(each.process)
        if rank is not None:
            yield RasCause(rank, RasKind.BEHIND, operation, each.counts[operation])


def _behind(communicator: Communicator) -> Iterator[tuple[RasRank, str]]:
    """Yield the ranks that have launched fewer collectives than most, each with the kind that it lacks most of."""
    answered = [each for each in communicator.ranks if not each.is_missing and each.counts]
    most = Counter(tuple(sorted(each.counts.items())) for each in answered).most_common(1)
    if not most or 2 * most[0][1] <= len(answered):
        return
    usual = dict(most[0][0])
    for each in answered:
        lacking = {name: count - each.counts.get(name, 0) for name, count in usual.items() if name in each.counts}
        name = max(lacking, key=lambda kind: lacking[kind], default="")
        if each.launched < sum(usual.values()) and name and lacking[name] > 0:
            yield each, name
