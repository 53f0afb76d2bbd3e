"""Writes run files of Weights & Biases from the format's own description: what the reader is tested with."""

import json
import struct
import zlib
from collections.abc import Iterable, Mapping

_BLOCK = 32 * 1024
HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)


def run_file(records: Iterable[bytes]) -> bytes:
    """Return a file of records, cut into blocks as LevelDB cuts its log."""
    out = bytearray(HEADER)
    for record in records:
        begin, first = 0, True
        while first or begin < len(record):
            left = _BLOCK - len(out) % _BLOCK
            if left < 7:
                out += bytes(left)
                left = _BLOCK
            piece = record[begin : begin + left - 7]
            begin += len(piece)
            last = begin >= len(record)
            kind = 1 if first and last else 2 if first else 4 if last else 3
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            first = False
    return bytes(out)


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, content: bytes | int) -> bytes:
    """Return a field: a varint, or bytes with their length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def time(at: float) -> bytes:
    """Return a timestamp."""
    return field(1, int(at)) + field(2, round(at % 1 * 1e9))


def run(name: str = "a run", *, at: float = 1_800_000_000.0, host: str = "host-1") -> bytes:
    """Return the record that describes a run."""
    texts = {1: "abc123", 2: "team", 3: "project", 8: name, 13: host}
    return field(17, b"".join(field(number, text.encode()) for number, text in texts.items()) + field(17, time(at)))


def stats(at: float, values: Mapping[str, float]) -> bytes:
    """Return system metrics at a time."""
    items = (
        field(3, field(1, name.encode()) + field(16, json.dumps(value).encode())) for name, value in values.items()
    )
    return field(7, field(2, time(at)) + b"".join(items))


def history(step: int, at: float, values: Mapping[str, object]) -> bytes:
    """Return what a step logged, as versions before typed values write it."""
    every = {**values, "_step": step, "_timestamp": at}
    items = (field(1, field(1, name.encode()) + field(16, json.dumps(value).encode())) for name, value in every.items())
    return field(2, b"".join(items) + field(2, field(1, step)))


def typed_history(step: int, values: Mapping[str, float]) -> bytes:
    """Return what a step logged with typed values: numbers as doubles."""
    items = (
        field(1, field(2, name.encode()) + varint(6 << 3 | 1) + struct.pack("<d", value))
        for name, value in values.items()
    )
    return field(2, b"".join(items) + field(2, field(1, step)))


def ended(code: int) -> bytes:
    """Return the record of a run's end."""
    return field(18, field(1, code) + field(2, 60))
