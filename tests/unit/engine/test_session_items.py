"""What a session makes of its objects, and the item that it writes: in order, under its cap, with what counts."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from trainguard.core.errors import ObjectMissingError, PortUnavailableError, TelemetryFormatError
from trainguard.core.records import StreamKey, StreamRecord
from trainguard.engine.streams.session import Applied, Session, item_name
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

    def __init__(self, record: StreamRecord, *sizes: int, body: bytes = b"", fault: Exception | None = None) -> None:
        self._body, self._fault = body, fault
        super().__init__(record, self.get, Kept(*sizes))

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

    def to_record(self, *, closed: bool) -> StreamRecord:
        return self._record(cursors={"b": 2, "a": 0, "none": None}, pending={"y": 2, "x": 1}, closed=closed)


def test_item_of_a_session_holds_what_counts_in_order() -> None:
    record = StreamRecord(SYSTEM, counters={"z": 0, "b": 2, "a": 1})
    session = Item(record, 10)
    written = session.to_record(closed=True)
    assert list(written.cursors.items()) == [("a", 0), ("b", 2)]
    assert list(written.pending) == ["x", "y"]
    assert list(written.counters.items()) == [("a", 1), ("b", 2)]
    assert (written.watermark_s, written.closed, written.codec) == (5.0, True, CODEC)
    assert (session.near_threshold, session.requests) == (False, ())
    assert session.defers([], every_s=60.0, now=0.0, in_turn=False) is False
    assert item_name(record) == "job/algo-1#system"


# The largest state that is under the cap, which a byte more is not.
LARGEST = next(size for size in range(CAP, 0, -1) if len(encode_state([NOISE[:size]])) <= CAP)


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
def test_state_over_its_cap_is_trimmed_minimally_and_counted(sizes: tuple[int, ...], steps: int, kept: int) -> None:
    written = Item(StreamRecord(SYSTEM), *sizes).to_record(closed=False)
    assert len(encode_state([NOISE[:LARGEST]])) <= CAP < len(encode_state([NOISE[: LARGEST + 1]]))
    assert written.state == encode_state([NOISE[:kept]])
    assert written.counters == ({"degraded_to_less": steps} if steps else {})


def test_object_without_fault_is_only_counted() -> None:
    session = Item(StreamRecord(SYSTEM), 1)
    session._body = b"aab"
    (applied,) = session.apply()
    assert (applied.tally, applied.fault) == (Counter(a=2, b=1), "object k: 2 a, 1 b")
    assert session.stream.state.last_fault == "object k: 2 a, 1 b"
    assert session.counters == Counter(a=2, b=1)
    quiet = Item(StreamRecord(SYSTEM), 1)
    settled = quiet._settle("k", Counter(lines=9, events=1, gzip_objects=1, duplicates=1, unpaired_events=1), [], None)
    assert (settled.fault, quiet.stream.state.last_fault) == (None, None)
    (bare,) = Item(StreamRecord(SYSTEM), 1).apply()
    assert (bare.fault, bare.tally) == (None, Counter())


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ObjectMissingError("b", "k"), str(ObjectMissingError("b", "k"))),
        (TelemetryFormatError("k", "short"), str(TelemetryFormatError("k", "short"))),
        (ValueError("odd " * 200), "object k: ValueError in engine/test_session_items.py:0: " + "odd " * 200),
    ],
)
def test_unreadable_object_is_counted_named_and_skipped(error: Exception, fault: str) -> None:
    session = Item(StreamRecord(SYSTEM), 1, fault=error)
    (applied,) = session.apply()
    assert (applied.tally, applied.fires) == (Counter(bad_objects=1), ())
    assert applied.fault is not None
    assert re.sub(r"\.py:\d+", ".py:0", applied.fault) == fault
    assert session.stream.state.last_fault == applied.fault[:500]


def test_object_of_an_unanswering_store_is_left_for_later() -> None:
    session = Item(StreamRecord(SYSTEM), 1, fault=PortUnavailableError("S3", "get", "down"))
    with pytest.raises(PortUnavailableError):
        list(session.apply())
    assert session.counters == Counter()
