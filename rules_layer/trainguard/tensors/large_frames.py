"""Where in a frame the entries of its tensor lie: read from its beginning, so that the entries need not be held.

The payload is an Event, which holds a Summary, which holds one Value, which holds a tag and a TensorProto: five
messages, each inside the one before. This module steps into them in turn and stops at ``tensor_content``. What comes
before it takes a few hundred bytes. Each message must end where the one around it ends, or before.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf import message

from trainguard.errors import TelemetryFormatError
from trainguard.tensors.messages import TensorShape, text

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SUMMARY, _VALUE, _TAG, _TENSOR, _DTYPE, _SHAPE, _CONTENT = 5, 1, 1, 8, 1, 2, 4
_LONGEST_VARINT = 10


@dataclass(frozen=True, slots=True)
class Content:
    """Entries of a tensor: their place in the payload and their number of bytes, their type and shape."""

    tag: str
    dtype: int
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message: a number, or the place of bytes in the payload."""

    number: int
    wire: int
    start: int
    end: int
    value: int = 0


def find_content(file: str, head: bytes, size: int) -> Content:
    """Return where the entries of the tensor of a frame lie.

    Parameters
    ----------
    file : str
        Named in errors.
    head : bytes
        The beginning of the payload.
    size : int
        Length of the whole payload.

    Raises
    ------
    TelemetryFormatError
        When the entries do not begin in ``head``, or a message does not end within the one around it.
    """
    reader = _Reader(file, head)
    summary = reader.enter(0, size, _SUMMARY, "summary")
    value = reader.enter(summary.start, summary.end, _VALUE, "value")
    tag = b""
    for field in reader.fields(value.start, value.end):
        if field.number == _TAG and field.wire == _BYTES:
            tag = reader.bytes_of(field)
        elif field.number == _TENSOR and field.wire == _BYTES:
            return _tensor(reader, field, text(file, tag))
    raise TelemetryFormatError(file, "a frame's value holds no tensor")


def _tensor(reader: "_Reader", tensor: _Field, tag: str) -> Content:
    dtype, shape = 0, b""
    for field in reader.fields(tensor.start, tensor.end):
        if field.number == _DTYPE and field.wire == _VARINT:
            dtype = field.value
        elif field.number == _SHAPE and field.wire == _BYTES:
            shape = reader.bytes_of(field)
        elif field.number == _CONTENT and field.wire == _BYTES:
            return Content(tag, dtype, _sizes(reader.file, shape), field.start, field.end - field.start)
    raise TelemetryFormatError(reader.file, f"tensor {tag} has no tensor_content, expected its entries there")


def _sizes(file: str, shape: bytes) -> tuple[int, ...]:
    try:
        return tuple(each.size for each in TensorShape.FromString(shape).dim)
    except message.DecodeError as fault:
        raise TelemetryFormatError(file, f"a tensor's shape cannot be read: {fault}") from fault


class _Reader:
    """Reads fields of messages from the beginning of a payload."""

    def __init__(self, file: str, head: bytes) -> None:
        self.file = file
        self._head = head

    def enter(self, start: int, end: int, number: int, name: str) -> _Field:
        """Return the first field of a number that is a message."""
        for field in self.fields(start, end):
            if field.number == number and field.wire == _BYTES:
                return field
        raise TelemetryFormatError(self.file, f"a frame holds no {name}")

    def fields(self, start: int, end: int) -> Iterator[_Field]:
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

    def bytes_of(self, field: _Field) -> bytes:
        """Return the bytes of a field."""
        if field.end > len(self._head):
            raise TelemetryFormatError(self.file, f"{field.end:,} bytes come before the entries of a tensor")
        return self._head[field.start : field.end]

    def _field(self, number: int, wire: int, start: int, end: int) -> _Field:
        if wire == _VARINT:
            value, after = self._varint(start, end)
            return _Field(number, wire, start, after, value)
        if wire == _BYTES:
            length, start = self._varint(start, end)
            return _Field(number, wire, start, start + length)
        fixed = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if fixed is None:
            raise TelemetryFormatError(self.file, f"a field has wire type {wire}, expected 0, 1, 2 or 5")
        return _Field(number, wire, start, start + fixed)

    def _varint(self, start: int, end: int) -> tuple[int, int]:
        value = 0
        last = min(end, len(self._head), start + _LONGEST_VARINT)
        for place in range(start, last):
            byte = self._head[place]
            value |= (byte & 0x7F) << (7 * (place - start))
            if byte < 0x80:
                return value, place + 1
        raise TelemetryFormatError(self.file, f"a number is cut at byte {last:,}")
