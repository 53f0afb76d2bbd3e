"""An object's bytes to text, within bounds: plain or gzip, never more than a node-minute can be."""

import zlib
from collections import Counter
from functools import lru_cache

import msgspec

from trainguard.core.errors import TelemetryFormatError

MAX_OBJECT_BYTES = 64 * 1024 * 1024
"""A node-minute of 192 cores and 16 GPUs at 100 ms is 31 MB; what is larger than twice that is not one."""

MAX_RECORDS = 500_000
"""Lines or events of one object: twice those of that node-minute. Decoded, they take many times their bytes."""

UNCOUNTED_BYTES = 4 * 1024 * 1024
"""Up to here any number of records fits into a function's memory and time, and counting them would cost more."""

DECODE_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError)
"""Nesting without end is included."""

MAX_NAME_LENGTH = 64

_GZIP_MAGIC = b"\x1f\x8b"


def unpack(key: str, body: bytes, tally: Counter[str], *, mark: bytes) -> bytes:
    """Return the text of an object; counts gzip, truncated and empty ones.

    Every record has ``mark`` once. Raises TelemetryFormatError for more than 64 MiB, also once unpacked, over 500,000
    records (counted over 4 MiB), or a broken gzip stream.
    """
    if body.startswith(_GZIP_MAGIC):
        tally["gzip_objects"] += 1
        body = _gunzip(key, body, tally)
    if len(body) > MAX_OBJECT_BYTES:
        raise TelemetryFormatError(key, f"larger than {MAX_OBJECT_BYTES} bytes, expected one node's minute")
    records = body.count(mark) if len(body) > UNCOUNTED_BYTES else 0
    if records > MAX_RECORDS:
        raise TelemetryFormatError(key, f"{records} records, expected one node's minute with at most {MAX_RECORDS}")
    if not body or body.isspace():
        tally["empty_objects"] += 1
        return b""
    return body


def _gunzip(key: str, body: bytes, tally: Counter[str]) -> bytes:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = unpacker.decompress(body, MAX_OBJECT_BYTES + 1)
    except zlib.error as fault:
        raise TelemetryFormatError(key, f"a broken gzip stream ({fault}), expected JSON") from fault
    if not unpacker.eof and len(text) <= MAX_OBJECT_BYTES:
        tally["truncated_objects"] += 1
    return text


def printable(name: str) -> str:
    """Return a name from telemetry as it may stand in rows, reports and mails: short, on one line."""
    return _on_one_line(name[:MAX_NAME_LENGTH])


@lru_cache(maxsize=4_096)
def _on_one_line(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name)
