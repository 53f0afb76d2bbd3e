"""An object's bytes to text, within bounds: plain or gzip, never more than a node-minute can be."""

import zlib
from collections import Counter

from trainguard.errors import TelemetryFormatError

MAX_OBJECT_BYTES = 64 * 1024 * 1024
"""A node-minute of 192 cores and 16 GPUs at 100 ms is 31 MB; what is larger than twice that is not one."""

_GZIP_MAGIC = b"\x1f\x8b"


def unpack(key: str, body: bytes, tally: Counter[str]) -> bytes:
    """Return the text of an object; counts gzip, truncated and empty ones.

    Raises
    ------
    TelemetryFormatError
        When the object is larger than 64 MiB, also once unpacked, or is a broken gzip stream.
    """
    if body.startswith(_GZIP_MAGIC):
        tally["gzip_objects"] += 1
        body = _gunzip(key, body, tally)
    if len(body) > MAX_OBJECT_BYTES:
        raise TelemetryFormatError(key, f"larger than {MAX_OBJECT_BYTES} bytes, expected one node's minute")
    if not body.strip():
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
