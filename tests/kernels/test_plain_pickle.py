"""The reader of pickles: plain values of each protocol, and nothing else, whatever the bytes."""

import os
import pickle
import struct
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.formats import plain_pickle
from trainguard.formats.plain_pickle import PickleError, read_plain

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 127), (1 << 127) - 1) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=5) | st.lists(inner, max_size=5).map(tuple) | st.dictionaries(TEXTS, inner, max_size=5)
    ),
    max_leaves=30,
)
PROTOCOLS = st.integers(0, 5)


@given(PLAIN, PROTOCOLS)
def test_plain_values_of_all_protocols_are_read(value: Any, protocol: int) -> None:
    assert read_plain(pickle.dumps(value, protocol)) == value


def test_a_value_in_two_places_is_one_object() -> None:
    shared = [{"line": 1}]
    first, second = read_plain(pickle.dumps([shared, shared]))
    assert first is second


class Runs:
    """Would leave a file where it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch hacked",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "value", [Runs(), {1, 2}, b"bytes", os.system, 1j, bytearray(b"x")], ids=lambda value: type(value).__name__
)
def test_what_is_no_plain_value_is_refused(value: Any, protocol: int, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PickleError, match=r"opcode b.* at byte [\d,]+, expected plain values"):
        read_plain(pickle.dumps([value], protocol))
    assert not list(tmp_path.iterdir())


def test_the_refusal_names_opcode_and_place() -> None:
    with pytest.raises(PickleError, match=r"opcode b'c' at byte 2, expected plain values: dict, list"):
        read_plain(b"\x80\x02cos\nsystem\n(S'ls'\ntR.")


@given(st.binary(max_size=200), PROTOCOLS)
def test_any_bytes_end_in_a_value_or_an_error(body: bytes, protocol: int) -> None:
    for data in (body, b"\x80\x04" + body, pickle.dumps({"segments": [{"a": 1}]}, protocol)[:-1] + body):
        with suppress(PickleError):
            read_plain(data)


@given(PLAIN, PROTOCOLS, st.data())
def test_a_cut_pickle_is_refused(value: Any, protocol: int, data: st.DataObject) -> None:
    whole = pickle.dumps(value, protocol)
    with pytest.raises(PickleError, match="byte"):
        read_plain(whole[: data.draw(st.integers(0, len(whole) - 1))])


HOSTILE = {
    "long int": (b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".", "an int of 255 bytes"),
    "longer int": (b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b".", "an int of 1,073,741,824 bytes"),
    "int of digits": (b"L" + b"9" * 5_000 + b"L\n.", "an int of 5,000 digits"),
    "open containers": (b"(" * 1_000 + b".", "over 64 open containers"),
    "values without end": (b"]" * 200_000 + b".", "over 100,000 values without a container"),
    "text beyond the file": (b"\x80\x02X" + struct.pack("<I", 1 << 31) + b"x.", "2,147,483,648 bytes, but"),
    "colliding keys": (b"\x80\x02}K\x01K\x02s.", "a key of type int, expected text"),
    "key that cannot be looked up": (b"\x80\x02}]K\x02s.", "a key of type list, expected text"),
    "unknown memo": (b"\x80\x02h\x07.", "memo 7 is unknown"),
    "next protocol": (b"\x80\x06N.", "protocol 6, expected 0 to 5"),
    "nothing to append to": (b"\x80\x02K\x01a.", "a value is missing|no list"),
    "mark that stays open": (b"\x80\x02(N.", "STOP at byte 4"),
    "line without an end": (b"V" + b"x" * 2_000_000, "a line without an end"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused_with_its_reason(name: str) -> None:
    body, reason = HOSTILE[name]
    started = time.process_time()
    with pytest.raises(PickleError, match=reason):
        read_plain(body)
    assert time.process_time() - started < 2.0


def test_a_bomb_of_references_takes_no_more_than_its_bytes() -> None:
    """Each of 200 lists holds the one before it ten times: 10 to the power of 200 values."""
    bomb = b"\x80\x04]\x94"
    for place in range(200):
        bomb += b"](" + (b"h" + bytes([place])) * 10 + b"e\x94"
    started = time.process_time()
    with pytest.raises(PickleError, match="behind 201 values"):
        read_plain(bomb + b".")
    assert time.process_time() - started < 1.0


def test_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pickle, "MOST_VALUES", 100)
    assert read_plain(pickle.dumps(list(range(99)))) == list(range(99))
    with pytest.raises(PickleError, match="over 100 values"):
        read_plain(pickle.dumps(list(range(100))))
