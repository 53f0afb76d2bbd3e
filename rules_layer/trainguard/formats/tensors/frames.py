"""TFRecord frames: a length, its checksum, the payload, and a footer.

The footer is the masked CRC32C of the payload. The SageMaker hook writes that of the text ``0x12345678`` instead, which
is why TensorBoard finds nothing in its files.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import google_crc32c
import numpy as np
from google.protobuf import message
from numpy.typing import NDArray

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.git_lfs import refuse_pointer
from trainguard.formats.protobuf import LENGTH, VARINT, CutOffError, MessageTable, Wire, WireError, message_classes
from trainguard.formats.tensors.step_view import Tensor

_MESSAGES: MessageTable = {
    "Event": [("wall_time", 1, "double"), ("step", 2, "int64"), ("summary", 5, "Summary")],
    "Summary": [("value", 1, "Value*")],
    "Value": [
        ("tag", 1, "bytes"),
        ("simple_value", 2, "float"),
        ("tensor", 8, "TensorProto"),
        ("metadata", 9, "SummaryMetadata"),
    ],
    "SummaryMetadata": [("plugin_data", 1, "PluginData*")],
    "PluginData": [("plugin_name", 1, "bytes"), ("content", 2, "bytes")],
    "TensorProto": [
        ("dtype", 1, "int32"),
        ("tensor_shape", 2, "TensorShapeProto"),
        ("tensor_content", 4, "bytes"),
        ("float_val", 5, "float*"),
        ("double_val", 6, "double*"),
        ("int_val", 7, "int32*"),
        ("string_val", 8, "bytes*"),
        ("int64_val", 10, "int64*"),
        ("bool_val", 11, "bool*"),
    ],
    "TensorShapeProto": [("dim", 2, "Dim*")],
    "Dim": [("size", 1, "int64"), ("name", 2, "bytes")],
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


# By TensorFlow's number. The hook writes text with number 0 and ``string_val``.
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

TEXT = 0
MOST_DIMENSIONS = 32
_TF_TEXT = 7


def is_text(dtype: int) -> bool:
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
    refuse_pointer(file, header)
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
    wire = Wire(iter([head]))
    try:
        summary = _enter(file, wire, size, _SUMMARY, "summary")
        value = _enter(file, wire, summary, _VALUE, "value")
        tag = b""
        for number, kind, length in wire.fields(value):
            if number == _TAG and kind == LENGTH:
                tag = wire.read(length)
            elif number == _TENSOR and kind == LENGTH:
                return _tensor(file, wire, wire.position + length, text(file, tag))
    except CutOffError as fault:
        raise TelemetryFormatError(file, f"{len(head):,} bytes or more come before the entries of a tensor") from fault
    except WireError as fault:
        raise TelemetryFormatError(file, str(fault)) from fault
    raise TelemetryFormatError(file, "a frame's value holds no tensor")


def _enter(file: str, wire: Wire, end: int, number: int, name: str) -> int:
    """Go to the content of the first field of a number that is a message, and return where that ends."""
    for found, kind, length in wire.fields(end):
        if found == number and kind == LENGTH:
            return wire.position + length
    raise TelemetryFormatError(file, f"a frame holds no {name}")


def _tensor(file: str, wire: Wire, end: int, tag: str) -> Content:
    dtype, shape = 0, b""
    for number, kind, value in wire.fields(end):
        if number == _DTYPE and kind == VARINT:
            dtype = value
        elif number == _SHAPE and kind == LENGTH:
            shape = wire.read(value)
        elif number == _CONTENT and kind == LENGTH:
            try:
                sizes = tuple(each.size for each in TensorShape.FromString(shape).dim)
            except message.DecodeError as fault:
                raise TelemetryFormatError(file, f"a tensor's shape cannot be read: {fault}") from fault
            return Content(tag, dtype, sizes, wire.position, value)
    raise TelemetryFormatError(file, f"tensor {tag} has no tensor_content, expected its entries there")
