"""In which order a node's minutes are applied: the cursor, not the event, decides.

::

    state: cursor (last applied minute), pending, max_seen
    on a minute m:  m <= cursor -> duplicate, or late when m was skipped;  else pending += m
    apply ascending while  m == cursor + 60        (contiguous: no added latency)
                    or     m <= max_seen - 120 s   (a gap is jumped, not waited for)
    before a gap is jumped, and before the first minute of a node: list what S3 has; only what it lacks is a gap

After an outage a queue hands out its backlog in any order; the listing is what keeps the state a function of the set of
objects.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

MINUTE_S = 60
LATENESS_S = 120
REMEMBERED_GAPS = 64

Listing = Callable[[int | None], Iterable[tuple[str, int, float]]]
"""Given a cursor, yields (key, minute, last_modified) of the node's objects after it, in order."""


@dataclass(slots=True)
class MinuteOrder:
    """Cursor and pending minutes of one node's system stream.

    ``pending`` maps minutes to keys; ``skipped`` holds the newest minutes that were jumped.
    """

    cursor: int | None = None
    max_seen: int | None = None
    pending: dict[int, str] = field(default_factory=dict)
    skipped: list[int] = field(default_factory=list)
    gaps: int = 0
    late: int = 0
    duplicates: int = 0

    def announce(self, key: str, minute: int) -> None:
        """Take in a doorbell."""
        if self.cursor is not None and minute <= self.cursor:
            if minute in self.skipped:
                self.late += 1
            else:
                self.duplicates += 1
            return
        if minute in self.pending:
            self.duplicates += 1
        self._await(key, minute)

    def ready(
        self, listing: Listing, *, drain: bool = False, modified_before: float | None = None
    ) -> Iterator[tuple[int, str]]:
        """Yield (minute, key) of what can be applied now, moving the cursor along.

        Parameters
        ----------
        listing : Listing
            Asked at most once, when a gap would be jumped or the node is new.
        drain : bool
            The stream has ended: list, and apply everything.
        modified_before : float or None
            A silent node: list, and also apply what S3 has had since this time or before (epoch seconds).
        """
        listed = False
        old: set[int] = set()
        if drain or modified_before is not None:
            old = self._take(listing, modified_before)
            listed = True
        while self.pending:
            minute = min(self.pending)
            if not self._contiguous(minute):
                if not (drain or minute in old or self._overdue(minute)):
                    return
                if not listed:
                    self._take(listing, None)
                    listed = True
                    continue
            yield minute, self._advance(minute)

    def _take(self, listing: Listing, modified_before: float | None) -> set[int]:
        old: set[int] = set()
        for key, minute, last_modified in listing(self.cursor):
            if self.cursor is None or minute > self.cursor:
                self._await(key, minute)
                if modified_before is not None and last_modified <= modified_before:
                    old.add(minute)
        return old

    def _await(self, key: str, minute: int) -> None:
        self.pending[minute] = key
        self.max_seen = minute if self.max_seen is None else max(minute, self.max_seen)

    def _contiguous(self, minute: int) -> bool:
        return self.cursor is not None and minute <= self.cursor + MINUTE_S

    def _overdue(self, minute: int) -> bool:
        return self.max_seen is not None and minute <= self.max_seen - LATENESS_S

    def _advance(self, minute: int) -> str:
        if self.cursor is not None:
            missing = range(self.cursor + MINUTE_S, minute, MINUTE_S)
            self.gaps += len(missing)
            self.skipped = [*self.skipped, *missing[-REMEMBERED_GAPS:]][-REMEMBERED_GAPS:]
        self.cursor = minute
        return self.pending.pop(minute)
