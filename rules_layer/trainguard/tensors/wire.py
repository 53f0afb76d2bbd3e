"""Protobuf's wire format, field by field, where a message need not be decoded as a whole."""

from collections.abc import Iterator
from dataclasses import dataclass

from trainguard.errors import TelemetryFormatError

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
    """Reads fields of messages from the beginning of a payload.

    Its methods raise TelemetryFormatError where a message does not end within the one around it, or within what is
    there of the payload.
    """

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
        """Return the bytes of a field."""
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
