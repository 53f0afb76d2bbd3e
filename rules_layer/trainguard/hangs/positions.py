"""How far each rank came in each process group, from the dumps of its flight recorder."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from trainguard.formats.hangs.flight_recorder import DEFAULT_GROUP, Dump, Operation

_RECEIVES = {"recv", "irecv"}

# The name of the group of all ranks, which is made first.
FIRST_GROUP = "0"


class Stand(Enum):
    """Where a rank is as seen from an operation that another rank waits in."""

    PASSED = auto()
    WITHIN = auto()
    BEFORE = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class RankPosition:
    """The operations of a rank that have not ended, in the order in which it entered them.

    entered, ended: By group, the last collective that it entered, and the last that ended. last: Its newest operation.
    is_whole: The dump also holds operations that have ended, so that what it lacks was not entered.
    entries: Its collectives by group and sequence number.
    """

    rank: int
    pending: tuple[Operation, ...]
    entered: Mapping[str, int]
    ended: Mapping[str, int]
    last: Operation | None
    is_whole: bool
    entries: Mapping[tuple[str, int], Operation]

    @property
    def head(self) -> Operation | None:
        """The operation that it waits in: a receive that was posted ahead holds up nothing by itself."""
        ahead = next((each for each in self.pending if each.name not in _RECEIVES), None)
        return ahead or next(iter(self.pending), None)

    def first_of(self, group: str) -> Operation | None:
        return next((each for each in self.pending if each.group == group and each.peer is None), None)


@dataclass(frozen=True, slots=True)
class RankPositions:
    """All ranks that have a dump; ``members`` by group, ascending; ``world`` all ranks that any dump names."""

    ranks: Mapping[int, RankPosition]
    members: Mapping[str, tuple[int, ...]]
    descriptions: Mapping[str, str]
    world: tuple[int, ...]

    @property
    def without_dump(self) -> tuple[int, ...]:
        return tuple(rank for rank in self.world if rank not in self.ranks)

    def members_of(self, operation: Operation, rank: int) -> Sequence[int]:
        """Return the ranks that an operation of ``rank`` needs, the rank itself among them."""
        members = self.members.get(operation.group, ())
        if operation.peer is None:
            return members
        return (rank, members[operation.peer]) if operation.peer < len(members) else (rank,)

    def stand(self, rank: int, operation: Operation, of: int) -> Stand:
        """Say where ``rank`` is as seen from ``operation``, which rank ``of`` entered."""
        position = self.ranks.get(rank)
        if position is None:
            return Stand.UNKNOWN
        if operation.peer is not None:
            return self._stand_of_transfer(position, operation, of)
        first = position.first_of(operation.group)
        if first is not None and first.sequence <= operation.sequence:
            return Stand.WITHIN if position.entered[operation.group] >= operation.sequence else Stand.BEFORE
        if first is not None or position.ended.get(operation.group, -1) >= operation.sequence:
            return Stand.PASSED
        known = position.is_whole or operation.group in position.entered
        return Stand.BEFORE if known else Stand.UNKNOWN

    def _stand_of_transfer(self, position: RankPosition, operation: Operation, of: int) -> Stand:
        other_side = "send" if operation.name in _RECEIVES else "recv"
        for each in position.pending:
            if each.group == operation.group and each.peer is not None and each.name.endswith(other_side):
                members = self.members.get(each.group, ())
                if each.peer < len(members) and members[each.peer] == of:
                    return Stand.WITHIN
        return Stand.BEFORE


def positions(dumps: Iterable[Dump]) -> RankPositions:
    """Return how far each rank came; of two dumps of a rank the one that saw more counts."""
    by_rank: dict[int, Dump] = {}
    for dump in dumps:
        other = by_rank.get(dump.rank)
        if other is None or _newest(other) <= _newest(dump):
            by_rank[dump.rank] = dump
    members, descriptions = _members(by_rank)
    named = {rank for ranks in members.values() for rank in ranks}
    world = tuple(range(max(named | by_rank.keys(), default=-1) + 1))
    default = [name for name, text in descriptions.items() if text == DEFAULT_GROUP]
    for name in default or [FIRST_GROUP]:
        members.setdefault(name, world)
    shared = _shared_ids(by_rank.values())
    ranks = {rank: _position(dump, shared, members) for rank, dump in sorted(by_rank.items())}
    found = RankPositions(ranks, members, descriptions, world)
    return replace(found, ranks={rank: _without_given_up(each, found) for rank, each in ranks.items()})


def _without_given_up(position: RankPosition, positions: RankPositions) -> RankPosition:
    """Return the position with its last operation as one that has not ended, where others have not ended it either."""
    last = position.last
    if last is None or last.peer is not None or not last.is_over or last.has_ended:
        return position
    others = (rank for rank in positions.members.get(last.group, ()) if rank != position.rank)
    if all(positions.stand(rank, last, position.rank) is Stand.PASSED for rank in others):
        return position
    ended = {**position.ended, last.group: last.sequence - 1}
    return replace(position, pending=(*position.pending, last), ended=ended)


def _newest(dump: Dump) -> tuple[int, int]:
    return (max((each.order for each in dump.operations), default=-1), len(dump.operations))


def _members(dumps: Mapping[int, Dump]) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Return the ranks of each group: as the dumps name them, else those that entered an operation of it."""
    named: dict[str, tuple[int, ...]] = {}
    descriptions: dict[str, str] = {}
    seen: dict[str, set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        for name, (description, ranks) in dump.groups.items():
            if name and len(ranks) > len(named.get(name, ())):
                named[name] = ranks
            if name and description:
                descriptions[name] = description
        for each in dump.operations:
            seen[each.group].add(rank)
    unnamed = {name: tuple(sorted(met)) for name, met in seen.items() if name not in named}
    if FIRST_GROUP in unnamed:
        unnamed[FIRST_GROUP] = tuple(range(_world_of_gloo(dumps, seen)))
    return named | unnamed, descriptions


def _world_of_gloo(dumps: Mapping[int, Dump], seen: Mapping[str, set[int]]) -> int:
    """Return how many ranks there are: gloo's dumps say only how many the last group of a process has."""
    world = max(dumps) + 1
    gaps = world - len(dumps)
    for dump in dumps.values():
        size = len(dump.groups[""][1]) if "" in dump.groups else 0
        last = dump.group_ids[max(dump.group_ids)] if dump.group_ids else FIRST_GROUP
        world = max(world, size if last == FIRST_GROUP else max(dumps) + 1 + size - len(seen[last]) - gaps)
    return world


def _shared_ids(dumps: Iterable[Dump]) -> dict[int, set[str]]:
    """Return the names of groups that processes give each of their own numbers."""
    found: dict[int, set[str]] = defaultdict(set)
    for dump in dumps:
        for number, name in dump.group_ids.items():
            found[number].add(name)
    return found


def _position(dump: Dump, shared: Mapping[int, set[str]], members: Mapping[str, tuple[int, ...]]) -> RankPosition:
    entered: dict[str, int] = {}
    ended: dict[str, int] = {}
    for each in dump.operations:
        if each.peer is None:
            entered[each.group] = max(each.sequence, entered.get(each.group, -1))
            # The operations of a group end in their order.
            until = each.sequence if each.is_over else ended.get(each.group, each.sequence - 1)
            ended[each.group] = max(until, ended.get(each.group, until))
    for number, progress in dump.progress.items():
        name = dump.group_ids.get(number) or _own_group(shared.get(number, set()), dump.rank, members)
        # Where a group has entries they are exact; gloo's progress counts transfers too.
        if name is not None and name not in entered:
            entered[name], ended[name] = progress
    over = {each.group: ended[each.group] for each in dump.operations if each.peer is None}
    pending = tuple(
        each
        for each in dump.operations
        if not each.is_over and (each.peer is not None or each.sequence > over[each.group])
    )
    last = dump.operations[-1] if dump.operations else None
    is_whole = any(each.is_over for each in dump.operations)
    entries = {(each.group, each.sequence): each for each in dump.operations if each.peer is None}
    return RankPosition(dump.rank, pending, entered, ended, last, is_whole, entries)


def _own_group(names: set[str], rank: int, members: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return the one group of ``names`` that a rank belongs to, or None."""
    own = [name for name in names if rank in members.get(name, ())]
    return own[0] if len(own) == 1 else None
