"""A node's system stream in hand."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from trainguard.core.records import NodeRecord
from trainguard.engine.ordering.grid_order import GridOrder
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.listing import ProfileListing
from trainguard.engine.profiler.system_stream import SystemState, SystemStream
from trainguard.engine.streams.session import NEWEST, Announced, Applied, Session, state_of
from trainguard.engine.verdicts.verdict import Fire
from trainguard.formats.profile.keys import SystemKey
from trainguard.formats.profile.system import Samples, read_system_object

MINUTE_PARTITION = "minute"

ARRIVAL_S = 180.0
"""The message of a minute usually comes within this time after the minute's beginning. A later one is not dropped: what
follows it may be late, too, or may not come.
"""


class SystemSession(Session[SystemStream]):
    """Applies a node's minutes; raises StateCodecError when the item's state cannot be decoded."""

    def __init__(self, record: NodeRecord, listing: ProfileListing, plan: RulePlan) -> None:
        state = state_of(record, SystemState)
        super().__init__(record, listing, SystemStream(record.key.node, state, plan))
        self._listing = listing
        self._order = GridOrder(
            cursor=record.cursors.get(MINUTE_PARTITION),
            max_seen=record.cursors.get(NEWEST),
            pending={minute: key for key, minute in record.pending.items()},
            skipped=list(state.skipped),
        )

    def announce(self, messages: Sequence[Announced]) -> None:
        for message in messages:
            if isinstance(message.parsed, SystemKey):
                self._order.announce(message.key, message.parsed.minute)

    def defers(self, messages: Sequence[Announced], *, every_s: float, now: float, in_turn: bool) -> bool:
        """Whether messages may be dropped: nothing is near a threshold, and one that is due comes soon."""
        cursor = self._order.cursor
        if cursor is None or self.record.closed or now >= cursor + every_s + ARRIVAL_S:
            return False
        if self.stream.state.near_threshold and not in_turn:
            return False
        keys = {message.parsed.minute: message.key for message in messages if isinstance(message.parsed, SystemKey)}
        found_again = all(key == self._listing.key_of(minute) for minute, key in keys.items())
        return found_again and self._order.defers(keys, int(every_s))

    def apply(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        ready = self._order.ready(
            self._listing.minutes, fetch=self._listing.fetch, drain=drain, modified_before=modified_before
        )
        for minute, key in ready:
            yield self._use(key, partial(self._read, key, minute), self._fold)

    def _read(self, key: str, minute: int, body: bytes) -> Samples:
        return read_system_object(key, body, node=self.record.key.node, minute=minute)

    def _fold(self, samples: Samples) -> tuple[Counter[str], list[Fire]]:
        fires = self.stream.apply(samples)
        return samples.tally + Counter({"too_many_series": self.stream.unnamed_gpu_samples}), fires

    @property
    def near_threshold(self) -> bool:
        return self.stream.state.near_threshold

    @property
    def has_changes(self) -> bool:
        return self._order.late > 0 or self._pending != self.record.pending

    @property
    def _pending(self) -> dict[str, int]:
        return {key: minute for minute, key in self._order.pending.items()}

    def to_record(self, *, closed: bool) -> NodeRecord:
        order = self._order
        self.counters.update({"gaps": order.gaps, "late": order.late, "duplicates": order.duplicates})
        order.gaps = order.late = order.duplicates = 0
        self.stream.state.skipped = order.skipped
        return self._record(
            cursors={MINUTE_PARTITION: order.cursor, NEWEST: order.max_seen}, pending=self._pending, closed=closed
        )
