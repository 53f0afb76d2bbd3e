"""Who waits for whom, and where the waiting ends: the ranks that wait for nobody else are the cause."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainguard.formats.hangs.flight_recorder import Operation
from trainguard.hangs.positions import RankPositions, Stand

_UNEVEN = ("all_to_all", "alltoall", "gather", "scatter", "send", "recv", "coalesced", "allgatherv")
_EVEN = (
    "_all_gather_base",
    "_allgather_base",
    "_reduce_scatter_base",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
)


class HangCauseKind(StrEnum):
    """What a rank does while others wait for it, from the most certain.

    UNFINISHED: It is in an operation that all others of the group have finished: its GPU or its link stands.
    MISMATCHED: At the place where others entered one operation it entered another.
    OTHER_ORDER: It waits in an operation of others that wait for it in another one.
    NOT_ENTERED: It has ended all that it entered, and does not enter the next.
    NO_DUMP: Others wait for it, and it left no dump.
    """

    UNFINISHED = "unfinished"
    MISMATCHED = "mismatched"
    OTHER_ORDER = "other_order"
    NOT_ENTERED = "not_entered"
    NO_DUMP = "no_dump"


@dataclass(frozen=True, slots=True)
class HangCause:
    """A rank that others wait for. waits: The operation that they wait in. own: What it is in itself, or was in last.

    waiting: Ranks that wait in that operation for it, ascending.
    """

    rank: int
    kind: HangCauseKind
    waits: Operation
    own: Operation | None
    waiting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """causes: The most certain first. victims: Ranks that wait, for a cause or for each other; both without overlap.

    shared: The operation that all wait in though nobody is missing, where there is no cause; else None.
    """

    causes: tuple[HangCause, ...]
    victims: tuple[int, ...]
    shared: Operation | None


def who_waits(positions: RankPositions) -> Waits:
    """Return the causes of a hang and its victims; without a rank that waits both are empty."""
    heads = {rank: each.head for rank, each in positions.ranks.items() if each.head is not None}
    edges = _edges(positions, heads)
    scene = _Scene(positions, heads, edges)
    found = list(_mismatched(scene))
    shared: Operation | None = None
    for sink in _sinks(edges):
        causes = list(_causes(sink, scene))
        found += [each for each in causes if each.rank not in {other.rank for other in found}]
        if not causes and shared is None:
            shared = heads.get(sink[0])
    sure = [each for each in found if each.kind is not HangCauseKind.NO_DUMP]
    # A dump may be missing for another reason: beside a cause that its own dump shows, it is no cause.
    causes = sorted(sure or found, key=lambda each: (_CERTAIN.index(each.kind), -len(each.waiting), each.rank))
    ranks = {each.rank for each in causes}
    victims = tuple(rank for rank in heads if rank not in ranks)
    return Waits(tuple(causes), victims, None if causes else shared)


_CERTAIN = tuple(HangCauseKind)


@dataclass(frozen=True, slots=True)
class _Scene:
    positions: RankPositions
    heads: Mapping[int, Operation]
    edges: Mapping[int, set[int]]

    def waiting_for(self, rank: int) -> tuple[int, ...]:
        return tuple(other for other in sorted(self.edges) if rank in self.edges[other])

    def cause(self, rank: int, kind: HangCauseKind, waiting: Sequence[int]) -> HangCause | None:
        own = self.heads.get(rank)
        position = self.positions.ranks.get(rank)
        last = own if own is not None or position is None else position.last
        awaited = Counter(_place(self.heads[other]) for other in waiting)
        if not awaited:
            return None if own is None else HangCause(rank, kind, own, last, ())
        most = awaited.most_common(1)[0][0]
        there = tuple(other for other in waiting if _place(self.heads[other]) == most)
        return HangCause(rank, kind, self.heads[there[0]], last, there)


def _place(operation: Operation) -> tuple[str, bool, int]:
    return operation.group, operation.peer is not None, operation.sequence


def _causes(sink: Sequence[int], scene: _Scene) -> Iterator[HangCause]:
    """Return the causes among ranks that wait for nobody outside; none where all are in one operation."""
    if len(sink) > 1:
        yield from _in_other_order(sink, scene)
        return
    rank = sink[0]
    head = scene.heads.get(rank)
    waiting = scene.waiting_for(rank)
    if head is None:
        kind = HangCauseKind.NOT_ENTERED if rank in scene.positions.ranks else HangCauseKind.NO_DUMP
        found = scene.cause(rank, kind, waiting)
    else:
        passed = _others_passed(rank, head, scene)
        found = scene.cause(rank, HangCauseKind.UNFINISHED, waiting) if passed else None
    if found is not None:
        yield found


def _others_passed(rank: int, head: Operation, scene: _Scene) -> bool:
    others = (other for other in scene.positions.members_of(head, rank) if other != rank)
    stands = [scene.positions.stand(other, head, rank) for other in others]
    return Stand.PASSED in stands


def _in_other_order(sink: Sequence[int], scene: _Scene) -> Iterator[HangCause]:
    """Ranks that wait for each other in different operations: those in one with few ranks are the cause."""
    waiting = Counter(_place(head) for head in scene.heads.values())
    most = max(waiting[_place(scene.heads[rank])] for rank in sink)
    odd = [rank for rank in sink if waiting[_place(scene.heads[rank])] < most]
    for rank in odd or sink:
        others = [other for other in scene.waiting_for(rank) if _place(scene.heads[other]) != _place(scene.heads[rank])]
        found = scene.cause(rank, HangCauseKind.OTHER_ORDER, others)
        if found is not None:
            yield found


def _mismatched(scene: _Scene) -> Iterator[HangCause]:
    """Return the ranks that entered something else than most others at a place where a rank waits."""
    for group, is_transfer, sequence in {_place(head) for head in scene.heads.values()}:
        entries = {
            rank: entry
            for rank, position in scene.positions.ranks.items()
            if not is_transfer and (entry := position.entries.get((group, sequence))) is not None
        }
        for rank in _odd(entries, scene):
            waiting = tuple(other for other in entries if _form(entries[other]) != _form(entries[rank]))
            yield HangCause(rank, HangCauseKind.MISMATCHED, entries[waiting[0]], entries[rank], waiting)


def _odd(entries: Mapping[int, Operation], scene: _Scene) -> list[int]:
    """Return the ranks of a form that is not the most common; in a tie those that wait in it, or all."""
    forms = Counter(_form(entry) for entry in entries.values())
    if len(forms) < 2:
        return []
    most = max(forms.values())
    common = [form for form, count in forms.items() if count == most]
    odd = [rank for rank, entry in entries.items() if common != [_form(entry)]]
    # Who entered it ahead of time still waits for something else.
    within = [rank for rank in odd if _is_same(scene.heads.get(rank), entries[rank])]
    return within if len(common) > 1 and within else odd


def _form(operation: Operation) -> tuple[object, ...]:
    """Return what all ranks of a collective must agree on."""
    if operation.peer is not None:
        return ()
    sizes = (
        () if any(word in operation.name for word in _UNEVEN) and operation.name not in _EVEN else _elements(operation)
    )
    return operation.name, operation.dtypes[:1], sizes


def _elements(operation: Operation) -> tuple[int, ...]:
    return tuple(math.prod(shape) for shape in operation.inputs)


def _edges(positions: RankPositions, heads: Mapping[int, Operation]) -> dict[int, set[int]]:
    """Return by rank the ranks that it waits for; one that waits with others in the same operation has none."""
    edges: dict[int, set[int]] = {rank: set() for rank in positions.world}
    of_collective: dict[tuple[str, bool, int], set[int]] = {}
    for rank, head in heads.items():
        missing = of_collective.get(_place(head)) if head.peer is None else None
        if missing is None:
            missing = _missing(positions, heads, rank, head)
            of_collective[_place(head)] = missing
        edges[rank] = missing - {rank}
    return edges


def _missing(positions: RankPositions, heads: Mapping[int, Operation], rank: int, head: Operation) -> set[int]:
    """Return the ranks that an operation needs and that have not entered it, or wait in another one before it."""
    found = set()
    for other in positions.members_of(head, rank):
        stand = positions.stand(other, head, rank)
        busy = stand is Stand.WITHIN and not _is_same(heads.get(other), head)
        if busy or stand in {Stand.BEFORE, Stand.UNKNOWN}:
            found.add(other)
    return found


def _is_same(one: Operation | None, other: Operation) -> bool:
    if one is None or one.group != other.group:
        return False
    return one.peer is not None if other.peer is not None else one.peer is None and one.sequence == other.sequence


def _sinks(edges: Mapping[int, set[int]]) -> list[tuple[int, ...]]:
    """Return the strongly connected ranks that wait for no rank outside."""
    component = _Components(edges).found
    members: dict[int, list[int]] = defaultdict(list)
    for rank, number in component.items():
        members[number].append(rank)
    waiting = {
        component[rank]
        for rank, others in edges.items()
        if any(component[other] != component[rank] for other in others)
    }
    return [tuple(sorted(ranks)) for number, ranks in sorted(members.items()) if number not in waiting]


class _Components:
    """The strongly connected component of each node, by Tarjan's algorithm; without recursion, for many ranks."""

    def __init__(self, edges: Mapping[int, set[int]]) -> None:
        self.found: dict[int, int] = {}
        self._edges = edges
        self._order: dict[int, int] = {}
        self._low: dict[int, int] = {}
        self._open: list[int] = []
        for root in edges:
            if root not in self._order:
                self._visit(root)

    def _visit(self, root: int) -> None:
        work = [self._begun(root)]
        while work:
            node, others = work[-1]
            new = next((other for other in others if self._is_new(node, other)), None)
            if new is not None:
                work.append(self._begun(new))
                continue
            work.pop()
            if work:
                above = work[-1][0]
                self._low[above] = min(self._low[above], self._low[node])
            if self._low[node] == self._order[node]:
                self._close(node)

    def _begun(self, node: int) -> tuple[int, Iterator[int]]:
        self._order[node] = self._low[node] = len(self._order)
        self._open.append(node)
        return node, iter(self._edges[node])

    def _is_new(self, node: int, other: int) -> bool:
        if other not in self._order:
            return True
        if other not in self.found:
            self._low[node] = min(self._low[node], self._order[other])
        return False

    def _close(self, node: int) -> None:
        member = -1
        while member != node:
            member = self._open.pop()
            self.found[member] = node
