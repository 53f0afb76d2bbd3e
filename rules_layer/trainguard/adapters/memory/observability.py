"""A journal that tests read."""

import threading
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One call of ``count``."""

    what: str
    amount: int
    where: "Mapping[str, object]"


class MemoryJournal:
    """Twin of PowertoolsJournal. It speaks to no service, so it is no place for faults."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: list[JournalEntry] = []
        self._times: list[tuple[str, float]] = []

    def count(self, what: str, amount: int = 1, **where: object) -> None:
        """Remember what happened."""
        with self._lock:
            self._entries.append(JournalEntry(what, amount, MappingProxyType(where)))

    def measure(self, what: str, seconds: float) -> None:
        """Remember a time."""
        with self._lock:
            self._times.append((what, seconds))

    @property
    def times(self) -> tuple[tuple[str, float], ...]:
        """Every time that was measured, in order: what, and seconds."""
        with self._lock:
            return tuple(self._times)

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Everything that was counted, in order."""
        with self._lock:
            return tuple(self._entries)

    @property
    def totals(self) -> Counter[str]:
        """Sum of the amounts of each thing that was counted."""
        totals: Counter[str] = Counter()
        for entry in self.entries:
            totals[entry.what] += entry.amount
        return totals
