"""What a session makes of its objects, and the item that it writes: in order, under its cap, with what counts."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from trainguard.engine.streams.session import Applied, Session, item_name
from trainguard.errors import ObjectMissingError, PortUnavailableError, TelemetryFormatError
from trainguard.records import NodeRecord, StreamKey
from trainguard.state.codec import CODEC, encode_state

SYSTEM = StreamKey("job", "algo-1", "system")
CAP = 65_536
NOISE = np.random.default_rng(3).bytes(CAP + 1_000)


class State:
    """What a stream has stored."""

    watermark_s = 5.0
    last_fault: str | None = None


class Kept:
    """A stream whose state is so large, and smaller with each step by which it gives something up."""

    def __init__(self, *sizes: int) -> None:
        self.sizes, self.state = list(sizes), State()

    def store(self) -> list[bytes]:
        return [NOISE[: self.sizes[0]]]

    def degrade(self) -> str | None:
        if len(self.sizes) == 1:
            return None
        del self.sizes[0]
        return "degraded_to_less"


class Item(Session[Any]):
    """A session whose objects hold what is counted."""

    def __init__(self, record: NodeRecord, *sizes: int, body: bytes = b"", fault: Exception | None = None) -> None:
        self._body, self._fault = body, fault
        super().__init__(record, self, Kept(*sizes))

    def get(self, _: str) -> bytes:
        if self._fault is not None:
            raise self._fault
        return self._body

    def announce(self, messages: object) -> None:
        """Take in nothing."""

    def apply(self, **_: object) -> Iterator[Applied]:
        yield self._use("k", lambda body: Counter(body.decode()), lambda tally: (tally, []))

    @property
    def has_changes(self) -> bool:
        return False

    def to_record(self, *, closed: bool) -> NodeRecord:
        return self._record(cursors={"b": 2, "a": 0, "none": None}, pending={"y": 2, "x": 1}, closed=closed)


def test_given_a_session_when_its_item_is_written_then_it_holds_what_counts_in_order() -> None:
    record = NodeRecord(SYSTEM, counters={"z": 0, "b": 2, "a": 1})
    session = Item(record, 10)
    written = session.to_record(closed=True)
    assert list(written.cursors.items()) == [("a", 0), ("b", 2)]
    assert list(written.pending) == ["x", "y"]
    assert list(written.counters.items()) == [("a", 1), ("b", 2)]
    assert (written.watermark_s, written.closed, written.codec) == (5.0, True, CODEC)
    assert (session.near, session.requests) == (False, ())
    assert session.defers([], every_s=60.0, now=0.0, in_turn=False) is False
    assert item_name(record) == "job/algo-1#system"


LARGEST = next(size for size in range(CAP, 0, -1) if len(encode_state([NOISE[:size]])) <= CAP)
"""The largest state that is under the cap, which a byte more is not."""


@pytest.mark.parametrize(
    ("sizes", "steps", "kept"),
    [
        ((LARGEST,), 0, LARGEST),
        ((LARGEST, 9), 0, LARGEST),
        ((LARGEST + 1, 9), 1, 9),
        ((LARGEST + 9, LARGEST + 1, 9, 8), 2, 9),
        ((LARGEST + 1,), 0, LARGEST + 1),
    ],
)
def test_given_a_state_over_its_cap_when_written_then_it_gives_up_as_much_as_it_must_and_counts_that(
    sizes: tuple[int, ...], steps: int, kept: int
) -> None:
    written = Item(NodeRecord(SYSTEM), *sizes).to_record(closed=False)
    assert len(encode_state([NOISE[:LARGEST]])) <= CAP < len(encode_state([NOISE[: LARGEST + 1]]))
    assert written.state == encode_state([NOISE[:kept]])
    assert written.counters == ({"degraded_to_less": steps} if steps else {})


def test_given_an_object_when_it_is_used_then_what_is_no_fault_of_anybody_is_counted_alone() -> None:
    session = Item(NodeRecord(SYSTEM), 1)
    session._body = b"aab"
    (applied,) = session.apply()
    assert (applied.tally, applied.fault) == (Counter(a=2, b=1), "object k: 2 a, 1 b")
    assert session.stream.state.last_fault == "object k: 2 a, 1 b"
    assert session.counters == Counter(a=2, b=1)
    quiet = Item(NodeRecord(SYSTEM), 1)
    settled = quiet._settle("k", Counter(lines=9, events=1, gzip_objects=1, duplicates=1, unpaired_events=1), [], None)
    assert (settled.fault, quiet.stream.state.last_fault) == (None, None)
    (bare,) = Item(NodeRecord(SYSTEM), 1).apply()
    assert (bare.fault, bare.tally) == (None, Counter())


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ObjectMissingError("b", "k"), str(ObjectMissingError("b", "k"))),
        (TelemetryFormatError("k", "short"), str(TelemetryFormatError("k", "short"))),
        (ValueError("odd " * 200), "object k: ValueError: " + "odd " * 200),
    ],
)
def test_given_an_object_that_cannot_be_read_when_it_is_used_then_it_is_counted_named_and_passed(
    error: Exception, fault: str
) -> None:
    session = Item(NodeRecord(SYSTEM), 1, fault=error)
    (applied,) = session.apply()
    assert (applied.fault, applied.tally, applied.fires) == (fault, Counter(bad_objects=1), ())
    assert session.stream.state.last_fault == fault[:500]


def test_given_a_store_that_does_not_answer_when_an_object_is_used_then_it_is_left_for_later() -> None:
    session = Item(NodeRecord(SYSTEM), 1, fault=PortUnavailableError("S3", "get", "down"))
    with pytest.raises(PortUnavailableError):
        list(session.apply())
    assert session.counters == Counter()
