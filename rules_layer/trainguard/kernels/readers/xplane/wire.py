"""Protobuf's wire format, read from the front in bounded memory, and the messages of OpenXLA's ``xplane.proto``."""

import math
from collections.abc import Iterator
from typing import Any

from trainguard.formats.protobuf import BYTES, DOUBLE, INT64, MESSAGE, UINT64, MessageTable, message_classes

_MESSAGES: MessageTable = {
    "Line": [
        ("name", 2, BYTES, ""),
        ("timestamp_ns", 3, INT64, ""),
        ("events", 4, MESSAGE, "Event*"),
        ("display_name", 11, BYTES, ""),
    ],
    "Event": [
        ("metadata_id", 1, INT64, ""),
        ("offset_ps", 2, INT64, ""),
        ("duration_ps", 3, INT64, ""),
        ("stats", 4, MESSAGE, "Stat*"),
    ],
    "Stat": [
        ("metadata_id", 1, INT64, ""),
        ("double_value", 2, DOUBLE, ""),
        ("uint64_value", 3, UINT64, ""),
        ("int64_value", 4, INT64, ""),
        ("str_value", 5, BYTES, ""),
        ("ref_value", 7, UINT64, ""),
    ],
    "EventMetadataEntry": [("key", 1, INT64, ""), ("value", 2, MESSAGE, "EventMetadata")],
    "EventMetadata": [("name", 2, BYTES, ""), ("stats", 5, MESSAGE, "Stat*")],
    "StatMetadataEntry": [("key", 1, INT64, ""), ("value", 2, MESSAGE, "StatMetadata")],
    "StatMetadata": [("name", 2, BYTES, "")],
}
_CLASSES = message_classes("trainguard.xplane", _MESSAGES)

Line: Any = _CLASSES["Line"]
Event: Any = _CLASSES["Event"]
Stat: Any = _CLASSES["Stat"]
EventMetadataEntry: Any = _CLASSES["EventMetadataEntry"]
StatMetadataEntry: Any = _CLASSES["StatMetadataEntry"]

SPACE_PLANE = 1
PLANE_NAME, PLANE_LINE, PLANE_EVENT_METADATA, PLANE_STAT_METADATA, PLANE_STAT = 2, 3, 4, 5, 6
LINE_NAME, LINE_TIMESTAMP, LINE_EVENT, LINE_DISPLAY_NAME = 2, 3, 4, 11
"""Numbers of fields that are streamed: a plane and a line can be as large as the file."""


VARINT, DOUBLE, LENGTH, FLOAT = 0, 1, 2, 5
_LONGEST_VARINT = 10
_SKIPPED = {DOUBLE: 8, FLOAT: 4}

WHOLE = math.inf


class CutOffError(Exception):
    """The text ends within a field."""


class WireError(Exception):
    """What stands here is no field, or one longer than the message that it is in."""


class Wire:
    """Reads fields from chunks of bytes; ``position`` counts what was read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.position = 0
        self._chunks = chunks
        self._held = b""
        self._at = 0

    def fields(self, end: float) -> Iterator[tuple[int, int, int]]:
        """Yield number, type and value (a length where there is one) of each field; unread rests are skipped.

        Raises CutOffError and WireError.
        """
        while self.position < end and not self._ended():
            tag = self._varint()
            number, kind = tag >> 3, tag & 7
            if not number:
                raise WireError
            if kind == VARINT:
                yield number, kind, self._varint()
            elif kind == LENGTH:
                length = self._varint()
                behind = self.position + length
                if behind > end:
                    raise WireError
                yield number, kind, length
                self.skip_to(behind)
            elif kind in _SKIPPED:
                self.skip_to(self.position + _SKIPPED[kind])
            else:
                raise WireError

    def read(self, size: int) -> bytes:
        """Return the next bytes; raises CutOffError where there are fewer."""
        while len(self._held) - self._at < size:
            if not (more := next(self._chunks, b"")):
                raise CutOffError
            self._held, self._at = self._held[self._at :] + more, 0
        found = self._held[self._at : self._at + size]
        self._at += size
        self.position += size
        return found

    def skip_to(self, position: float) -> None:
        """Pass over what stands before a position; raises CutOffError where the text is shorter."""
        left = position - self.position
        while left > 0:
            held = len(self._held) - self._at
            if not held:
                self._held, self._at = next(self._chunks, b""), 0
                held = len(self._held)
                if not held:
                    raise CutOffError
            step = int(min(left, held))
            self._at += step
            self.position += step
            left -= step

    def _ended(self) -> bool:
        while self._at == len(self._held):
            more = next(self._chunks, None)
            if more is None:
                return True
            self._held, self._at = more, 0
        return False

    def _varint(self) -> int:
        at, held = self._at, self._held
        if at < len(held) and held[at] < 0x80:  # most are of one byte
            self._at += 1
            self.position += 1
            return held[at]
        found = 0
        for place in range(_LONGEST_VARINT):
            byte = self.read(1)[0]
            found |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return found
        raise WireError
