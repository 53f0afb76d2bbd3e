"""The order in which objects of several partitions of a stream are applied: S3's listing decides, not the events.

Each partition (a process and file kind, a worker) has its own sequence of integer positions, without a grid: no name
tells whether another one is missing before it::

    state: a cursor a partition, pending, max_seen, listed (up to where the stream's names were listed)
    on an object: at or below its partition's cursor -> duplicate;  else pending += object
    apply in order of position, once S3 was listed:
        all that is `lateness` behind max_seen (the horizon), when the horizon is `list_every` beyond listed
        what appears at or below listed, as of a partition that resumes: at once
    a listing begins where the last one ended, or at the cursor of a partition that it moves if that is earlier

S3 gets a partition's objects in their order, so no cursor passes an object that S3 has.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

UNLISTED = -1

LATENESS_US = 120_000_000
# Less than a rotation, so that one process does not wait.
LIST_EVERY_US = 50_000_000

SILENT_US = 600_000_000
FORGOTTEN_US = 3_600_000_000

MOST_PENDING = 100
MOST_PARTITIONS = 1_000


class Positioned(Protocol):
    @property
    def position(self) -> int:
        """The object's place in its partition, from 0; no two of a partition have the same."""
        ...

    @property
    def partition(self) -> str: ...


# Given two positions (None: the stream's start, its end), yields the stream's objects between them, and maybe others,
# with key, what the key says and last_modified: those that S3 has now or, with keys, had with these.
Listing = Callable[[int | None, int | None, Collection[str] | None], Iterable[tuple[str, Positioned, float]]]


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """An object that waits; ordered by position, then by key."""

    position: int
    key: str
    partition: str


@dataclass(slots=True)
class PartitionOrder:
    """Cursors of one stream's partitions and waiting objects; names are listed up to ``listed``.

    Distances are in the unit of positions. The newest position runs ``lateness`` ahead of an object that is applied.
    The horizon moves by ``list_every`` from one listing to the next, less than a partition's objects are apart. A
    partition is silent when it is ``silent`` behind the newest position, and forgotten when it is ``forgotten`` behind
    the newest cursor.
    """

    cursors: dict[str, int] = field(default_factory=dict)
    pending: dict[str, Arrival] = field(default_factory=dict)
    max_seen: int | None = None
    listed: int = UNLISTED
    floor: int = -1
    duplicates: int = 0
    lateness: int = LATENESS_US
    list_every: int = LIST_EVERY_US
    silent: int = SILENT_US
    forgotten: int = FORGOTTEN_US

    def restore(self, pending: Iterable[tuple[str, Positioned]]) -> None:
        for key, parsed in pending:
            self._await(key, parsed)

    def announce(self, key: str, parsed: Positioned) -> None:
        if self._is_applied(parsed) or key in self.pending:
            self.duplicates += 1
            return
        self._await(key, parsed)

    def ready(
        self, listing: Listing, *, drain: bool = False, modified_before: float | None = None
    ) -> Iterator[Arrival]:
        """Yield what can be applied now, moving the cursors along.

        ``listing`` is asked once in ``list_every``, and for what appears late. ``drain`` lists and applies everything,
        ``modified_before`` also all up to the newest object that S3 has had since this time or before (epoch seconds).
        """
        if drain or modified_before is not None:
            old = self._list(listing, self._seen(), None, modified_before)
            through = self._newest if drain else max(self._horizon, old)
        elif (due := self._due()) is not None:
            self._list(listing, self.listed, due)
            through = due
        else:
            return
        for arrival in self._waiting(through):
            self.listed = max(through, self.listed)
            del self.pending[arrival.key]
            self.cursors[arrival.partition] = max(arrival.position, self.cursors.get(arrival.partition, 0))
            yield arrival

    def _due(self) -> int | None:
        """Return up to where objects are to be applied now; None when none is."""
        ends = [arrival.position for arrival in self.pending.values()]
        horizon = self._horizon
        is_far = horizon - self.listed >= self.list_every
        if is_far and any(position <= horizon for position in ends):
            return horizon
        return max((position for position in ends if position <= self.listed), default=None)

    def _seen(self) -> int:
        """Return from where to list an ended or silent stream: from the oldest partition that is not silent."""
        newest = self._newest
        recent = [cursor for cursor in self.cursors.values() if newest - cursor < self.silent]
        return min(self.listed, max(min(recent, default=0), newest - self.forgotten))

    def _list(self, listing: Listing, start: int, end: int | None, modified_before: float | None = None) -> int:
        """List from where the moving partitions stand; return the newest position before ``modified_before``, or -1."""
        start = min(start, self._partitions_stand(end))
        old = self._take(listing, start, end, modified_before)
        while (stand := self._partitions_stand(end)) < start:
            start = stand
            old = self._take(listing, start, end, modified_before)
        return old

    def _partitions_stand(self, end: int | None) -> int:
        """Return the lowest cursor of partitions with objects up to ``end``; unknown ones began ``silent`` before."""
        stands = (
            self.cursors.get(arrival.partition, max(arrival.position - self.silent, self.floor))
            for arrival in self._waiting(end)
        )
        return min(stands, default=self._newest)

    def _take(self, listing: Listing, start: int, end: int | None, modified_before: float | None) -> int:
        having = None if end is None else [arrival.key for arrival in self._waiting(end)]
        old = -1
        for key, parsed, last_modified in listing(None if start < 0 else start, end, having):
            if self._is_applied(parsed) or (end is not None and parsed.position > end):
                continue
            self._await(key, parsed)
            if modified_before is not None and last_modified <= modified_before:
                old = max(parsed.position, old)
        return old

    def _waiting(self, end: int | None) -> list[Arrival]:
        return sorted(arrival for arrival in self.pending.values() if end is None or arrival.position <= end)

    def _is_applied(self, parsed: Positioned) -> bool:
        return parsed.position <= self.cursors.get(parsed.partition, self.floor)

    def _await(self, key: str, parsed: Positioned) -> None:
        self.pending[key] = Arrival(parsed.position, key, parsed.partition)
        self.max_seen = max(parsed.position, self._newest)

    @property
    def _newest(self) -> int:
        return self.max_seen or 0

    @property
    def _horizon(self) -> int:
        return self._newest - self.lateness

    @property
    def stored(self) -> dict[str, int]:
        """What waits, as stored: where that is much, its oldest. A listing finds the others again."""
        return {each.key: each.position for each in self._waiting(None)[:MOST_PENDING]}

    @property
    def applied(self) -> int:
        """Up to where all that S3 lists is applied: the next listing begins there."""
        return min([self.listed, *(arrival.position - 1 for arrival in self.pending.values())])

    def forget_partitions(self) -> int:
        """Forget partitions that are ``forgotten`` behind; return how many went only because there are many."""
        newest = max(self.cursors.values(), default=self.floor)
        waiting = {arrival.partition for arrival in self.pending.values()}
        kept: list[tuple[int, str]] = []
        for cursor, partition in sorted((cursor, partition) for partition, cursor in self.cursors.items()):
            if newest - cursor > self.forgotten and partition not in waiting:
                self._forget(partition)
            else:
                kept.append((cursor, partition))
        applied = self.applied
        many = [partition for cursor, partition in kept[: max(len(kept) - MOST_PARTITIONS, 0)] if cursor <= applied]
        for partition in many:
            self._forget(partition)
        return len(many)

    def _forget(self, partition: str) -> None:
        self.floor = max(self.cursors.pop(partition), self.floor)
