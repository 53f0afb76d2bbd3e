"""Large traces made of a real one: copies of its events, each later, with correlations and steps of its own."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.kernel_traces import real_text

SOURCE = "a100_ddp2_rank0_nccl_ns"
# About so many megabytes have so many copies.
SIZES_MB = {237: 24, 1_000: 102}

_SHIFTED = re.compile(rb'("ts": |"correlation": |"External id": |ProfilerStep#)(\d+)')
_ROOM_US = 1_000_000


def pieces(copies: int) -> Iterator[bytes]:
    """Yield the text of a trace: its head with the first copy, further copies, its tail."""
    text = real_text(SOURCE)
    start = text.index(b"[", text.index(b'"traceEvents"')) + 1
    end = text.rindex(b"]", 0, text.index(b'"INFO"'))
    events = text[start:end].rstrip()
    by = {b'"ts": ': _ROOM_US, b'"correlation": ': 1_000_000, b'"External id": ': 1_000_000, b"ProfilerStep#": 100}
    yield text[:start]
    for copy in range(copies):
        yield _SHIFTED.sub(_later(copy, by), events) + (b"," if copy < copies - 1 else b"")
    yield text[end:]


def _later(copy: int, by: dict[bytes, int]) -> Callable[[re.Match[bytes]], bytes]:
    return lambda found: found[1] + str(int(found[2]) + copy * by[found[1]]).encode()


def write(file: Path, copies: int) -> Path:
    """Write a trace of so many copies."""
    with file.open("wb") as out:
        for piece in pieces(copies):
            out.write(piece)
    return file
