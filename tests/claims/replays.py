"""Recomputes what ``trainguard stragglers`` says about a table: each step is walked operation by operation.

It follows docs/stragglers.md, and holds for whole tables that name the kinds of StragglerAnalysis.
"""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import mean, median
from typing import Any

FORWARD, BACKWARD = "forward-compute", "backward-compute"
PASSES = (FORWARD, BACKWARD)
GATHER, SCATTER = "params-all-gather", "grads-reduce-scatter"
MESSAGES = ("forward-send", "forward-recv", "backward-send", "backward-recv")
# What the members of a collective have in common.
SHARED = {
    GATHER: ("stage",),
    SCATTER: ("stage",),
    "separate-grads-all-reduce": ("stage",),
    "layernorm-grads-all-reduce": ("dp_rank", "stage"),
    "embedding-grads-all-reduce": ("dp_rank",),
    "optimizer-clip-main-grad": (),
}
SAME = 1e-6


@dataclass(eq=False)
class Operation:
    """A row: it begins once those of ``waits`` have ended, and ends with its group."""

    at: dict[str, int]
    kind: str
    host: str
    start: float
    end: float
    waits: list["Operation"] = field(default_factory=list)
    group: list["Operation"] = field(default_factory=list)

    @property
    def is_transfer(self) -> bool:
        return self.kind in SHARED or self.kind in MESSAGES

    @property
    def merged(self) -> str:
        """Its kind, where a send and its receive are one."""
        return f"{self.kind.split('-')[0]}-pp-comm" if self.kind in MESSAGES else self.kind

    @cached_property
    def lasting(self) -> float:
        """Seconds from the last member's start on."""
        return max(self.end - max(each.start for each in self.group), 0.0)


class Table:
    """The operations of a table by step, each with what it waits for."""

    def __init__(self, content: bytes) -> None:
        self.steps: dict[int, list[Operation]] = defaultdict(list)
        for row in csv.DictReader(io.StringIO(content.decode())):
            start, lasts = float(row["start_ts"]), float(row["duration"])
            at = {name: int(row[name]) for name in ("rank", "step", "dp_rank", "stage", "mc", "gmc", "mb_id", "seq_id")}
            self.steps[at["step"]].append(Operation(at, row["optype"], row["host"], start, start + lasts))
        for operations in self.steps.values():
            _link(operations)
        self.all = [each for operations in self.steps.values() for each in operations]
        by_kind: dict[str, list[Operation]] = defaultdict(list)
        for each in self.all:
            by_kind[each.kind].append(each)
        of = {kind: (median if found[0].is_transfer else mean) for kind, found in by_kind.items()}
        pace = {kind: of[kind](each.lasting for each in found) for kind, found in by_kind.items()}
        self.even = {each: pace[each.kind] for each in self.all}
        self.lasting = {each: each.lasting for each in self.all}

    def mean_step(self, lasting: dict[Operation, float]) -> float:
        return mean(_walk(operations, lasting) for operations in self.steps.values())

    def recorded(self) -> float:
        return mean(
            max(each.end for each in found) - min(each.start for each in found) for found in self.steps.values()
        )

    def slowdown(self, chosen: Callable[[Operation], bool]) -> float:
        """Return how many times as long a step takes with these as recorded and all others even."""
        mixed = {each: each.lasting if chosen(each) else self.even[each] for each in self.all}
        return self.mean_step(mixed) / self.mean_step(self.even)

    def saved(self, lasting: dict[Operation, float]) -> float:
        return 1.0 - self.mean_step(lasting) / self.mean_step(self.lasting)

    def at_peers(self, chosen: Callable[[Operation], bool], of_stage: bool) -> dict[Operation, float]:
        """Return what operations last with the chosen ones at the median of others of their kind."""
        others: dict[Any, list[float]] = defaultdict(list)

        def key(each: Operation) -> Any:
            return each.kind, each.at["stage"] if of_stage else None

        for each in self.all:
            if not chosen(each):
                others[key(each)].append(each.lasting)
        return {
            each: median(others[key(each)]) if chosen(each) and others[key(each)] else each.lasting for each in self.all
        }

    def paces(self) -> dict[int, dict[Any, float]]:
        """Return the median seconds of each rank's passes, by kind and part of the model."""
        found: dict[int, dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
        for each in self.all:
            if each.kind in PASSES:
                found[each.at["rank"]][each.kind, each.at["mc"]].append(each.lasting)
        return {rank: {like: median(values) for like, values in likes.items()} for rank, likes in found.items()}

    def peers(self) -> dict[int, dict[Any, float]]:
        """Return the median of the paces of the other ranks of each one's stage."""
        paces, stage = self.paces(), {each.at["rank"]: each.at["stage"] for each in self.all}
        found = {}
        for rank, likes in paces.items():
            others = [other for other in paces if other != rank and stage[other] == stage[rank]] or [rank]
            found[rank] = {like: median(paces[other][like] for other in others) for like in likes}
        return found


def _link(operations: list[Operation]) -> None:
    ranks: dict[int, list[Operation]] = defaultdict(list)
    for each in sorted(operations, key=lambda each: (each.start, each.at["seq_id"])):
        ranks[each.at["rank"]].append(each)
    groups: dict[Any, list[Operation]] = defaultdict(list)
    for rank, found in ranks.items():
        _in_order(found)
        for each in found:
            if each.kind in SHARED:
                shared = tuple(each.at[name] for name in SHARED[each.kind])
                groups[each.kind, shared, each.at["seq_id"]].append(each)
            elif each.kind not in MESSAGES:
                groups[rank, id(each)].append(each)
    passes = {(e.kind, e.at["dp_rank"], e.at["gmc"], e.at["mb_id"]): e for e in operations if e.kind in PASSES}
    _messages(operations, ranks, passes, groups)
    for members in groups.values():
        for each in members:
            each.group = members


def _in_order(found: list[Operation]) -> None:
    """Link the operations of a rank, which are in the order of their start."""
    passes = [each for each in found if each.kind in PASSES]
    scatters = [each for each in found if each.kind == SCATTER]
    has_other = any(each.kind == "separate-grads-all-reduce" for each in found)
    beside = scatters if has_other or any(each.start < passes[-1].end - 5e-5 for each in scatters) else []
    aside = [each for each in found if each.kind == GATHER or each in beside]
    line = [each for each in found if each not in aside and each.kind not in MESSAGES]
    for before, after in (*pairwise(line), *pairwise(aside)):
        after.waits.append(before)
    for each in aside:
        chunk = max(each.at["mc"], 0)
        mine = [one for one in passes if max(one.at["mc"], 0) == chunk]
        if each.kind == GATHER:
            next(one for one in mine if one.kind == FORWARD).waits.append(each)
        else:
            each.waits.append([one for one in mine if one.kind == BACKWARD][-1])
    then = [each for each in line[line.index(passes[-1]) + 1 :] if each.kind != "gc"]
    if beside and then:
        then[0].waits.append(beside[-1])


def _messages(
    operations: Sequence[Operation],
    ranks: dict[int, list[Operation]],
    passes: dict[Any, Operation],
    groups: dict[Any, list[Operation]],
) -> None:
    """Link sends, which come in the order of the passes that make them, with receives, of those that need them."""
    last = max(each.at["gmc"] for each in operations if each.kind in PASSES)
    for found in ranks.values():
        for kind, way in ((FORWARD, 1), (BACKWARD, -1)):
            name = kind.split("-")[0]
            mine = [each for each in found if each.kind == kind]
            made = [each for each in mine if 0 <= each.at["gmc"] + way <= last]
            needed = [each for each in mine if 0 <= each.at["gmc"] - way <= last]
            sends = [each for each in found if each.kind == f"{name}-send"]
            receives = [each for each in found if each.kind == f"{name}-recv"]
            for send, one in zip(sends, made, strict=True):
                send.waits.append(one)
                groups[name, one.at["dp_rank"], one.at["gmc"] + way, one.at["mb_id"]].append(send)
            for receive, one in zip(receives, needed, strict=True):
                one.waits.append(receive)
                at = mine.index(one)
                receive.waits += mine[at - 1 : at] if at else []
                groups[name, one.at["dp_rank"], one.at["gmc"], one.at["mb_id"]].append(receive)


def _walk(operations: Sequence[Operation], lasting: dict[Operation, float]) -> float:
    """Return when the last operation ends."""
    ends: dict[Operation, float] = {}
    left = list(operations)
    while left:
        later = []
        for each in left:
            if each in ends:
                continue
            waits = [before for one in each.group for before in one.waits]
            if all(before in ends for before in waits):
                ready = max((ends[before] for before in waits), default=0.0)
                ends.update((one, ready + lasting[one]) for one in each.group)
            else:
                later.append(each)
        assert len(later) < len(left), "operations wait for each other"
        left = later
    return max(ends.values())


def untrue(content: bytes, said: dict[str, Any]) -> list[str]:
    """Return what is said about a table and is not so, by its name."""
    table = Table(content)
    return [name for name, value, expected in _claims(table, said) if not _is_same(value, expected)]


def _is_same(value: Any, expected: Any) -> bool:
    if isinstance(expected, float):
        return value is not None and math.isclose(value, expected, rel_tol=SAME, abs_tol=SAME)
    return bool(value == expected)


def _claims(table: Table, said: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, what is said, and what is so."""
    recorded, replayed, even = table.recorded(), table.mean_step(table.lasting), table.mean_step(table.even)
    ranks = {each.at["rank"] for each in table.all}
    yield from (
        ("recorded_s", said["recorded_s"], recorded),
        ("replayed_s", said["replayed_s"], replayed),
        ("even_s", said["even_s"], even),
        ("slowdown", said["slowdown"], replayed / even),
        ("left_out", said["left_out"], 1.0 - replayed / recorded),
        ("steps", said["steps"], len(table.steps)),
        ("rank_count", said["rank_count"], len(ranks)),
        ("operation_count", said["operation_count"], len(table.all)),
    )
    for name, field_name in (("stages", "stage"), ("dp_ranks", "dp_rank"), ("ranks", "rank")):
        yield from _shares(table, name, field_name, said)
    for each in said["operations"]:
        kind = each["operation"]
        alike = {one for one in table.all if one.merged == kind}
        without = {one: table.even[one] if one in alike else one.lasting for one in table.all}
        yield f"operations {kind}", each["slowdown"], table.slowdown(alike.__contains__)
        yield f"operations {kind} saves", each["saves"], table.saved(without)
    listed = [each["slowdown"] for each in said["operations"]]
    yield "operations", listed, sorted(listed, reverse=True)
    yield "worst operation", said["worst"]["operation"], said["operations"][0]["operation"]
    for cause in said["causes"]:
        yield from _of_cause(table, cause)


def _shares(table: Table, name: str, field_name: str, said: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    places = {each.at[field_name] for each in table.all}
    yield f"{name} listed", {each[field_name] for each in said[name]}, places
    listed = [each["slowdown"] for each in said[name]]
    yield name, listed, sorted(listed, reverse=True)
    if len(places) > 1:
        yield f"worst {field_name}", said["worst"][field_name], said[name][0][field_name]
    of_rank = {each.at["rank"]: each.at for each in table.all}
    for each in said[name]:
        at = each[field_name]

        def is_its(one: Operation, what: str = field_name, at: int = at) -> bool:
            return one.at[what] == at

        if field_name == "rank":
            mine = of_rank[at]
            of_its = (
                table.slowdown(lambda one, what=what, mine=mine: bool(one.at[what] == mine[what]))  # type: ignore[misc]
                for what in ("stage", "dp_rank")
            )
            yield f"{name} {at}", each["slowdown"], min(of_its)
        else:
            yield f"{name} {at}", each["slowdown"], table.slowdown(is_its)
        if each["saves"] is not None:
            yield f"{name} {at} saves", each["saves"], table.saved(table.at_peers(is_its, field_name != "stage"))


def _of_cause(table: Table, cause: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield what is said about slow ranks, or those of a machine or a copy, and of the kind of transfers."""
    if cause["kind"] == "transfers":
        without = {each: table.even[each] if each.is_transfer else each.lasting for each in table.all}
        yield "transfers save", cause["saves"], table.saved(without)
    if cause["kind"] not in {"ranks", "host", "copy"} or cause["in_steps"] is not None:
        return
    paces, peers = table.paces(), table.peers()
    times = {rank: sum(paces[rank].values()) / sum(peers[rank].values()) for rank in paces}
    slow = cause["ranks"]
    yield "slow ranks", slow, sorted(slow, key=lambda rank: -times[rank])
    yield "slowest", slow[0], max(times, key=lambda rank: times[rank])
    yield "times", cause["times"], max(times[rank] for rank in slow)
    faster = {each: each.lasting for each in table.all}
    for each in table.all:
        rank, like = each.at["rank"], (each.kind, each.at["mc"])
        if rank in slow and each.kind in PASSES:
            faster[each] *= peers[rank][like] / paces[rank][like]
    yield "saves", cause["saves"], table.saved(faster)
    if cause["kind"] == "host":
        yield "host", {each.host for each in table.all if each.at["rank"] in slow}, {cause["host"]}
    if cause["kind"] == "copy":
        yield "copy", {each.at["dp_rank"] for each in table.all if each.at["rank"] in slow}, {cause["dp_rank"]}
