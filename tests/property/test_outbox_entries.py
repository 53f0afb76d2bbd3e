"""Any entry of an outbox is read from a document as it was written into it."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from trainguard.core.finding import Episode, Fact, Finding, Severity
from trainguard.core.records import AlertKind, OutboxEntry, entry_fields, entry_in

maybe = st.none() | st.floats(-1e6, 1e6).map(lambda value: round(value, 2))
moments = st.integers(0, 4_000_000_000_000).map(lambda milliseconds: milliseconds / 1_000.0)
names = st.lists(st.text(max_size=8), max_size=3).map(tuple)
episodes = st.builds(
    Episode,
    start=moments,
    end=st.none() | moments,
    nodes=names,
    gpus=names,
    measured=maybe,
    wasted_s=maybe,
    cost=maybe,
    currency=st.none() | st.text(max_size=3),
)
facts = st.builds(
    Fact,
    name=st.text(max_size=8),
    value=st.floats(-1e6, 1e6) | st.integers(-100, 100) | st.text(max_size=8),
    unit=st.text(max_size=3),
    node=st.none() | st.text(max_size=8),
    start=maybe,
    threshold=maybe,
)
findings = st.builds(
    Finding,
    rule=st.text(max_size=8),
    node=st.none() | st.text(max_size=8).filter(lambda node: node != "*"),
    reason=st.text(max_size=8),
    measured=maybe,
    threshold=maybe,
    severity=st.none() | st.sampled_from(Severity),
    advice=st.none() | st.text(max_size=8),
    cost=st.none() | st.text(max_size=8),
    episodes=st.lists(episodes, max_size=3).map(tuple),
    finding_kind=st.text(max_size=8),
    facts=st.lists(facts, max_size=3).map(tuple),
)


entries = st.builds(
    OutboxEntry,
    fire_id=st.text(max_size=8),
    episode=st.integers(0, 99),
    enqueued_at=moments,
    finding=findings,
    kind=st.sampled_from(AlertKind),
    previous_severity=st.none() | st.text(max_size=8),
    lasted_s=st.none() | st.floats(0.0, 1e6),
)


@given(entry=entries)
def test_any_entry_round_trips_among_other_fields(entry: OutboxEntry) -> None:
    document = msgspec.json.decode(msgspec.json.encode({"job": "bert", **entry_fields(entry)}))
    assert entry_in(document) == entry
