"""A trace's bytes, chunk by chunk: plain or gzip, of any size, as far as it can be unpacked."""

import zlib
from collections import Counter
from collections.abc import Iterator

from trainguard.core.errors import KernelTraceError
from trainguard.core.ports import ByteStream
from trainguard.kernels.columns import GROWTH_FROM_BYTES, MOST_GROWTH

CHUNK_BYTES = 1024 * 1024
"""Bytes that are unpacked at once: a gzip chunk of a trace grows 12 to 18 times."""

_FEW_BYTES = 64
_GZIP_MAGIC = b"\x1f\x8b"


def text_chunks(name: str, stream: ByteStream, tally: Counter[str]) -> Iterator[bytes]:
    """Yield the text of a trace; a gzip stream that breaks off ends it and is counted.

    ``tally`` counts ``text_bytes``, ``truncated_gzip`` and ``broken_gzip``. Raises KernelTraceError when a gzip stream
    is broken before its first byte of text, or grows as no trace does.
    """
    first = stream.read(CHUNK_BYTES)
    chunks = _unzipped(name, first, stream, tally) if first.startswith(_GZIP_MAGIC) else _read(first, stream)
    for chunk in chunks:
        tally["text_bytes"] += len(chunk)
        yield chunk


def _read(first: bytes, stream: ByteStream) -> Iterator[bytes]:
    while first:
        yield first
        first = stream.read(CHUNK_BYTES)


def _unzipped(name: str, packed: bytes, stream: ByteStream, tally: Counter[str]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    taken, given = 0, 0
    while packed:
        before = unpacker.copy()
        try:
            text = unpacker.decompress(packed, CHUNK_BYTES)
        except zlib.error as fault:
            text = _until_broken(before, packed)
            if not text and not tally["text_bytes"]:
                raise KernelTraceError(name, f"a broken gzip stream ({fault}), expected a trace") from fault
            tally["broken_gzip"] += 1
            yield text
            return
        taken += len(packed) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
        given += len(text)
        if given > max(GROWTH_FROM_BYTES, MOST_GROWTH * taken):
            raise KernelTraceError(name, f"a gzip stream that grows over {MOST_GROWTH}-fold, expected a trace")
        if text:
            yield text
        packed = unpacker.unconsumed_tail
        if unpacker.eof:
            packed = unpacker.unused_data
            if len(packed) < len(_GZIP_MAGIC):
                packed += stream.read(CHUNK_BYTES)
            if not packed.startswith(_GZIP_MAGIC):
                return
            unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        packed = packed or stream.read(CHUNK_BYTES)
    tally["truncated_gzip"] += 1


def _until_broken(unpacker: "zlib._Decompress", packed: bytes) -> bytes:
    """Return what a broken stream holds up to the fault, nearly: its bytes are given to it a few at a time."""
    text = b""
    try:
        for place in range(0, len(packed), _FEW_BYTES):
            text += unpacker.decompress(packed[place : place + _FEW_BYTES])
            if len(text) > CHUNK_BYTES:
                break
    except zlib.error:
        pass
    return text
