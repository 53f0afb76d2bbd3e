"""The frames of a run file: 32 KiB blocks with records in whole or in parts, as LevelDB writes its log."""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.git_lfs import refuse_pointer
from trainguard.formats.protobuf import MessageTable, message_classes
from trainguard.formats.runs.run import CUT

_MESSAGES: MessageTable = {
    "Record": [
        ("history", 2, "History"),
        ("stats", 7, "Stats"),
        ("config", 5, "Config"),
        ("run", 17, "Run"),
        ("exit", 18, "Exit"),
        ("environment", 26, "Environment"),
    ],
    "History": [("item", 1, "Item*"), ("step", 2, "Step")],
    "Step": [("num", 1, "int64")],
    "Item": [
        ("key", 1, "bytes"),
        ("nested_key", 2, "bytes*"),
        ("boolean", 4, "bool"),
        ("integer", 5, "sint64"),
        ("number", 6, "double"),
        ("value_json", 16, "bytes"),
    ],
    "Stats": [("timestamp", 2, "Time"), ("item", 3, "StatsItem*")],
    "StatsItem": [("key", 1, "bytes"), ("value_json", 16, "bytes")],
    "Time": [("seconds", 1, "int64"), ("nanos", 2, "int32")],
    "Run": [
        ("run_id", 1, "bytes"),
        ("entity", 2, "bytes"),
        ("project", 3, "bytes"),
        ("config", 4, "Config"),
        ("display_name", 8, "bytes"),
        ("host", 13, "bytes"),
        ("start_time", 17, "Time"),
    ],
    "Config": [("update", 1, "Setting*")],
    "Setting": [("key", 1, "bytes"), ("nested_key", 2, "bytes*"), ("value_json", 16, "bytes")],
    "Exit": [("exit_code", 1, "int32"), ("runtime", 2, "int32")],
    "Environment": [("gpu_type", 18, "bytes"), ("gpu_count", 19, "uint32")],
}

Record: Any = message_classes("trainguard.wandb", _MESSAGES)["Record"]


MAGIC = b":W&B"
_FILE_HEADER = struct.Struct("<4sHB")
_PART_HEADER = struct.Struct("<IHB")
_IDENTITY = 0xBEE1
_VERSION = 0
_BLOCK = 32 * 1024
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_TYPES = range(_WHOLE, _LAST + 1)
_TYPE_CRC = {each: zlib.crc32(bytes((each,))) for each in _TYPES}
MAX_RECORD_BYTES = 64 * 1024 * 1024

WRONG_CHECKSUM = "a block of the file does not agree with its checksum"
WITHOUT_START = "a part of a record whose first part is missing"
TOO_LARGE = f"a record is larger than {MAX_RECORD_BYTES:,} bytes"


class Records:
    """The records of a file, one after the other; ``stream`` is at its start.

    ``bad`` counts what could not be read, by the reason. After a wrong checksum reading goes on at the next block.
    """

    def __init__(self, file: str, stream: BinaryIO) -> None:
        self._stream = stream
        self.bad: dict[str, int] = {}
        header = stream.read(_FILE_HEADER.size)
        refuse_pointer(file, header)
        if len(header) < _FILE_HEADER.size or header[: len(MAGIC)] != MAGIC:
            raise TelemetryFormatError(file, f"it begins with {header[:4]!r}, expected a run file of W&B, {MAGIC!r}")
        _, identity, version = _FILE_HEADER.unpack(header)
        if (identity, version) != (_IDENTITY, _VERSION):
            raise TelemetryFormatError(file, f"version {version} of run files of W&B, expected {_VERSION}")

    def __iter__(self) -> Iterator[bytes]:
        begun: list[bytes] | None = None
        size = 0
        for kind, content in self._parts():
            if kind in (_WHOLE, _FIRST):
                if begun is not None:
                    self._refuse(CUT)
                begun, size = [], 0
            if begun is None:
                if kind:
                    self._refuse(WITHOUT_START)
                continue
            if not kind or size + len(content) > MAX_RECORD_BYTES:
                if kind:
                    self._refuse(TOO_LARGE)
                begun = None
                continue
            begun.append(content)
            size += len(content)
            if kind in (_WHOLE, _LAST):
                yield b"".join(begun)
                begun = None
        if begun is not None:
            self._refuse(CUT)

    def _parts(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over types and contents; type 0 says that something is missing here."""
        start = _FILE_HEADER.size
        while block := self._stream.read(_BLOCK - start):
            yield from self._parts_of(block, _BLOCK - start)
            start = 0

    def _parts_of(self, block: bytes, size: int) -> Iterator[tuple[int, bytes]]:
        place = 0
        while len(block) - place >= _PART_HEADER.size:
            check, length, kind = _PART_HEADER.unpack_from(block, place)
            if not kind and not length:
                return  # The rest of a block that was set aside and not written.
            place += _PART_HEADER.size
            content = block[place : place + length]
            if len(content) < length:
                self._refuse(CUT)
                yield 0, b""
                return
            if kind not in _TYPES or zlib.crc32(content, _TYPE_CRC[kind]) != check:
                self._refuse(WRONG_CHECKSUM)
                yield 0, b""
                return
            place += length
            yield kind, content
        if place < len(block) < size:
            self._refuse(CUT)
            yield 0, b""

    def _refuse(self, why: str) -> None:
        self.bad[why] = self.bad.get(why, 0) + 1
