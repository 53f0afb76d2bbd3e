"""Many events of TensorBoard at once: those that differ in time, step and value alone.

Payloads of one length are rows of a table. Those equal but for the bytes of time, step and value, whose place is read
from one of them, have one structure. What differs is left to `summaries`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainguard.core.errors import TelemetryFormatError
from trainguard.core.ports import Files
from trainguard.formats.protobuf import FIXED32, FIXED64, LENGTH, VARINT, CutOffError, Wire, WireError
from trainguard.formats.tensors.frames import DTYPES, FOOTER, Walk, parse_event, text, walk
from trainguard.formats.tensors.scalars.rows import ScalarColumns

# A larger event is passed over: it is a graph or an image.
CHUNK_BYTES = 4 * 1024 * 1024


def read_scalars(files: Files, name: str, offset: int = 0, most: int = CHUNK_BYTES) -> ScalarColumns | None:
    """Read the next scalars of an event file from ``offset`` on, in ``most`` bytes; None without a whole event.

    Raises TelemetryFormatError when no event begins there: the file is none of TensorBoard, or is damaged.
    """
    content = files.get_range(name, offset, most)
    walked = walk(name, content)
    if walked.end:
        return decode_scalars(name, content, walked, offset)
    end = offset + walked.cut
    if walked.cut <= CHUNK_BYTES or len(files.get_range(name, end - FOOTER, FOOTER)) < FOOTER:
        return None
    return decode_scalars(name, b"", walk(name, b""), end)


def decode_scalars(name: str, content: bytes, walked: Walk, offset: int = 0) -> ScalarColumns:
    """Return the scalars in the whole frames of a part of a file that begins at ``offset``."""
    bad, why = walked.wrong, "an event does not agree with its checksum" if walked.wrong else None
    rows, left = read_bulk(name, content, walked)
    tags: dict[str, int] = {}
    parts: list[tuple[Any, ...]] = [
        (each.frames, np.full(each.frames.size, tags.setdefault(each.tag, len(tags))), each.steps, each.at, each.values)
        for each in rows
    ]
    singles: list[tuple[int, int, int, float, float]] = []
    for frame in left[~hold_no_scalar(content, walked, left)].tolist():
        start = int(walked.starts[frame])
        try:
            found = scalars_of(name, content[start : start + int(walked.lengths[frame])])
        except TelemetryFormatError as fault:
            bad, why = bad + 1, fault.reason
            continue
        singles += [(frame, tags.setdefault(tag, len(tags)), step, at, value) for tag, step, at, value in found]
    columns = zip(*singles, strict=True) if singles else ((),) * 5
    kinds = (np.int64, np.int64, np.int64, np.float64, np.float64)
    parts.append(tuple(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))
    frames, *others = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(frames, kind="stable")
    tag, step, at, value = (column[order] for column in others)
    return ScalarColumns(tuple(tags), tag, step, at, value, offset + walked.end, bad, why)


LONGEST_TAG = 1_024
_PLUGIN = b"scalars"
_LISTS = ("float_val", "double_val", "int_val", "int64_val")


# Tag, step, time in epoch seconds, and value.
Scalar = tuple[str, int, float, float]


def scalars_of(file: str, payload: bytes) -> list[Scalar]:
    """Return the scalars in an event's payload; histograms, images, texts and graphs are passed over.

    Raises TelemetryFormatError when it is no event, or a tag is no text of up to 1,024 characters.
    """
    event = parse_event(file, payload)
    found = []
    for value in event.summary.value:
        number = _number(value)
        if number is None:
            continue
        if len(value.tag) > LONGEST_TAG:
            raise TelemetryFormatError(file, f"a tag has {len(value.tag):,} bytes, expected at most {LONGEST_TAG:,}")
        found.append((text(file, value.tag), event.step, event.wall_time, number))
    return found


def _number(value: Any) -> float | None:
    if value.HasField("simple_value"):
        return float(value.simple_value)
    # The plugin decides, or, where none is named, whether there are dimensions.
    tensor, plugins = value.tensor, [each.plugin_name for each in value.metadata.plugin_data if each.plugin_name]
    if not value.HasField("tensor") or not (_PLUGIN in plugins if plugins else not tensor.tensor_shape.dim):
        return None
    for name in _LISTS:
        numbers = getattr(tensor, name)
        if len(numbers) == 1:
            return float(numbers[0])
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None or dtype.kind not in "fiub" or len(tensor.tensor_content) != dtype.itemsize:
        return None
    return float(np.frombuffer(tensor.tensor_content, dtype)[0])


_WALL_TIME, _STEP, _SUMMARY, _VALUE = 1, 2, 5, 1
_TAG, _SIMPLE, _TENSOR, _METADATA = 1, 2, 8, 9
_DTYPE, _SHAPE, _CONTENT, _FLOATS, _DOUBLES = 1, 2, 4, 5, 6
_FLOAT, _DOUBLE = 1, 2
_SIZES = {_FLOAT: 4, _DOUBLE: 8}
_NUMBERS = {_FLOAT: (_CONTENT, _FLOATS), _DOUBLE: (_CONTENT, _DOUBLES)}

Place = tuple[int, int]


# Where time, step and value lie in a payload: bytes from and to; a step 0 is not written, and its place empty.
Layout = tuple[Place, Place, Place]


def find_layout(payload: bytes) -> Layout | None:
    """Return the layout of an event with one scalar, a float or a double; None of any other."""
    try:
        event = _once(payload, (0, len(payload)), {_WALL_TIME: FIXED64, _STEP: VARINT, _SUMMARY: LENGTH})
        if event is None or _WALL_TIME not in event or _SUMMARY not in event:
            return None
        summary = _once(payload, event[_SUMMARY], {_VALUE: LENGTH})
        value = _value_place(payload, summary[_VALUE]) if summary else None
    except (CutOffError, WireError):
        return None
    return None if value is None else (event[_WALL_TIME], event.get(_STEP, (0, 0)), value)


def _value_place(payload: bytes, value: Place) -> Place | None:
    fields = _once(payload, value, {_TAG: LENGTH, _SIMPLE: FIXED32, _TENSOR: LENGTH, _METADATA: LENGTH})
    if fields is None or (_SIMPLE in fields) == (_TENSOR in fields):
        return None
    return fields[_SIMPLE] if _SIMPLE in fields else _tensor_place(payload, fields[_TENSOR])


def _tensor_place(payload: bytes, tensor: Place) -> Place | None:
    expected = {_DTYPE: VARINT, _SHAPE: LENGTH, _CONTENT: LENGTH, _FLOATS: LENGTH, _DOUBLES: LENGTH}
    fields = _once(payload, tensor, expected)
    if fields is None or _DTYPE not in fields:
        return None
    dtype = int.from_bytes(payload[slice(*fields[_DTYPE])], "little")  # both types that are read are of one byte
    held = [number for number in (_CONTENT, _FLOATS, _DOUBLES) if number in fields]
    if dtype not in _SIZES or len(held) != 1 or held[0] not in _NUMBERS[dtype]:
        return None
    start, end = fields[held[0]]
    return (start, end) if end - start == _SIZES[dtype] else None


def _once(payload: bytes, place: Place, expected: dict[int, int]) -> dict[int, Place] | None:
    """Return where fields lie; None where a field is not expected, is of another wire type, or comes twice."""
    start, end = place
    wire = Wire(iter([payload[start:end]]))
    found: dict[int, Place] = {}
    for number, kind, value in wire.fields(end - start):
        if expected.get(number) != kind or number in found:
            return None
        begins = wire.begins if kind == VARINT else wire.position
        found[number] = (start + begins, start + (wire.position if kind == VARINT else begins + value))
    return found


SMALLEST = 512

_HEAD = 256
_LARGE = 128

_WALL_TIME_KEY, _STEP_KEY, _SUMMARY_KEY, _VALUE_KEY, _TAG_KEY = 0x09, 0x10, 0x2A, 0x0A, 0x0A
# Keys of image, histogram, audio and tensor.
_LARGE_FIELDS = (0x22, 0x2A, 0x32, 0x42)

Ints = NDArray[np.int64]


def hold_no_scalar(content: bytes, walk: Walk, frames: Ints) -> NDArray[np.bool_]:
    """Say for frames whether they hold nothing but one large value (bool[F]).

    Such a payload is a time, maybe a step, and a summary of one value up to its end: a tag, then a field of more bytes
    than a scalar takes. An event of any other form is False.
    """
    found = np.zeros(frames.size, bool)
    starts, lengths = walk.starts[frames], walk.lengths[frames]
    large = np.flatnonzero((lengths > SMALLEST) & (starts + _HEAD <= len(content)))
    if large.size:
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(content, np.uint8), _HEAD)
        found[large] = _Heads(windows[starts[large]]).end_in_one_value(lengths[large])
    return found


class _Heads:
    def __init__(self, table: NDArray[np.uint8]) -> None:
        self._table = table
        self._rows = np.arange(len(table))
        self._at = np.zeros(len(table), np.int64)
        self._good = np.ones(len(table), bool)

    def end_in_one_value(self, lengths: Ints) -> NDArray[np.bool_]:
        self._good &= self._next() == _WALL_TIME_KEY
        self._at += 8
        has_step = self._byte() == _STEP_KEY
        before = self._at.copy()
        self._at += 1
        self._number()
        self._at = np.where(has_step, self._at, before)
        for key in (_SUMMARY_KEY, _VALUE_KEY):
            self._good &= self._next() == key
            self._good &= self._number() + self._at == lengths
        self._good &= self._next() == _TAG_KEY
        self._at += self._number()
        self._good &= np.isin(self._next(), _LARGE_FIELDS)
        self._good &= self._number() > _LARGE
        return self._good

    def _byte(self) -> NDArray[np.uint8]:
        """Return the byte that each row is at; a row that ends before is no good."""
        self._good &= self._at < self._table.shape[1]
        byte: NDArray[np.uint8] = self._table[self._rows, np.minimum(self._at, self._table.shape[1] - 1)]
        return byte

    def _next(self) -> NDArray[np.uint8]:
        byte = self._byte()
        self._at += 1
        return byte

    def _number(self) -> Ints:
        """Return the varint that each row is at, of up to 35 bits."""
        value = np.zeros(len(self._rows), np.int64)
        more = np.ones(len(self._rows), bool)
        for place in range(5):
            byte = self._byte()
            value |= np.where(more, byte & 0x7F, 0).astype(np.int64) << (7 * place)
            self._at += more
            more &= byte >= 0x80
            if not more.any():
                break
        self._good &= ~more
        return np.minimum(value, 2**35)


LONGEST_PAYLOAD = 512
FEWEST_ROWS = 8
_MOST_LAYOUTS = 16
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class BulkRows:
    """Scalars of one tag: which frames they are in (int64[R]), and steps, times and values of these."""

    tag: str
    frames: NDArray[np.int64]
    steps: NDArray[np.int64]
    at: NDArray[np.float64]
    values: NDArray[np.float64]


def read_bulk(file: str, content: bytes, walk: Walk) -> tuple[list[BulkRows], NDArray[np.int64]]:
    """Return the scalars that can be read in bulk, and the numbers of the frames that are left."""
    data = np.frombuffer(content, np.uint8)
    done = np.zeros(walk.lengths.size, bool)
    found: list[BulkRows] = []
    for length in np.unique(walk.lengths[walk.lengths <= LONGEST_PAYLOAD]).tolist():
        frames = np.flatnonzero(walk.lengths == length)
        if frames.size < FEWEST_ROWS:
            continue
        table = np.lib.stride_tricks.sliding_window_view(data, length)[walk.starts[frames]]
        for rows in _of_length(file, table):
            done[frames[rows.frames]] = True
            found.append(BulkRows(rows.tag, frames[rows.frames], rows.steps, rows.at, rows.values))
    return found, np.flatnonzero(~done)


def _of_length(file: str, table: Bytes) -> Iterator[BulkRows]:
    """Yield the tags in payloads of one length; ``Rows.frames`` are rows of the table."""
    left = np.arange(len(table))
    rest = table
    for _ in range(_MOST_LAYOUTS):
        if left.size < FEWEST_ROWS:
            return
        # The first row is often one of its own: a step 0 is not written.
        middle = left.size // 2
        layout = find_layout(rest[middle].tobytes())
        taken = np.zeros(left.size, bool)
        taken[middle] = True
        for group in () if layout is None else _alike(rest, layout):
            first = rest[group[0]].tobytes()
            tag = _tag(file, first) if find_layout(first) == layout else None
            if tag is not None and layout is not None:
                yield _numbers(tag, left[group], table, layout)
                taken[group] = True
        left = left[~taken]
        rest = table[left]


def _alike(table: Bytes, layout: Layout) -> Iterator[NDArray[np.int64]]:
    """Yield groups of several rows that are equal but for the bytes of time, step and value."""
    masked = np.zeros((len(table), -(-table.shape[1] // 8) * 8), np.uint8)
    masked[:, : table.shape[1]] = table
    time, step, value = layout
    masked[:, slice(*time)] = 0
    masked[:, slice(*value)] = 0
    # The highest bit of a step's byte says whether another one follows: it belongs to the structure.
    masked[:, slice(*step)] &= 0x80
    words = masked.view(np.uint64)
    hashes = hashes_of(words)
    order = np.argsort(hashes, kind="stable")
    borders = np.concatenate([[0], np.flatnonzero(np.diff(hashes[order])) + 1, [len(order)]])
    for border in np.flatnonzero(np.diff(borders) >= FEWEST_ROWS).tolist():
        group = order[borders[border] : borders[border + 1]]
        same = words[group] == words[group[0]]
        yield group if same.all() else group[same.all(axis=1)]


def hashes_of(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each row, uint64[R]: rows that are equal have the same."""
    factors = np.random.default_rng(0).integers(1, 2**63, words.shape[1], np.uint64) | np.uint64(1)
    hashes: NDArray[np.uint64] = np.einsum("rw,w->r", words, factors)
    return hashes


def _numbers(tag: str, rows: NDArray[np.int64], table: Bytes, layout: Layout) -> BulkRows:
    time, step, value = layout
    steps = np.zeros(rows.size, np.uint64)
    for place, column in enumerate(range(*step)):
        steps |= (table[rows, column] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
    kind = "<f4" if value[1] - value[0] == 4 else "<f8"
    return BulkRows(
        tag,
        rows,
        steps.astype(np.int64),
        _columns(table, rows, time).view("<f8")[:, 0],
        _columns(table, rows, value).view(kind)[:, 0].astype(np.float64),
    )


def _columns(table: Bytes, rows: NDArray[np.int64], place: Place) -> Bytes:
    return np.ascontiguousarray(table[:, slice(*place)][rows])


def _tag(file: str, payload: bytes) -> str | None:
    """Return None where an event has no scalar, or several."""
    try:
        scalars = scalars_of(file, payload)
    except TelemetryFormatError:
        return None
    return scalars[0][0] if len(scalars) == 1 else None
