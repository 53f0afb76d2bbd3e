"""The order of objects on a grid of positions, such as minutes or steps: the cursor, not the event, decides.

::

    state: cursor (last applied position), pending, max_seen
    on a position p:  p <= cursor -> duplicate, or late when p was skipped;  else pending += p
    apply ascending while  p == cursor + spacing      (contiguous: no added latency)
                    or     p <= max_seen - lateness   (a gap is jumped, not waited for)
    before a gap is jumped, and before the first position of a unit: list what S3 has; only what it lacks is a gap

After an outage a queue delivers its backlog in any order; the listing keeps the state a function of the set of objects.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

MINUTE_S = 60
LATENESS_S = 120
REMEMBERED_GAPS = 64

# The longest interval of evaluation: messages of positions further ahead of the cursor are never dropped.
MOST_DEFERRED_S = 300

# Given a cursor, yields (key, position, last_modified) of the unit's objects after it, in order.
Listing = Callable[[int | None], Iterable[tuple[str, int, float]]]

# Given a position, returns the key of the unit's object there; None when S3 has none.
Fetch = Callable[[int], str | None]


@dataclass(slots=True)
class GridOrder:
    """Cursor and pending positions of one stream.

    ``pending`` maps positions to keys; ``skipped`` holds the newest positions that were jumped. ``spacing`` and
    ``lateness`` (how far the newest position runs ahead of a gap that is jumped) are in the unit of positions.
    """

    cursor: int | None = None
    max_seen: int | None = None
    pending: dict[int, str] = field(default_factory=dict)
    skipped: list[int] = field(default_factory=list)
    gaps: int = 0
    late: int = 0
    duplicates: int = 0
    spacing: int = MINUTE_S
    lateness: int = LATENESS_S

    def announce(self, key: str, position: int) -> None:
        if self.cursor is not None and position <= self.cursor:
            if position in self.skipped:
                self.late += 1
            else:
                self.duplicates += 1
            return
        if position in self.pending:
            self.duplicates += 1
        self._await(key, position)

    def defers(self, positions: Collection[int], every: int) -> bool:
        """Whether messages may be dropped: each lies less than ``every`` ahead of the cursor, nothing waits."""
        if self.cursor is None or self.pending:
            return False
        newest = self.cursor + min(every, MOST_DEFERRED_S)
        return all(position < newest and position not in self.skipped for position in positions)

    def ready(
        self,
        listing: Listing,
        *,
        fetch: Fetch = lambda _: None,
        drain: bool = False,
        modified_before: float | None = None,
    ) -> Iterator[tuple[int, str]]:
        """Yield (position, key) of what can be applied now, moving the cursor along.

        ``listing`` is asked at most once, when a gap would be jumped or the node is new; ``fetch`` for positions right
        behind the cursor whose messages may have been dropped, each at most once. ``drain`` lists and applies
        everything, ``modified_before`` also what S3 has had since this time or before (epoch seconds).
        """
        listed = False
        old: set[int] = set()
        asked: set[int] = set()
        if drain or modified_before is not None:
            old = self._take(listing, modified_before)
            listed = True
        while self.pending:
            position = min(self.pending)
            if self.cursor is None or position > self.cursor + self.spacing:
                if not listed and self._fetched(fetch, position, asked):
                    continue
                if not (drain or position in old or self._overdue(position)):
                    return
                if not listed:
                    self._take(listing, None)
                    listed = True
                    continue
            yield position, self._advance(position)

    def _fetched(self, fetch: Fetch, before: int, asked: set[int]) -> bool:
        """Whether an object before position ``before`` was found whose message may have been dropped."""
        if self.cursor is None:
            return False
        found = False
        for position in range(self.cursor + self.spacing, min(before, self.cursor + MOST_DEFERRED_S), self.spacing):
            if position not in asked:
                asked.add(position)
                key = fetch(position)
                if key is not None:
                    self._await(key, position)
                    found = True
        return found

    def _take(self, listing: Listing, modified_before: float | None) -> set[int]:
        old: set[int] = set()
        for key, position, last_modified in listing(self.cursor):
            if self.cursor is None or position > self.cursor:
                self._await(key, position)
                if modified_before is not None and last_modified <= modified_before:
                    old.add(position)
        return old

    def _await(self, key: str, position: int) -> None:
        self.pending[position] = key
        self.max_seen = position if self.max_seen is None else max(position, self.max_seen)

    def _overdue(self, position: int) -> bool:
        return self.max_seen is not None and position <= self.max_seen - self.lateness

    def _advance(self, position: int) -> str:
        if self.cursor is not None:
            missing = range(self.cursor + self.spacing, position, self.spacing)
            self.gaps += len(missing)
            self.skipped = [*self.skipped, *missing[-REMEMBERED_GAPS:]][-REMEMBERED_GAPS:]
        self.cursor = position
        return self.pending.pop(position)
