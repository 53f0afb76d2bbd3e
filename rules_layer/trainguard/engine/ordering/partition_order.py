"""In which order a node's framework objects are applied: what S3 lists decides, not what rang.

They have no minute grid. Each process and file kind (a lane) has its own stream, named by the end of its last event. A
process that has nothing to say writes nothing, and one whose file is full writes early, so no name tells whether
another one is missing before it::

    state: a cursor a lane, pending, max_seen, listed (up to where the node's names were listed)
    on an object: at or below its lane's cursor -> duplicate;  else pending += object
    apply in order of time, once S3 was listed:
        all that is 120 s behind max_seen (the horizon), when the horizon is 50 s beyond listed
        what appears at or below listed, as of a process that wakes: at once
    a listing begins where the last one ended, or at the cursor of a lane that it moves if that is earlier

S3 gets a lane's objects in their order. So a listing made when an object is there has all before it in its lane: no
cursor passes an object that S3 has, and however messages come, the state is a function of the set of objects.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from trainguard.telemetry.keys import FrameworkKey, FrameworkName

LATENESS_US = 120_000_000
LIST_EVERY_US = 50_000_000
"""How far the horizon moves from one listing to the next: less than a rotation, so that one process does not wait."""

SILENT_US = 600_000_000
FORGOTTEN_US = 3_600_000_000
UNLISTED = -1

MOST_PENDING = 100
MOST_PARTITIONS = 1_000

Listing = Callable[[int | None, int | None, Collection[str] | None], Iterable[FrameworkName]]
"""Given two times in µs (None: the stream's start, its end), yields the node's objects from the first to the second,
and maybe others of it. They are those that S3 has now or, where keys are given, those that it had when it had these."""


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """An object that waits; ordered by time, then by key."""

    end_us: int
    key: str
    partition: str


@dataclass(slots=True)
class PartitionOrder:
    """Cursors of one node's lanes and what waits.

    Up to ``listed_us`` the node's names were listed. What lanes that were forgotten had applied lies at or below
    ``floor_us``.
    """

    cursors: dict[str, int] = field(default_factory=dict)
    pending: dict[str, Arrival] = field(default_factory=dict)
    max_seen_us: int | None = None
    listed_us: int = UNLISTED
    floor_us: int = -1
    duplicates: int = 0

    def restore(self, pending: Iterable[tuple[str, FrameworkKey]]) -> None:
        """Take back what waited when the item was written."""
        for key, parsed in pending:
            self._await(key, parsed)

    def announce(self, key: str, parsed: FrameworkKey) -> None:
        """Take in a message."""
        if self._is_applied(parsed) or key in self.pending:
            self.duplicates += 1
            return
        self._await(key, parsed)

    def ready(
        self, listing: Listing, *, drain: bool = False, modified_before: float | None = None
    ) -> Iterator[Arrival]:
        """Yield what can be applied now, moving the cursors along.

        Parameters
        ----------
        listing : Listing
            Asked only when there is something to apply: once in 50 s of event time, and for what appears late.
        drain : bool
            The stream has ended: list, and apply everything.
        modified_before : float or None
            A silent node: list, and also apply all up to the newest object that S3 has had since this time or before
            (epoch seconds).
        """
        if drain or modified_before is not None:
            old_us = self._list(listing, self._seen_us(), None, modified_before)
            through_us = self._newest_us if drain else max(self._horizon_us, old_us)
        elif (due_us := self._due_us()) is not None:
            self._list(listing, self.listed_us, due_us)
            through_us = due_us
        else:
            return
        for arrival in self._waiting(through_us):
            self.listed_us = max(through_us, self.listed_us)
            del self.pending[arrival.key]
            self.cursors[arrival.partition] = max(arrival.end_us, self.cursors.get(arrival.partition, 0))
            yield arrival

    def _due_us(self) -> int | None:
        """Return up to where objects are to be applied now; None when none is."""
        ends = [arrival.end_us for arrival in self.pending.values()]
        horizon_us = self._horizon_us
        is_far = horizon_us - self.listed_us >= LIST_EVERY_US
        if is_far and any(end_us <= horizon_us for end_us in ends):
            return horizon_us
        return max((end_us for end_us in ends if end_us <= self.listed_us), default=None)

    def _seen_us(self) -> int:
        """Return from where to list a stream that has ended or is silent.

        That is the oldest lane that is not silent, an hour back at most, and never behind what was listed.
        """
        newest_us = self._newest_us
        heard = [cursor for cursor in self.cursors.values() if newest_us - cursor < SILENT_US]
        return min(self.listed_us, max(min(heard, default=0), newest_us - FORGOTTEN_US))

    def _list(self, listing: Listing, from_us: int, to_us: int | None, modified_before: float | None = None) -> int:
        """List, at least from where the lanes stand that will move; again where that finds a lane further back.

        Returns the newest end among the objects that S3 has had since ``modified_before``, -1 without any.
        """
        from_us = min(from_us, self._partitions_stand_us(to_us))
        old_us = self._take(listing, from_us, to_us, modified_before)
        while (lanes_us := self._partitions_stand_us(to_us)) < from_us:
            from_us = lanes_us
            old_us = self._take(listing, from_us, to_us, modified_before)
        return old_us

    def _partitions_stand_us(self, to_us: int | None) -> int:
        """Return the lowest cursor of the lanes that have objects to apply up to a time.

        A lane that is not known may have begun ten minutes before the first object that is known of it.
        """
        stands = (
            self.cursors.get(arrival.partition, max(arrival.end_us - SILENT_US, self.floor_us))
            for arrival in self._waiting(to_us)
        )
        return min(stands, default=self._newest_us)

    def _take(self, listing: Listing, from_us: int, to_us: int | None, modified_before: float | None) -> int:
        having = None if to_us is None else [arrival.key for arrival in self._waiting(to_us)]
        old_us = -1
        for key, parsed, last_modified in listing(None if from_us < 0 else from_us, to_us, having):
            if self._is_applied(parsed) or (to_us is not None and parsed.end_us > to_us):
                continue
            self._await(key, parsed)
            if modified_before is not None and last_modified <= modified_before:
                old_us = max(parsed.end_us, old_us)
        return old_us

    def _waiting(self, to_us: int | None) -> list[Arrival]:
        """Return what waits up to a time (None: all), in order."""
        return sorted(arrival for arrival in self.pending.values() if to_us is None or arrival.end_us <= to_us)

    def _is_applied(self, parsed: FrameworkKey) -> bool:
        return parsed.end_us <= self.cursors.get(parsed.partition, self.floor_us)

    def _await(self, key: str, parsed: FrameworkKey) -> None:
        self.pending[key] = Arrival(parsed.end_us, key, parsed.partition)
        self.max_seen_us = max(parsed.end_us, self._newest_us)

    @property
    def _newest_us(self) -> int:
        return self.max_seen_us or 0

    @property
    def _horizon_us(self) -> int:
        return self._newest_us - LATENESS_US

    @property
    def stored(self) -> dict[str, int]:
        """What is to be stored of what waits: where that is much, its oldest. A listing finds the others again."""
        return {each.key: each.end_us for each in self._waiting(None)[:MOST_PENDING]}

    @property
    def applied_us(self) -> int:
        """Up to where all that S3 lists is applied: where the next listing begins."""
        return min([self.listed_us, *(arrival.end_us - 1 for arrival in self.pending.values())])

    def forget_partitions(self) -> int:
        """Forget lanes that have been silent for an hour; return how many were forgotten only because there are many.

        What they had applied lies at or below ``floor_us``.
        """
        newest = max(self.cursors.values(), default=0)
        waiting = {arrival.partition for arrival in self.pending.values()}
        kept: list[tuple[int, str]] = []
        for cursor, partition in sorted((cursor, partition) for partition, cursor in self.cursors.items()):
            if newest - cursor > FORGOTTEN_US and partition not in waiting:
                self._forget(partition)
            else:
                kept.append((cursor, partition))
        applied_us = self.applied_us
        many = [partition for cursor, partition in kept[: max(len(kept) - MOST_PARTITIONS, 0)] if cursor <= applied_us]
        for partition in many:
            self._forget(partition)
        return len(many)

    def _forget(self, partition: str) -> None:
        self.floor_us = max(self.cursors.pop(partition), self.floor_us)
