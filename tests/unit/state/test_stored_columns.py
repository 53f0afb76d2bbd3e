"""The bytes of a window's columns and of a state: items that lie in tables are read for months."""

import msgspec
import numpy as np
import pytest

from trainguard.core.errors import StateCodecError, StateDamagedError
from trainguard.state.codec import (
    PackedColumn,
    compress,
    decode_state,
    empty_matrix,
    encode_state,
    gpus_of,
    pack_column,
    packed,
    quantise_column,
    rule_state,
    unpack_column,
    unpack_columns,
    unpacked,
)
from trainguard.state.sample_window import SampleWindowState

NAN = float("nan")
WHOLE, HUNDREDTHS, INTEGERS, PLAIN = range(4)
MEBIBYTE = 1024 * 1024

STORED = [
    ([0.0, 100.0, 254.0, NAN], WHOLE, "0064feff"),
    ([255.0, NAN], HUNDREDTHS, "63ff9cff"),
    ([0.01, 2.56, 100.0], HUNDREDTHS, "000127010010"),
    ([655.34], HUNDREDTHS, "fffe"),
    ([655.35], PLAIN, "cdcccccccc7a8440"),
    ([656.0], INTEGERS, "9002000000000000"),
    ([-1.0, 256.0], INTEGERS, "ff00ff01ff00ff00ff00ff00ff00ff00"),
    ([2.0**53], INTEGERS, "0000000000002000"),
    ([-(2.0**53)], INTEGERS, "000000000000e0ff"),
    ([2.0**53 + 2.0], PLAIN, "0100000000004043"),
    ([-(2.0**53) - 2.0], PLAIN, "01000000000040c3"),
    ([1.005], PLAIN, "14ae47e17a14f03f"),
    ([70_000.0, NAN], PLAIN, "000000000017f140000000000000f87f"),
    ([], WHOLE, ""),
]


@pytest.mark.parametrize(("values", "kind", "data"), STORED, ids=lambda each: str(each)[:20])
def test_packed_values_have_their_stored_size_and_read_back(values: list[float], kind: int, data: str) -> None:
    column = np.array(values, dtype=np.float64)
    stored = PackedColumn(kind, bytes.fromhex(data))

    assert pack_column(column) == stored
    assert stored.points == len(values)
    assert unpack_column(stored).tobytes() == column.tobytes()


@pytest.mark.parametrize(
    ("kind", "size", "points"),
    [(0, 3, 3), (1, 4, 2), (1, 3, None), (2, 8, 1), (2, 12, None), (3, 7, None), (4, 8, None)],
)
def test_bytes_of_a_kind_are_whole_values_or_no_column(kind: int, size: int, points: int | None) -> None:
    stored = msgspec.msgpack.encode([kind, bytes(size)])
    if points is None:
        with pytest.raises(msgspec.ValidationError, match=f"a column of kind {kind} and {size} bytes"):
            msgspec.msgpack.decode(stored, type=PackedColumn)
    else:
        assert msgspec.msgpack.decode(stored, type=PackedColumn).points == points


@pytest.mark.parametrize("second", [[7.0, 8.0, NAN], [7.25, 8.0, NAN]], ids=["whole", "mixed"])
def test_each_unpacked_column_is_a_row(second: list[float]) -> None:
    rows = np.array([[1.0, 2.0, 3.0], second])
    found = unpack_columns([pack_column(row) for row in rows], 3)

    assert found.tobytes() == rows.tobytes()


@pytest.mark.parametrize(
    ("value", "whole"), [(-3.0, 0.0), (-0.2, 0.0), (0.5, 0.0), (1.5, 2.0), (99.4, 99.0), (100.0, 100.0), (101.0, 100.0)]
)
def test_quantised_percentage_is_whole_and_within_bounds(value: float, whole: float) -> None:
    assert quantise_column(np.array([value])).tobytes() == np.array([whole]).tobytes()


def column(points: int) -> PackedColumn:
    return PackedColumn(WHOLE, bytes(points))


@pytest.mark.parametrize(
    ("lengths", "gpus"),
    [
        ([], 0),
        ([3, 3], 0),
        ([3] * 4, 1),
        ([3] * 8, 3),
        ([3], None),
        ([3] * 3, None),
        ([3, 2], None),
        ([3, 3, 3, 2], None),
    ],
)
def test_window_has_two_columns_and_two_more_per_gpu(lengths: list[int], gpus: int | None) -> None:
    if gpus is None:
        with pytest.raises(ValueError, match="expected two and two for each GPU, alike"):
            gpus_of([column(each) for each in lengths])
    else:
        assert gpus_of([column(each) for each in lengths]) == gpus


def test_third_gpu_has_no_values_in_columns_packed_before() -> None:
    matrix = np.array([[0.0, 20.0, 91.0, 92.0, 41.0, 42.0], [500.0, 21.0, 93.0, 94.0, 43.0, 44.0]])
    columns = packed(matrix)

    assert [each.data for each in columns[:2]] == [pack_column(np.array([0.0, 500.0])).data, bytes([20, 21])]
    assert unpacked(columns, 2).tobytes() == matrix.tobytes()
    missing = np.full(2, NAN)
    expected = np.column_stack([*matrix[:, :4].T, missing, *matrix[:, 4:].T, missing])
    assert unpacked(columns, 3).tobytes() == expected.tobytes()


def test_no_points_make_no_column_and_no_matrix_row() -> None:
    assert packed(empty_matrix(2)) == []
    assert unpacked([], 2).shape == empty_matrix(2).shape == (0, 6)
    assert len(packed(np.array([[0.0, 20.0]]))) == 2


@pytest.mark.parametrize(("codec", "why"), [(0, "this version reads 1 to 1"), (2, "a later version wrote it")])
def test_other_codec_is_refused_undecoded(codec: int, why: str) -> None:
    with pytest.raises(StateCodecError, match=why):
        decode_state("job/algo-1#system", codec, encode_state(SampleWindowState()), SampleWindowState)


def test_decoding_unpacks_at_most_64_mib() -> None:
    data = compress(bytes(64 * MEBIBYTE + 1))
    with pytest.raises(StateDamagedError, match=r"cut off, or larger than 67,108,864 bytes"):
        decode_state("job/algo-1#system", 1, data, SampleWindowState)


@pytest.mark.parametrize("place", range(0, 60, 5))
def test_a_state_of_which_a_bit_has_changed_is_damaged(place: int) -> None:
    data = bytearray(encode_state(SampleWindowState(missing_s=7.5, gaps=[(1.0, 2.0), (5.0, 9.0)])))
    data[place % len(data)] ^= 1
    with pytest.raises(StateDamagedError, match="damaged"):
        decode_state("job/algo-1#system", 1, bytes(data), SampleWindowState)


@pytest.mark.parametrize("slots", [{}, {"Rule": None}, {"Rule": {"data": b""}}, {"Other": {"data": b"\x01"}}])
def test_migration_without_a_rule_state_changes_nothing(slots: dict[str, object]) -> None:
    document = {"slots": dict(slots)}
    rule_state(document, "Rule", lambda state: [state])
    assert document == {"slots": slots}
    bare: dict[str, object] = {}
    rule_state(bare, "Rule", lambda state: [state])
    assert bare == {}


def test_migrated_rule_state_is_the_result_of_the_change() -> None:
    document = {"slots": {"Rule": {"data": msgspec.msgpack.encode(5), "shown": "OK"}}}
    rule_state(document, "Rule", lambda state: [state])
    assert document == {"slots": {"Rule": {"data": msgspec.msgpack.encode([5]), "shown": "OK"}}}
