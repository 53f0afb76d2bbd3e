"""Who waits for whom, and where the waiting ends: the ranks that wait for nobody else are the cause."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainguard.formats.hangs.flight_recorder import Operation
from trainguard.hangs.positions import Positions, Stand

_UNEVEN = ("all_to_all", "alltoall", "gather", "scatter", "send", "recv", "coalesced", "allgatherv")
_EVEN = ("_all_gather_base", "_allgather_base", "_reduce_scatter_base", "all_gather_into_tensor", "reduce_scatter_tensor")


class CauseKind(StrEnum):
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
class Cause:
    """A rank that others wait for. waits: The operation that they wait in. own: What it is in itself, or was in last.

    waiting: Ranks that wait in that operation for it, ascending.
    """

    rank: int
    kind: CauseKind
    waits: Operation
    own: Operation | None
    waiting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """causes: The most certain first. victims: Ranks that wait, for a cause or for each other; both without overlap.

    shared: The operation that all wait in though nobody is missing, where there is no cause; else None.
    """

    causes: tuple[Cause, ...]
    victims: tuple[int, ...]
    shared: Operation | None


def who_waits(positions: Positions) -> Waits:
    """Return the causes of a hang and its victims; without a rank that waits both are empty."""
    heads = {rank: each.head for rank, each in positions.ranks.items() if each.head is not None}
    edges = _edges(positions, heads)
    found: list[Cause] = []
    shared: Operation | None = None
    for sink in _sinks(edges):
        causes = list(_causes(sink, _Scene(positions, heads, edges)))
        found += causes
        if not causes and shared is None:
            shared = heads.get(sink[0])
    sure = [each for each in found if each.kind is not CauseKind.NO_DUMP]
    # A dump may be missing for another reason: beside a cause that its own dump shows, it is no cause.
    causes = sorted(sure or found, key=lambda each: (_CERTAIN.index(each.kind), -len(each.waiting), each.rank))
    ranks = {each.rank for each in causes}
    victims = tuple(rank for rank in heads if rank not in ranks)
    return Waits(tuple(causes), victims, None if causes else shared)


_CERTAIN = tuple(CauseKind)


@dataclass(frozen=True, slots=True)
class _Scene:
    positions: Positions
    heads: Mapping[int, Operation]
    edges: Mapping[int, set[int]]

    def waiting_for(self, rank: int) -> tuple[int, ...]:
        return tuple(other for other in sorted(self.edges) if rank in self.edges[other])

    def cause(self, rank: int, kind: CauseKind, waiting: Sequence[int]) -> Cause | None:
        own = self.heads.get(rank)
        position = self.positions.ranks.get(rank)
        last = own if own is not None or position is None else position.last
        awaited = Counter(_place(self.heads[other]) for other in waiting)
        if not awaited:
            return None if own is None else Cause(rank, kind, own, last, ())
        most = awaited.most_common(1)[0][0]
        there = tuple(other for other in waiting if _place(self.heads[other]) == most)
        return Cause(rank, kind, self.heads[there[0]], last, there)


def _place(operation: Operation) -> tuple[str, bool, int]:
    return operation.group, operation.peer is not None, operation.sequence


def _causes(sink: Sequence[int], scene: _Scene) -> Iterator[Cause]:
    """Return the causes among ranks that wait for nobody outside; none where all are in one operation."""
    if len(sink) > 1:
        yield from _in_other_order(sink, scene)
        return
    rank = sink[0]
    head = scene.heads.get(rank)
    waiting = scene.waiting_for(rank)
    if head is None:
        kind = CauseKind.NOT_ENTERED if rank in scene.positions.ranks else CauseKind.NO_DUMP
        found = scene.cause(rank, kind, waiting)
    elif _others_passed(rank, head, scene):
        found = scene.cause(rank, CauseKind.UNFINISHED, waiting)
    else:
        within = [other for other, its in scene.heads.items() if _is_same(its, head)]
        odd = rank in _mismatched(within, scene.heads)
        found = scene.cause(rank, CauseKind.MISMATCHED, [each for each in within if each != rank]) if odd else None
    if found is not None:
        yield found


def _others_passed(rank: int, head: Operation, scene: _Scene) -> bool:
    others = (other for other in scene.positions.members_of(head, rank) if other != rank)
    stands = [scene.positions.stand(other, head, rank) for other in others]
    return Stand.PASSED in stands


def _in_other_order(sink: Sequence[int], scene: _Scene) -> Iterator[Cause]:
    """Ranks that wait for each other in different operations: the fewest that are in one are the cause."""
    places: dict[tuple[str, bool, int], list[int]] = defaultdict(list)
    for rank in sink:
        places[_place(scene.heads[rank])].append(rank)
    most = max(len(ranks) for ranks in places.values())
    most_often = [place for place, ranks in places.items() if len(ranks) == most]
    for place, ranks in places.items():
        if most_often != [place]:
            for rank in ranks:
                waiting = [other for other in scene.waiting_for(rank) if other not in ranks]
                found = scene.cause(rank, CauseKind.OTHER_ORDER, waiting)
                if found is not None:
                    yield found


def _mismatched(ranks: Sequence[int], heads: Mapping[int, Operation]) -> set[int]:
    """Return the ranks whose operation differs from that of most others at the same place; all of them in a tie."""
    kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank in ranks:
        kinds[_form(heads[rank])].append(rank)
    most = max(len(each) for each in kinds.values())
    common = [kind for kind, each in kinds.items() if len(each) == most]
    return {rank for kind, each in kinds.items() if common != [kind] for rank in each} if len(kinds) > 1 else set()


def _form(operation: Operation) -> tuple[object, ...]:
    """Return what all ranks of a collective must agree on."""
    if operation.peer is not None:
        return ()
    sizes = () if any(word in operation.name for word in _UNEVEN) and operation.name not in _EVEN else _elements(operation)
    return operation.name, operation.dtypes[:1], sizes


def _elements(operation: Operation) -> tuple[int, ...]:
    return tuple(math.prod(shape) for shape in operation.inputs)


def _edges(positions: Positions, heads: Mapping[int, Operation]) -> dict[int, set[int]]:
    """Return by rank the ranks that it waits for; one that waits with others in the same operation has none."""
    edges: dict[int, set[int]] = {rank: set() for rank in positions.world}
    for rank, head in heads.items():
        for other in positions.members_of(head, rank):
            stand = positions.stand(other, head, rank)
            busy = stand is Stand.WITHIN and not _is_same(heads.get(other), head)
            if other != rank and (busy or stand in {Stand.BEFORE, Stand.UNKNOWN}):
                edges[rank].add(other)
    return edges


def _is_same(one: Operation | None, other: Operation) -> bool:
    if one is None or one.group != other.group:
        return False
    return one.peer is not None if other.peer is not None else one.peer is None and one.sequence == other.sequence


def _sinks(edges: Mapping[int, set[int]]) -> list[tuple[int, ...]]:
    """Return the strongly connected ranks that wait for no rank outside, and that somebody waits for or that wait."""
    component = _components(edges)
    members: dict[int, list[int]] = defaultdict(list)
    for rank, number in component.items():
        members[number].append(rank)
    leaves = {component[rank] for rank, others in edges.items() if any(component[other] != component[rank] for other in others)}
    return [tuple(sorted(ranks)) for number, ranks in sorted(members.items()) if number not in leaves]


def _components(edges: Mapping[int, set[int]]) -> dict[int, int]:
    """Return by node the number of its strongly connected component, by Tarjan's algorithm without recursion."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    found: dict[int, int] = {}
    open_nodes: list[int] = []
    for root in edges:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        open_nodes.append(root)
        work = [(root, iter(sorted(edges[root])))]
        while work:
            node, others = work[-1]
            for other in others:
                if other not in order:
                    order[other] = low[other] = len(order)
                    open_nodes.append(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other not in found:
                    low[node] = min(low[node], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    while open_nodes:
                        member = open_nodes.pop()
                        found[member] = node
                        if member == node:
                            break
    return found
