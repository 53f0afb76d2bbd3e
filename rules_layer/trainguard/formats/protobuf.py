"""Protobuf: messages from tables of their fields, and fields of messages too large to decode. Texts are bytes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# As in protobuf's descriptors.
_TYPES = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "bytes": 12, "uint32": 13, "sint64": 18
}  # fmt: skip

_OPTIONAL, _REPEATED, _MESSAGE = 1, 3, 11

# By message: name, number and type of each field, or its message, followed by a star for what is repeated.
MessageTable = Mapping[str, Sequence[tuple[str, int, str]]]


def message_classes(package: str, table: MessageTable) -> Mapping[str, Any]:
    """Return a class for each message of a table; ``package`` is a name of its own."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package.replace('.', '/')}.proto", package=package, syntax="proto2"
    )
    for message, fields in table.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            label, of = _REPEATED if kind.endswith("*") else _OPTIONAL, kind.rstrip("*")
            number_of_type = cast("Any", _TYPES.get(of, _MESSAGE))
            added = described.field.add(name=name, number=number, type=number_of_type, label=cast("Any", label))
            if of in table:
                added.type_name = f".{package}.{of}"
            elif label == _REPEATED and of != "bytes":
                added.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in table}


VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_FIXED = {FIXED64: 8, FIXED32: 4}

# The end of a message that is as long as the file.
WHOLE = math.inf


class CutOffError(Exception):
    """The text ends within a field."""


class WireError(Exception):
    """What stands here is no field, or one longer than the message that it is in."""


class Wire:
    """Reads fields from chunks of bytes; ``position`` counts what was read, ``begins`` is where a number began."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.position = self.begins = 0
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
                raise WireError("a field has no number")
            if kind == VARINT:
                self.begins = self.position
                yield number, kind, self._varint()
            elif kind == LENGTH:
                length = self._varint()
                behind = self.position + length
                if behind > end:
                    raise WireError(f"a field ends at byte {behind:,} of a message that ends at {end:,}")
                yield number, kind, length
                self.skip_to(behind)
            elif kind in _FIXED:
                behind = self.position + _FIXED[kind]
                yield number, kind, _FIXED[kind]
                self.skip_to(behind)
            else:
                raise WireError(f"a field has wire type {kind}, expected 0, 1, 2 or 5")

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
        raise WireError(f"a number is cut at byte {self.position:,}")
