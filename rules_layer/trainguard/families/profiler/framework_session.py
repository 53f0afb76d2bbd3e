"""A node's framework stream in hand."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from trainguard.engine.ordering.partition_order import MOST_PENDING, UNLISTED, Arrival, Listing, PartitionOrder
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import LISTED_NAMES, NEWEST, Announced, Applied, Session, item_name
from trainguard.engine.verdicts.verdict import Fire
from trainguard.families.profiler.framework_order import FRAMEWORK_EXTENTS
from trainguard.families.profiler.framework_stream import FrameworkState, FrameworkStream
from trainguard.families.profiler.listing import ProfileListing
from trainguard.records import NodeRecord
from trainguard.state.codec import decode_state
from trainguard.telemetry.framework import FrameworkEvents, read_framework_object, read_tf_trace
from trainguard.telemetry.keys import FrameworkKey, parse_key

FEWER_PARTITIONS = "degraded_to_fewer_lanes"
"""Counts lanes that were forgotten because a node has too many: of those, what comes over two minutes late is lost."""


class FrameworkSession(Session[FrameworkStream]):
    """Applies a node's framework objects; raises StateCodecError when the item's state cannot be decoded.

    ``names`` are the names that S3 has of the node; None lists them for this node alone.
    """

    def __init__(
        self, record: NodeRecord, listing: ProfileListing, plan: RulePlan, names: Listing | None = None
    ) -> None:
        state = FrameworkState()
        if record.state:
            state = decode_state(item_name(record), record.codec, record.state, FrameworkState)
        super().__init__(record, listing, FrameworkStream(record.key.node, state, plan))
        self._listing = listing
        self._names = listing.framework if names is None else names
        cursors = {partition: position for partition, position in record.cursors.items() if partition != NEWEST}
        listed_us = state.listed_us
        if listed_us == UNLISTED:
            listed_us = max(cursors.values(), default=UNLISTED)  # an earlier version wrote the item
        self._order = PartitionOrder(
            FRAMEWORK_EXTENTS,
            cursors=cursors,
            max_seen=record.cursors.get(NEWEST),
            listed=listed_us,
            floor=state.floor_us,
        )
        self._order.restore(listing.parse_framework(record.pending))

    def announce(self, messages: Sequence[Announced]) -> None:
        """Take in messages of this node."""
        for message in messages:
            if isinstance(message.parsed, FrameworkKey):
                self._order.announce(message.key, message.parsed)

    def apply(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        """Apply the objects that are ready; at a stream's end, count the traces that never can be."""
        for arrival in self._order.ready(self._names, drain=drain, modified_before=modified_before):
            yield self._use(arrival.key, partial(self._read, arrival), partial(self._fold, arrival.position))
        if drain:
            self.counters["traces_without_metadata"] = self._listing.traces_without_metadata()

    def _read(self, arrival: Arrival, body: bytes) -> FrameworkEvents:
        name, _, kind = arrival.partition.partition("/")
        process = f"{self.record.key.node}-{name}"
        parsed = parse_key(arrival.key)
        if isinstance(parsed, FrameworkKey) and parsed.start_us is not None:
            trace = self._listing.trace_of(arrival.key, parsed)
            return read_tf_trace(
                trace, self._listing.get(trace), process=process, start_us=parsed.start_us, end_us=parsed.end_us
            )
        return read_framework_object(arrival.key, body, process=process, end_us=arrival.position, kind=kind)

    def _fold(self, end_us: int, events: FrameworkEvents) -> tuple[Counter[str], list[Fire]]:
        return events.tally, self.stream.apply(events, end_us)

    @property
    def has_changes(self) -> bool:
        """Whether something waits that the stored item does not know."""
        return self._order.stored != self.record.pending

    def to_record(self, *, closed: bool) -> NodeRecord:
        """Return the record to save."""
        order = self._order
        self.counters["duplicates"] += order.duplicates
        order.duplicates = 0
        self.counters[LISTED_NAMES] += len(order.pending) > MOST_PENDING
        self.counters[FEWER_PARTITIONS] += order.forget_partitions()
        self.stream.state.floor_us, self.stream.state.listed_us = order.floor, order.applied
        return self._record(cursors={**order.cursors, NEWEST: order.max_seen}, pending=order.stored, closed=closed)
