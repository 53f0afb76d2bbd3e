"""Bounded state as bytes: MessagePack of the stored struct, compressed, and packed columns of numbers."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from trainguard.core.errors import StateCodecError, StateDamagedError
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.formats.profile.system import DECODE_ERRORS

Document = dict[str, Any]
# Takes the name of the stored struct (``SystemState``, ``FrameworkState``, ``JobState``) and its document.
Migration = Callable[[str, Document], Document]

MIGRATIONS: Mapping[int, Migration] = {}


def migrate(kind: str, document: Document, *, codec: int, newest: int) -> Document:
    """Take a document from ``codec`` to ``newest``, step by step."""
    for step in range(codec, newest):
        document = MIGRATIONS[step](kind, document)
    return document


def rule_state(document: Document, rule: str, change: Callable[[Any], Any]) -> None:
    """Replace a rule's own state in ``document`` by what ``change`` makes of it, where there is one."""
    stored = document.get("slots", {}).get(rule)
    if stored and stored.get("data"):
        stored["data"] = msgspec.msgpack.encode(change(msgspec.msgpack.decode(stored["data"])))


CODEC = 1
OLDEST_CODEC = 1
_LEVEL, _MEMORY_LEVEL = 9, 9
_BLOCK_BYTES = 3 * 1_024
# An item holds 400 kB; state that is larger than this once unpacked was not written by TrainGuard.
_MAX_UNPACKED_BYTES = 64 * 1024 * 1024

_WHOLE, _HUNDREDTHS, _INTEGER, _RAW = 0, 1, 2, 3
_VALUE_BYTES = {_WHOLE: 1, _HUNDREDTHS: 2, _INTEGER: 8, _RAW: 8}
_WHOLE_MISSING = 255
_HUNDREDTHS_MISSING = 65_535
_LARGEST_EXACT = 2.0**53
T = TypeVar("T")


class PackedColumn(msgspec.Struct, array_like=True):
    """One series of a window: ``kind`` says how ``data`` is packed; raises ValueError when it is no such series."""

    kind: int
    data: bytes

    def __post_init__(self) -> None:
        size = _VALUE_BYTES.get(self.kind)
        if size is None or len(self.data) % size:
            raise ValueError(f"a column of kind {self.kind} and {len(self.data)} bytes, expected whole values")

    @property
    def points(self) -> int:
        return len(self.data) // _VALUE_BYTES[self.kind]


def pack_column(values: FloatArray) -> PackedColumn:
    """Pack float64 values so that ``unpack_column`` gives them back bit for bit; NaN says that a value is missing."""
    for kind in (_WHOLE, _HUNDREDTHS, _INTEGER):
        packed = PackedColumn(kind, _PACKERS[kind](values))
        if unpack_column(packed).tobytes() == values.tobytes():
            return packed
    return PackedColumn(_RAW, np.ascontiguousarray(values, dtype="<f8").tobytes())


def unpack_column(column: PackedColumn) -> FloatArray:
    """Undo ``pack_column``: float64[N]."""
    if column.kind == _WHOLE:
        small = np.frombuffer(column.data, dtype=np.uint8)
        return np.where(small == _WHOLE_MISSING, np.nan, small.astype(np.float64))
    if column.kind == _HUNDREDTHS:
        high, low = np.frombuffer(column.data, dtype=np.uint8).reshape(2, -1).astype(np.uint16)
        wide = high << 8 | low
        return np.where(wide == _HUNDREDTHS_MISSING, np.nan, wide.astype(np.float64) / 100.0)
    if column.kind == _INTEGER:
        planes = np.frombuffer(column.data, dtype=np.uint8).reshape(8, -1)
        return np.ascontiguousarray(planes.T).view("<i8")[:, 0].astype(np.float64)
    return np.frombuffer(column.data, dtype="<f8").astype(np.float64)


def unpack_columns(columns: Sequence[PackedColumn], points: int) -> FloatArray:
    """Undo ``pack_column`` for columns of so many points each: float64[columns, points]."""
    if all(column.kind == _WHOLE for column in columns):
        # As a node's GPUs nearly always are: all at once, which is several times as fast as one after the other.
        return unpack_column(PackedColumn(_WHOLE, b"".join(column.data for column in columns))).reshape(
            len(columns), points
        )
    return np.stack([unpack_column(column) for column in columns])


def quantise_column(values: FloatArray) -> FloatArray:
    """Round to whole percents: the lossy form that a window takes when its item would grow over the cap."""
    return np.clip(np.rint(values), 0.0, 100.0) + 0.0


def compress(packed: bytes) -> bytes:
    """Compress the bytes of a state: a stream of zlib, of which a block ends every 3 KiB."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS, _MEMORY_LEVEL)
    parts = []
    for begin in range(0, len(packed), _BLOCK_BYTES):
        parts += [packer.compress(packed[begin : begin + _BLOCK_BYTES]), packer.flush(zlib.Z_BLOCK)]
    return b"".join([*parts, packer.flush()])


def decompress(data: bytes) -> bytes:
    """Undo ``compress``; raises zlib.error for any other bytes."""
    unpacker = zlib.decompressobj()
    packed = unpacker.decompress(data, _MAX_UNPACKED_BYTES)
    if not unpacker.eof:
        raise zlib.error(f"cut off, or larger than {_MAX_UNPACKED_BYTES:,} bytes")
    if unpacker.unused_data:
        raise zlib.error(f"{len(unpacker.unused_data):,} bytes follow its end")
    return packed


def encode_state(state: object) -> bytes:
    """Encode a state; equal states give equal bytes."""
    return compress(msgspec.msgpack.encode(state))


def decode_state(item: str, codec: int, data: bytes, state_type: type[T]) -> T:
    """Decode a state; StateCodecError for an unknown ``codec``, StateDamagedError for damaged bytes."""
    if codec > CODEC:
        raise StateCodecError(item, codec, f"this version reads {CODEC} and earlier: a later version wrote it")
    if codec < OLDEST_CODEC:
        raise StateCodecError(item, codec, f"this version reads {OLDEST_CODEC} to {CODEC}")
    try:
        packed = decompress(data)
        if codec < CODEC:
            document = msgspec.msgpack.decode(packed, type=dict[str, Any])
            packed = msgspec.msgpack.encode(migrate(state_type.__name__, document, codec=codec, newest=CODEC))
        return msgspec.msgpack.decode(packed, type=state_type)
    except (zlib.error, *DECODE_ERRORS) as fault:
        raise StateDamagedError(item, codec, f"damaged ({fault})") from fault


def _pack_whole(values: FloatArray) -> bytes:
    return _as_counts(values, 1.0, _WHOLE_MISSING).astype(np.uint8).tobytes()


def _pack_hundredths(values: FloatArray) -> bytes:
    wide = _as_counts(values, 100.0, _HUNDREDTHS_MISSING).astype(np.uint16)
    return (wide >> 8).astype(np.uint8).tobytes() + (wide & 0xFF).astype(np.uint8).tobytes()


def _pack_integers(values: FloatArray) -> bytes:
    integers = np.rint(np.nan_to_num(np.clip(values, -_LARGEST_EXACT, _LARGEST_EXACT))).astype("<i8")
    return np.ascontiguousarray(integers.view(np.uint8).reshape(-1, 8).T).tobytes()


def _as_counts(values: FloatArray, scale: float, missing: int) -> FloatArray:
    counts: FloatArray = np.clip(np.rint(np.clip(values, -1.0, missing) * scale), 0, missing - 1)
    return np.where(np.isnan(counts), float(missing), counts)


_PACKERS = {_WHOLE: _pack_whole, _HUNDREDTHS: _pack_hundredths, _INTEGER: _pack_integers}


def gpus_of(columns: Sequence[PackedColumn]) -> int:
    """Return of how many GPUs a window's columns are; raises ValueError where their number or lengths do not fit."""
    if len(columns) % 2 or len({each.points for each in columns}) > 1:
        lengths = sorted({each.points for each in columns})
        raise ValueError(f"{len(columns)} columns of {lengths} points, expected two and two for each GPU, alike")
    return max(len(columns) // 2 - 1, 0)


def empty_matrix(gpus: int) -> FloatArray:
    """Return the matrix of no point: float64[0, 2 + 2G]."""
    return np.empty((0, 2 + 2 * gpus))


def packed(matrix: FloatArray) -> list[PackedColumn]:
    """Pack float64[K, 2 + 2G]: times as steps, then the other columns."""
    if len(matrix) == 0:
        return []
    steps = np.diff(matrix[:, 0], prepend=0.0)
    return [pack_column(steps), *(pack_column(np.ascontiguousarray(column)) for column in matrix[:, 1:].T)]


def unpacked(columns: list[PackedColumn], gpus: int) -> FloatArray:
    """Return the matrix, float64[K, 2 + 2G]; GPUs that appeared since it was packed are missing in its points."""
    if not columns:
        return empty_matrix(gpus)
    time, cpu = (unpack_column(column) for column in columns[:2])
    devices = unpack_columns(columns[2:], len(time))
    before = len(devices) // 2
    matrix = np.full((time.size, 2 + 2 * gpus), np.nan)
    matrix[:, 0] = np.cumsum(time)
    matrix[:, 1] = cpu
    matrix[:, 2 : 2 + before] = devices[:before].T
    matrix[:, 2 + gpus : 2 + gpus + before] = devices[before:].T
    return matrix
