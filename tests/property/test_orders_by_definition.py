"""Both orders beside their definitions, written once more in the plainest way, over many random deliveries.

Positions lie on a coarse lattice that holds every distance at which something changes, and a step to both sides of it.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from trainguard.engine.ordering.grid_order import MOST_DEFERRED_S, GridOrder
from trainguard.engine.ordering.partition_order import PartitionOrder

GRID, FAR = 60, 120
LATENESS, LIST_EVERY, SILENT, FORGOTTEN = 4, 3, 6, 12


@dataclass
class Minutes:
    """What a stream on a grid has applied, what waits, and what was jumped."""

    cursor: int | None = None
    waiting: dict[int, str] = field(default_factory=dict)
    newest: int | None = None
    jumped: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"gaps": 0, "late": 0, "duplicates": 0})

    def take(self, position: int) -> None:
        """Let an object that is known wait."""
        self.waiting[position] = f"k{position}"
        self.newest = max(position, self.newest or 0)

    def announce(self, position: int) -> None:
        """Take in a message: of what is applied, jumped or known already, or of what is new."""
        applied = self.cursor is not None and position <= self.cursor
        if applied and position in self.jumped:
            self.counts["late"] += 1
        elif applied or position in self.waiting:
            self.counts["duplicates"] += 1
        if not applied:
            self.take(position)

    def defers(self, positions: Iterable[int], every: int) -> bool:
        """Whether nothing waits, and all lie ahead of the cursor by less than the interval, at most five minutes."""
        if self.cursor is None or self.waiting:
            return False
        return all(each - self.cursor < min(every, 300) and each not in self.jumped for each in positions)

    def ready(
        self, stored: dict[int, float], fetchable: set[int], asked: list[object], drain: bool, before: float | None
    ) -> Iterator[int]:
        """Yield what may be applied; ``asked`` notes each question to S3."""
        listed = drain or before is not None
        if listed:
            self._list(stored, asked)
        old = {each for each, at in stored.items() if before is not None and at <= before}
        fetched: set[int] = set()
        while self.waiting:
            lowest = min(self.waiting)
            follows = self.cursor is not None and lowest - self.cursor <= GRID
            if not follows and not listed and self._fetch(lowest, fetchable, fetched, asked):
                continue
            assert self.newest is not None
            if not (follows or drain or lowest in old or self.newest - lowest >= FAR):
                return
            if not (follows or listed):
                self._list(stored, asked)
                listed = True
                continue
            if self.cursor is not None:
                missing = list(range(self.cursor + GRID, lowest, GRID))
                self.counts["gaps"] += len(missing)
                self.jumped = [*self.jumped, *missing][-64:]
            self.cursor = lowest
            del self.waiting[lowest]
            yield lowest

    def _list(self, stored: dict[int, float], asked: list[object]) -> None:
        asked.append(("listed", self.cursor))
        for each in stored:
            if self.cursor is None or each > self.cursor:
                self.take(each)

    def _fetch(self, lowest: int, fetchable: set[int], fetched: set[int], asked: list[object]) -> bool:
        if self.cursor is None:
            return False
        here = [each for each in range(self.cursor + GRID, lowest, GRID) if each < self.cursor + 300]
        new = [each for each in here if each not in fetched]
        asked.extend(("fetched", each) for each in new)
        fetched.update(new)
        for each in new:
            if each in fetchable:
                self.take(each)
        return any(each in fetchable for each in new)


@pytest.mark.parametrize("seed", range(10))
def test_minutes_in_any_arrival_match_the_definition(seed: int) -> None:
    draw = np.random.default_rng(seed)
    for _ in range(20):
        order, plain, last = GridOrder(), Minutes(), int(draw.choice([6, 12, 90]))
        for _ in range(draw.integers(4, 12)):
            one_evaluation(draw, order, plain, last)
            assert (order.cursor, order.max_seen, order.pending) == (plain.cursor, plain.newest, plain.waiting)
            assert order.skipped == plain.jumped
            assert {"gaps": order.gaps, "late": order.late, "duplicates": order.duplicates} == plain.counts


def one_evaluation(draw: np.random.Generator, order: GridOrder, plain: Minutes, last: int) -> None:
    """Let messages come, and compare what is dropped, what S3 is asked, and what is applied."""
    stored = {GRID * each: float(each % 4) for each in range(last) if draw.random() < 0.6}
    for position in draw.integers(last, size=draw.integers(3)).tolist():
        order.announce(f"k{GRID * position}", GRID * position)
        plain.announce(GRID * position)
    some = [GRID * each for each in draw.integers(last, size=draw.integers(3)).tolist()]
    for every in (GRID, 240, MOST_DEFERRED_S, 600):
        assert order.defers(some, every) == plain.defers(some, every)
    drain, before = draw.random() < 0.1, 1.0 if draw.random() < 0.25 else None
    asked: list[object] = []
    expected_asked: list[object] = []
    fetchable = {each for each in stored if draw.random() < 0.5}

    def listing(cursor: int | None) -> list[tuple[str, int, float]]:
        asked.append(("listed", cursor))
        # What S3 lists may begin before the cursor.
        return [(f"k{each}", each, at) for each, at in stored.items()]

    def fetch(position: int) -> str | None:
        asked.append(("fetched", position))
        return f"k{position}" if position in fetchable else None

    applied = list(order.ready(listing, fetch=fetch, drain=drain, modified_before=before))
    expected = list(plain.ready(stored, fetchable, expected_asked, drain, before))
    assert applied == [(each, f"k{each}") for each in expected]
    assert asked == expected_asked


@dataclass(frozen=True, slots=True)
class Written:
    """An object of a partition, and when S3 got it."""

    position: int
    partition: str
    at: float

    @property
    def key(self) -> str:
        """The object's key: of one position, that of the later partition is the first."""
        return f"{self.position:03d}_{chr(ord('z') - int(self.partition))}"


@dataclass
class Partitions:
    """What each partition of a stream has applied, what waits, and up to where names were listed."""

    cursors: dict[str, int] = field(default_factory=dict)
    waiting: set[Written] = field(default_factory=set)
    newest: int = 0
    listed: int = -1
    floor: int = -1
    duplicates: int = 0

    def take(self, written: Written) -> None:
        """Let an object that is known wait."""
        self.waiting.add(written)
        self.newest = max(self.newest, written.position)

    def is_applied(self, written: Written) -> bool:
        """Whether an object lies at or below its partition's cursor, or at or below what was forgotten."""
        return written.position <= self.cursors.get(written.partition, self.floor)

    def announce(self, written: Written) -> None:
        """Take in a message."""
        if self.is_applied(written) or written in self.waiting:
            self.duplicates += 1
        else:
            self.take(written)

    def ready(self, stored: Collection[Written], asked: list[object], drain: bool, before: float | None) -> list[str]:
        """Return the keys that may be applied, in order; ``asked`` notes each listing."""
        horizon = self.newest - LATENESS
        if drain or before is not None:
            heard = [each for each in self.cursors.values() if self.newest - each < SILENT]
            oldest = max(min(heard, default=0), self.newest - FORGOTTEN)
            old = self._list(stored, asked, min(self.listed, oldest), None, before)
            through = self.newest if drain else max(self.newest - LATENESS, old)
        elif horizon - self.listed >= LIST_EVERY and any(each.position <= horizon for each in self.waiting):
            through = horizon
            self._list(stored, asked, self.listed, through, None)
        elif any(each.position <= self.listed for each in self.waiting):
            through = max(each.position for each in self.waiting if each.position <= self.listed)
            self._list(stored, asked, self.listed, through, None)
        else:
            return []
        now = sorted((each.position, each.key, each) for each in self.waiting if each.position <= through)
        for position, _, each in now:
            self.listed = max(self.listed, through)
            self.cursors[each.partition] = position
            self.waiting.discard(each)
        return [key for _, key, _ in now]

    def _list(
        self, stored: Collection[Written], asked: list[object], start: int, end: int | None, before: float | None
    ) -> int:
        """List from where the partitions stand that move, again where one is found that stands further back."""
        while True:
            start = min(start, self._stand(end))
            having = None if end is None else sorted(each.key for each in self.waiting if each.position <= end)
            asked.append((None if start < 0 else start, end, having))
            old = -1
            for each in stored:
                if not self.is_applied(each) and (end is None or each.position <= end):
                    self.take(each)
                    old = max(old, each.position) if before is not None and each.at <= before else old
            if self._stand(end) >= start:
                return old

    def _stand(self, end: int | None) -> int:
        return min(
            (
                self.cursors.get(each.partition, max(each.position - SILENT, self.floor))
                for each in self.waiting
                if end is None or each.position <= end
            ),
            default=self.newest,
        )

    def forget(self) -> None:
        """Forget the partitions that are far behind the newest cursor, and of which nothing waits."""
        newest = max(self.cursors.values(), default=0)
        waiting = {each.partition for each in self.waiting}
        for partition, cursor in sorted(self.cursors.items()):
            if newest - cursor > FORGOTTEN and partition not in waiting:
                self.floor = max(self.floor, self.cursors.pop(partition))


def uploaded(draw: np.random.Generator) -> list[Written]:
    """Return objects of a few partitions, some of which are behind, as S3 gets them."""
    last, behind = draw.choice([8, 20, 40]), draw.choice([0, 0, 3, 9], size=4).tolist()
    names = {(int(draw.integers(last)), int(draw.integers(4))) for _ in range(draw.integers(3, 30))}
    in_turn = sorted(names, key=lambda name: (name[0] + behind[name[1]], name))
    return [Written(position, str(partition), float(draw.integers(3))) for position, partition in in_turn]


@pytest.mark.parametrize("seed", range(10))
def test_partitions_in_any_arrival_match_the_definition(seed: int) -> None:
    draw = np.random.default_rng(seed)
    for _ in range(40):
        order, plain, written = (
            PartitionOrder(lateness=LATENESS, list_every=LIST_EVERY, silent=SILENT, forgotten=FORGOTTEN),
            Partitions(),
            uploaded(draw),
        )
        for there in sorted(draw.integers(len(written) + 1, size=6).tolist()):
            one_listing(draw, order, plain, written[:there])
            assert sorted(order.pending) == sorted(each.key for each in plain.waiting)
            assert order.applied == min([plain.listed, *(each.position - 1 for each in plain.waiting)])
            assert order.forget_partitions() == 0
            plain.forget()
            assert (order.cursors, order.listed, order.floor) == (plain.cursors, plain.listed, plain.floor)
            assert (order.max_seen or 0, order.duplicates) == (plain.newest, plain.duplicates)


def one_listing(draw: np.random.Generator, order: PartitionOrder, plain: Partitions, stored: list[Written]) -> None:
    """Let messages come, and compare what S3 is asked and what is applied."""
    for place in draw.integers(len(stored), size=draw.integers(4)).tolist() if stored else []:
        each = stored[place]
        order.announce(each.key, each)
        plain.announce(each)
    drain, before = draw.random() < 0.15, 1.0 if draw.random() < 0.3 else None
    asked: list[object] = []
    expected_asked: list[object] = []

    def listing(start: int | None, end: int | None, having: Collection[str] | None) -> list[tuple[str, Written, float]]:
        asked.append((start, end, None if having is None else sorted(having)))
        # What S3 lists may be more than it was asked for.
        return [(each.key, each, each.at) for each in stored]

    applied = [each.key for each in order.ready(listing, drain=drain, modified_before=before)]
    assert applied == plain.ready(stored, expected_asked, drain, before)
    assert asked == expected_asked


def test_stored_partitions_keep_100_objects_and_1000_cursors() -> None:
    order = PartitionOrder(lateness=10**6, list_every=1, silent=10**7, forgotten=10**7)
    written = [Written(number, str(number % 1_003), 0.0) for number in range(2_006)]
    for each in written:
        order.announce(f"{each.position:09d}", each)
    assert list(order.stored.values()) == list(range(100))
    listed = [(f"{each.position:09d}", each, 0.0) for each in written]
    assert len(list(order.ready(lambda *_: listed, drain=True))) == 2_006
    assert (order.forget_partitions(), len(order.cursors), order.floor) == (3, 1_000, 1_005)
