"""In which order a node's framework objects are applied.

They have no minute grid: each process and file kind (a lane) has its own stream, named by the end of its last event,
and a process that has nothing to say writes nothing. So each lane has a cursor, and the node's objects are applied in
order of time once the newest of them is 120 s ahead (the horizon). Where a lane has no object although one was due,
going by its last distance of two objects and by rotation at 60 s, an object's doorbell may not have rung: S3 is listed
before anything beyond is applied. A lane that has been silent for ten minutes is due no more, and a lane of traces of
TensorFlow's profiler never is: they come when a step is profiled.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from trainguard.telemetry.keys import TF_TRACE, FrameworkKey

LATENESS_US = 120_000_000
LONGEST_JUMP_US = 90_000_000
JUMP_FACTOR = 1.5
DUE_FACTOR = 0.9
ROTATION_US = 60_000_000
SILENT_US = 600_000_000
NEW_LANE_LOOKBACK_US = 3_600_000_000

Listing = Callable[[int | None], Iterable[tuple[str, FrameworkKey, float]]]
"""Given a time in µs (None: the stream's start), yields (key, parsed, last_modified) of the node's objects after it."""


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """An object that waits; ordered by time, then by key."""

    end_us: int
    key: str
    lane: str


@dataclass(slots=True)
class LaneOrder:
    """Cursors of one node's lanes and what waits; ``spacing_us`` is each lane's last distance of two objects."""

    cursors: dict[str, int] = field(default_factory=dict)
    spacing_us: dict[str, int] = field(default_factory=dict)
    pending: dict[str, Arrival] = field(default_factory=dict)
    max_seen_us: int | None = None
    floor_us: int = -1
    duplicates: int = 0

    def restore(self, pending: Iterable[tuple[str, FrameworkKey]]) -> None:
        """Take back what waited when the item was written."""
        for key, parsed in pending:
            self._await(key, parsed)

    def announce(self, key: str, parsed: FrameworkKey) -> None:
        """Take in a doorbell."""
        if parsed.end_us <= self.cursors.get(parsed.lane, self.floor_us) or key in self.pending:
            self.duplicates += 1
            return
        self._await(key, parsed)

    def ready(
        self, listing: Listing, *, drain: bool = False, modified_before: float | None = None
    ) -> Iterator[Arrival]:
        """Yield what can be applied now, moving the cursors along; parameters as in MinuteOrder.ready."""
        old: set[str] = set()
        if drain or modified_before is not None:
            old = self._take(listing, self._oldest_cursor(), modified_before)
        elif settled := self._settled(drain=False, old=old):
            suspicious = self._suspicious(settled)
            if suspicious:
                self._take(listing, self._list_from(suspicious, settled), None)
        for arrival in self._settled(drain=drain, old=old):
            self._advance(arrival)
            yield arrival

    def _settled(self, *, drain: bool, old: set[str]) -> list[Arrival]:
        return sorted(
            arrival
            for arrival in self.pending.values()
            if drain or arrival.end_us <= self._horizon_us or arrival.key in old
        )

    @property
    def _horizon_us(self) -> int:
        return (self.max_seen_us or 0) - LATENESS_US

    def _suspicious(self, settled: list[Arrival]) -> list[str]:
        """Return the lanes of which an object may be missing up to the horizon."""
        ends: dict[str, list[int]] = {lane: [cursor] for lane, cursor in self.cursors.items()}
        for arrival in settled:
            ends.setdefault(arrival.lane, []).append(arrival.end_us)
        return [lane for lane, positions in ends.items() if lane not in self.cursors or self._lacks(lane, positions)]

    def _lacks(self, lane: str, positions: list[int]) -> bool:
        if lane.endswith(f"/{TF_TRACE}"):
            return False
        spacing = self.spacing_us.get(lane, ROTATION_US)
        longest = min(JUMP_FACTOR * spacing, LONGEST_JUMP_US)
        if any(later - earlier > longest for earlier, later in pairwise(positions)):
            return True
        return DUE_FACTOR * spacing < self._horizon_us - positions[-1] < SILENT_US

    def _list_from(self, suspicious: list[str], settled: list[Arrival]) -> int | None:
        if not self.cursors:
            return None
        known = [self.cursors[lane] for lane in suspicious if lane in self.cursors]
        new = [each.end_us - NEW_LANE_LOOKBACK_US for each in settled if each.lane not in self.cursors]
        return min([*known, *new])

    def _oldest_cursor(self) -> int | None:
        """Return from where to list at a stream's end: the oldest lane that is not silent, an hour back at most."""
        if not self.cursors:
            return None
        newest = self.max_seen_us or 0
        heard = [cursor for cursor in self.cursors.values() if newest - cursor < SILENT_US]
        return max(min(heard, default=0), newest - NEW_LANE_LOOKBACK_US)

    def forget_silent_lanes(self) -> None:
        """Drop lanes that have been silent for an hour; what they had applied lies at or below ``floor_us``."""
        newest = self.max_seen_us or 0
        waiting = {arrival.lane for arrival in self.pending.values()}
        for lane, cursor in list(self.cursors.items()):
            if newest - cursor > NEW_LANE_LOOKBACK_US and lane not in waiting:
                self.floor_us = max(cursor, self.floor_us)
                del self.cursors[lane]
                self.spacing_us.pop(lane, None)

    def _take(self, listing: Listing, after_us: int | None, modified_before: float | None) -> set[str]:
        old: set[str] = set()
        for key, parsed, last_modified in listing(after_us):
            if parsed.end_us > self.cursors.get(parsed.lane, self.floor_us):
                self._await(key, parsed)
                if modified_before is not None and last_modified <= modified_before:
                    old.add(key)
        return old

    def _await(self, key: str, parsed: FrameworkKey) -> None:
        self.pending[key] = Arrival(parsed.end_us, key, parsed.lane)
        self.max_seen_us = max(parsed.end_us, self.max_seen_us or 0)

    def _advance(self, arrival: Arrival) -> None:
        del self.pending[arrival.key]
        cursor = self.cursors.get(arrival.lane)
        if cursor is not None:
            self.spacing_us[arrival.lane] = max(arrival.end_us - cursor, 1)
        self.cursors[arrival.lane] = max(arrival.end_us, cursor or 0)
