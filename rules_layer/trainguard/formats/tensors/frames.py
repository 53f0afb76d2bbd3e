"""TFRecord frames: a length, its checksum, the payload, and a footer.

The footer is the masked CRC32C of the payload. The SageMaker hook writes that of the text ``0x12345678`` instead, which
is why TensorBoard finds nothing in its files.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import google_crc32c
import numpy as np
from google.protobuf import message
from numpy.typing import NDArray

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.protobuf import BOOL, DOUBLE, FLOAT, INT32, INT64, MESSAGE, MessageTable, message_classes
from trainguard.formats.protobuf import BYTES as BYTES_FIELD
from trainguard.formats.tensors.step_view import Tensor

_MESSAGES: MessageTable = {
    "Event": [("wall_time", 1, DOUBLE, ""), ("step", 2, INT64, ""), ("summary", 5, MESSAGE, "Summary")],
    "Summary": [("value", 1, MESSAGE, "Value*")],
    "Value": [
        ("tag", 1, BYTES_FIELD, ""),
        ("simple_value", 2, FLOAT, ""),
        ("tensor", 8, MESSAGE, "TensorProto"),
        ("metadata", 9, MESSAGE, "SummaryMetadata"),
    ],
    "SummaryMetadata": [("plugin_data", 1, MESSAGE, "PluginData*")],
    "PluginData": [("plugin_name", 1, BYTES_FIELD, ""), ("content", 2, BYTES_FIELD, "")],
    "TensorProto": [
        ("dtype", 1, INT32, ""),
        ("tensor_shape", 2, MESSAGE, "TensorShapeProto"),
        ("tensor_content", 4, BYTES_FIELD, ""),
        ("float_val", 5, FLOAT, "*"),
        ("double_val", 6, DOUBLE, "*"),
        ("int_val", 7, INT32, "*"),
        ("string_val", 8, BYTES_FIELD, "*"),
        ("int64_val", 10, INT64, "*"),
        ("bool_val", 11, BOOL, "*"),
    ],
    "TensorShapeProto": [("dim", 2, MESSAGE, "Dim*")],
    "Dim": [("size", 1, INT64, ""), ("name", 2, BYTES_FIELD, "")],
}

_CLASSES = message_classes("trainguard.events", _MESSAGES)
Event: Any = _CLASSES["Event"]
TensorShape: Any = _CLASSES["TensorShapeProto"]


def parse_event(file: str, payload: bytes) -> Any:
    """Return the Event in a frame's payload; raises TelemetryFormatError when it is none."""
    try:
        return Event.FromString(payload)
    except message.DecodeError as fault:
        raise TelemetryFormatError(file, f"a frame holds no event: {fault}") from fault


def text(file: str, content: bytes) -> str:
    """Return a text of a message; raises TelemetryFormatError when it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as fault:
        raise TelemetryFormatError(file, f"{content[:40]!r} is no UTF-8 text") from fault


DTYPES: dict[int, np.dtype[np.generic]] = {
    number: np.dtype(name)
    for number, name in {
        1: "<f4",
        2: "<f8",
        3: "<i4",
        4: "u1",
        5: "<i2",
        6: "i1",
        8: "<c8",
        9: "<i8",
        10: "?",
        17: "<u2",
        18: "<c16",
        19: "<f2",
        22: "<u4",
        23: "<u8",
    }.items()
}
"""By TensorFlow's number. The hook writes text with number 0 and ``string_val``."""

TEXT = 0
MOST_DIMENSIONS = 32
_TF_TEXT = 7


def is_text(dtype: int) -> bool:
    """Whether a type's number says text: the hook's, or TensorFlow's own."""
    return dtype in {TEXT, _TF_TEXT}


def dtype_of(file: str, number: int) -> "np.dtype[np.generic]":
    """Return the type of a number; raises TelemetryFormatError for one that is not read."""
    found = DTYPES.get(number)
    if found is None:
        raise TelemetryFormatError(
            file, f"a tensor has dtype {number}, expected one of {sorted(DTYPES)}, or {TEXT} for text"
        )
    return found


def check_shape(file: str, shape: Sequence[int], content: int, itemsize: int) -> tuple[int, ...]:
    """Return a shape whose entries take as many bytes as there are; raises TelemetryFormatError for another."""
    if len(shape) > MOST_DIMENSIONS or any(size < 0 for size in shape):
        raise TelemetryFormatError(
            file, f"a tensor has shape {list(shape[:MOST_DIMENSIONS])}, expected sizes from 0 on"
        )
    if math.prod(shape) * itemsize != content:
        raise TelemetryFormatError(
            file, f"a tensor of shape {list(shape)} and {itemsize} bytes an entry has {content:,} bytes"
        )
    return tuple(shape)


def numbers(file: str, dtype: int, shape: Sequence[int], content: bytes) -> Tensor:
    """Return entries from their bytes, which stay where they are; the array cannot be written to."""
    kind = dtype_of(file, dtype)
    checked = check_shape(file, shape, len(content), kind.itemsize)
    return np.frombuffer(content, kind).reshape(checked)


def texts(file: str, shape: Sequence[int], content: Sequence[bytes]) -> Tensor:
    """Return texts as an array of dtype ``object``; a byte that is no UTF-8 is replaced."""
    checked = check_shape(file, shape, len(content), 1)
    array = np.empty(len(content), dtype=object)
    array[:] = [each.decode(errors="replace") for each in content]
    return array.reshape(checked)


VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message: its place in the payload, without key and length; ``value`` is that of a varint."""

    number: int
    wire: int
    start: int
    end: int
    value: int = 0


class WireReader:
    """Reads fields of messages from the beginning of a payload; raises TelemetryFormatError where one does not end."""

    def __init__(self, file: str, head: bytes) -> None:
        self.file = file
        self._head = head

    def enter(self, start: int, end: int, number: int, name: str) -> Field:
        """Return the first field of a number that is a message."""
        for field in self.fields(start, end):
            if field.number == number and field.wire == BYTES:
                return field
        raise TelemetryFormatError(self.file, f"a frame holds no {name}")

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Iterate over the fields of a message that lies in a part of the payload."""
        while start < end:
            key, start = self._varint(start, end)
            field = self._field(key >> 3, key & 7, start, end)
            if field.end > end:
                raise TelemetryFormatError(
                    self.file, f"a field ends at byte {field.end:,} of a message that ends at {end:,}"
                )
            yield field
            start = field.end

    def bytes_of(self, field: Field) -> bytes:
        if field.end > len(self._head):
            raise TelemetryFormatError(self.file, f"{field.end:,} bytes come before the entries of a tensor")
        return self._head[field.start : field.end]

    def _field(self, number: int, wire: int, start: int, end: int) -> Field:
        if wire == VARINT:
            value, after = self._varint(start, end)
            return Field(number, wire, start, after, value)
        if wire == BYTES:
            length, start = self._varint(start, end)
            return Field(number, wire, start, start + length)
        fixed = {FIXED64: 8, FIXED32: 4}.get(wire)
        if fixed is None:
            raise TelemetryFormatError(self.file, f"a field has wire type {wire}, expected 0, 1, 2 or 5")
        return Field(number, wire, start, start + fixed)

    def _varint(self, start: int, end: int) -> tuple[int, int]:
        value = 0
        last = min(end, len(self._head), start + _LONGEST_VARINT)
        for place in range(start, last):
            byte = self._head[place]
            value |= (byte & 0x7F) << (7 * (place - start))
            if byte < 0x80:
                return value, place + 1
        raise TelemetryFormatError(self.file, f"a number is cut at byte {last:,}")


HEADER = 12
FOOTER = 4
FRAMING = HEADER + FOOTER
HOOK_FOOTER = 0x062DC0B3

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")


def masked(crc: int) -> int:
    """Return a CRC32C as frames hold it: rotated by 15 bits, plus a constant."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(content: bytes, crc: int = 0) -> int:
    """Return the CRC32C of bytes that follow those of which ``crc`` is it."""
    return cast("int", google_crc32c.extend(crc, content))


def payload_length(file: str, header: bytes) -> int:
    """Return the payload's length from a frame's 12 bytes of header; raises TelemetryFormatError."""
    if len(header) < HEADER:
        raise TelemetryFormatError(file, f"{len(header)} bytes of a frame's header, expected {HEADER}")
    length, check = _HEADER.unpack_from(header)
    if masked(crc32c(header[:8])) != check:
        raise TelemetryFormatError(file, f"a frame's length {length:,} does not agree with its checksum")
    return cast("int", length)


def footer_value(file: str, footer: bytes) -> int:
    """Return the footer of a frame; raises TelemetryFormatError when it is cut."""
    if len(footer) < FOOTER:
        raise TelemetryFormatError(file, "a frame is cut, expected a footer")
    return cast("int", _FOOTER.unpack_from(footer)[0])


def check_payload(file: str, footer: int, crc: int) -> None:
    """Refuse a frame whose footer is neither the hook's constant nor the payload's checksum."""
    if footer not in {HOOK_FOOTER, masked(crc)}:
        raise TelemetryFormatError(file, "a frame's payload does not agree with its checksum, nor is that the hook's")


def payload_of(file: str, frame: bytes) -> bytes:
    """Return the payload of one whole frame; raises TelemetryFormatError when a length or a checksum is wrong."""
    length = payload_length(file, frame)
    if length + FRAMING != len(frame):
        raise TelemetryFormatError(
            file, f"a frame says {length:,} bytes of payload in {len(frame):,} bytes, framing included"
        )
    payload = frame[HEADER:-FOOTER]
    footer = footer_value(file, frame[-FOOTER:])
    if footer != HOOK_FOOTER:
        check_payload(file, footer, crc32c(payload))
    return payload


def frame(payload: bytes) -> bytes:
    """Return a payload as TensorBoard reads it."""
    length = len(payload).to_bytes(8, "little")
    return b"".join(part for each in (length, payload) for part in (each, _FOOTER.pack(masked(crc32c(each)))))


@dataclass(frozen=True, slots=True)
class Walk:
    """Frames of a part of a file: where their payloads start and how long they are; int64[F] each.

    ``end`` is where the last whole frame ends. ``wrong`` counts frames with a wrong checksum, which are left out.
    ``cut`` is the length of a frame of which a part only is there; 0 without one.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    end: int
    wrong: int
    cut: int


def walk(file: str, content: bytes) -> Walk:
    """Find the whole frames of a file that TensorBoard reads, from the beginning of a frame on.

    Raises TelemetryFormatError when the first frame's length is wrong; where a later one is, the walk ends before it.
    """
    starts: list[int] = []
    lengths: list[int] = []
    known: dict[int, int] = {}
    place, size, wrong, cut = 0, len(content), 0, 0
    unpack, footer_at, crc_of = _HEADER.unpack_from, _FOOTER.unpack_from, google_crc32c.value
    while place + HEADER <= size:
        length, check = unpack(content, place)
        if known.get(length) != check:
            if masked(crc_of(content[place : place + 8])) != check:
                if place:
                    break
                payload_length(file, content[:HEADER])
            known[length] = check
        start = place + HEADER
        end = start + length
        if end + FOOTER > size:
            cut = length + FRAMING
            break
        crc = crc_of(content[start:end])
        if ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF == footer_at(content, end)[0]:
            starts.append(start)
            lengths.append(length)
        else:
            wrong += 1
        place = end + FOOTER
    return Walk(np.array(starts, np.int64), np.array(lengths, np.int64), place, wrong, cut)


_SUMMARY, _VALUE, _TAG, _TENSOR, _DTYPE, _SHAPE, _CONTENT = 5, 1, 1, 8, 1, 2, 4


@dataclass(frozen=True, slots=True)
class Content:
    """Entries of a tensor: their place in the payload and their number of bytes, their type and shape."""

    tag: str
    dtype: int
    shape: tuple[int, ...]
    offset: int
    size: int


def find_content(file: str, head: bytes, size: int) -> Content:
    """Return where the entries of a tensor lie; ``head`` begins the payload of ``size`` bytes.

    Raises TelemetryFormatError when the entries do not begin in ``head``, or a message does not end within its outer
    one.
    """
    reader = WireReader(file, head)
    summary = reader.enter(0, size, _SUMMARY, "summary")
    value = reader.enter(summary.start, summary.end, _VALUE, "value")
    tag = b""
    for field in reader.fields(value.start, value.end):
        if field.number == _TAG and field.wire == BYTES:
            tag = reader.bytes_of(field)
        elif field.number == _TENSOR and field.wire == BYTES:
            return _tensor(reader, field, text(file, tag))
    raise TelemetryFormatError(file, "a frame's value holds no tensor")


def _tensor(reader: WireReader, tensor: Field, tag: str) -> Content:
    dtype, shape = 0, b""
    for field in reader.fields(tensor.start, tensor.end):
        if field.number == _DTYPE and field.wire == VARINT:
            dtype = field.value
        elif field.number == _SHAPE and field.wire == BYTES:
            shape = reader.bytes_of(field)
        elif field.number == _CONTENT and field.wire == BYTES:
            return Content(tag, dtype, _sizes(reader.file, shape), field.start, field.end - field.start)
    raise TelemetryFormatError(reader.file, f"tensor {tag} has no tensor_content, expected its entries there")


def _sizes(file: str, shape: bytes) -> tuple[int, ...]:
    try:
        return tuple(each.size for each in TensorShape.FromString(shape).dim)
    except message.DecodeError as fault:
        raise TelemetryFormatError(file, f"a tensor's shape cannot be read: {fault}") from fault
