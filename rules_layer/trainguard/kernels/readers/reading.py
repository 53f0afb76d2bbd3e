"""The reader that a trace needs, by its name and its first bytes."""

import re
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from trainguard.core.errors import KernelTraceError
from trainguard.formats.git_lfs import WHY as POINTER
from trainguard.formats.git_lfs import is_pointer
from trainguard.kernels.columns import Trace
from trainguard.kernels.memory.snapshot import MemorySnapshot, is_snapshot, read_snapshot
from trainguard.kernels.memory.timeline import is_timeline, read_timeline
from trainguard.kernels.readers.builder import text_chunks
from trainguard.kernels.readers.kineto import read_trace

if TYPE_CHECKING:
    from trainguard.core.ports import ByteStream

MAGIC = b"SQLite format 3\x00"

# A larger SQLite export is not copied: it is read where it lies on a disk, or not at all.
MOST_DATABASE_BYTES = 8 * 1024**3

# Of text; values take up to ten times as much memory.
MOST_SNAPSHOT_BYTES = 512 * 1024 * 1024

# Of text; its numbers take up to twelve times as much memory.
MOST_TIMELINE_BYTES = 128 * 1024 * 1024

PICTURE = 'it is a picture of a memory timeline, expected export_memory_timeline("….json.gz")'
SNAPSHOT = "it is a memory snapshot, expected a trace: trainguard kernels reads snapshots"

_HEAD = 500
_XLA_ENDINGS = (".xplane.pb", ".xplane.pb.gz")
REPORT_ENDINGS = (".nsys-rep", ".qdrep", ".qdstrm")

# A plane with its number, if it is not 0, and its name.
_SPACE = re.compile(rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12")


def read_recording(
    name: str, open_stream: Callable[[], "ByteStream"], file: Path | None = None
) -> Trace | MemorySnapshot:
    """Read a trace as `read_any` does, or a snapshot of PyTorch's allocator, a pickle or JSON, plain or gzip.

    A memory timeline of torch.profiler is read as a snapshot.
    """
    return _memory(name, open_stream, _first(name, open_stream)) or read_any(name, open_stream, file)


def read_memory(name: str, open_stream: Callable[[], "ByteStream"]) -> MemorySnapshot:
    """Read a snapshot of PyTorch's allocator, or a memory timeline; raises KernelTraceError for any other file."""
    first = _first(name, open_stream)
    if is_pointer(first):
        raise KernelTraceError(name, POINTER)
    found = _memory(name, open_stream, first)
    if found is None:
        expected = "a pickle of torch.cuda.memory._dump_snapshot, its JSON, or that of export_memory_timeline"
        raise KernelTraceError(name, f"it begins as no memory snapshot, expected {expected}")
    return found


def _memory(name: str, open_stream: Callable[[], "ByteStream"], first: bytes) -> MemorySnapshot | None:
    if is_timeline(first):
        return read_timeline(name, _whole(name, open_stream, "timeline", MOST_TIMELINE_BYTES))
    if is_snapshot(first):
        return read_snapshot(name, _whole(name, open_stream, "snapshot", MOST_SNAPSHOT_BYTES))
    return None


def _first(name: str, open_stream: Callable[[], "ByteStream"]) -> bytes:
    with open_stream() as stream:
        return next(text_chunks(name, stream, Counter()), b"")


def _whole(name: str, open_stream: Callable[[], "ByteStream"], what: str, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    tally: Counter[str] = Counter()
    with open_stream() as stream:
        for chunk in text_chunks(name, stream, tally):
            parts.append(chunk)
            size += len(chunk)
            if size > most:
                raise KernelTraceError(
                    name, f"a memory {what} of over {most:,} bytes, expected less: record fewer entries"
                )
    return b"".join(parts)


def read_any(name: str, open_stream: Callable[[], "ByteStream"], file: Path | None = None) -> Trace:
    """Read a trace of any format.

    ``open_stream`` opens it, plain or gzip, from its first byte, up to three times. ``file`` is where it lies on a
    disk; an SQLite export without is copied to a temporary file. Raises KernelTraceError when it is no trace, or
    unreadable.
    """
    if name.endswith(REPORT_ENDINGS):
        reason = "it is a report of Nsight Systems, expected its export: nsys export --type sqlite"
        raise KernelTraceError(name, reason)
    if name.endswith(_XLA_ENDINGS):
        return _xplane(name, open_stream)
    first = _first(name, open_stream)
    if is_pointer(first):
        raise KernelTraceError(name, POINTER)
    if is_snapshot(first):
        raise KernelTraceError(name, SNAPSHOT)
    if b"<title>GPU Memory Timeline HTML</title>" in first[:_HEAD]:
        raise KernelTraceError(name, PICTURE)
    if first.startswith(MAGIC):
        # A file that is packed begins otherwise.
        with file.open("rb") if file else BytesIO() as opened:
            is_plain = opened.read(len(MAGIC)) == MAGIC
        return _nsight(name, file) if file and is_plain else _copied(name, open_stream)
    is_text = first.lstrip().startswith((b"{", b"["))
    if not is_text and _SPACE.match(first):
        return _xplane(name, open_stream)
    with open_stream() as stream:
        return read_trace(name, stream)


def _xplane(name: str, open_stream: Callable[[], "ByteStream"]) -> Trace:
    # Protocol buffers are slow to import.
    from trainguard.kernels.readers.xplane.reader import read_xplane

    return read_xplane(name, open_stream)


def _nsight(name: str, file: Path) -> Trace:
    from trainguard.kernels.readers.nsight.reader import read_nsight

    return read_nsight(name, file)


_EVENTS = re.compile(rb'"(?:traceEvents|ph)"\s*:')


def begins_as_trace(name: str, open_stream: Callable[[], "ByteStream"]) -> bool:
    """Return whether the front of a file, plain or gzip, is that of a trace of any format, or of a memory timeline."""
    first = _first(name, open_stream)
    is_text = first.lstrip().startswith((b"{", b"["))
    return (
        first.startswith(MAGIC) or is_timeline(first) or bool(_EVENTS.search(first) if is_text else _SPACE.match(first))
    )


def _copied(name: str, open_stream: Callable[[], "ByteStream"]) -> Trace:
    with NamedTemporaryFile(suffix=".sqlite") as copy:
        written = 0
        with open_stream() as stream:
            for chunk in text_chunks(name, stream, Counter()):
                written += len(chunk)
                if written > MOST_DATABASE_BYTES:
                    reason = f"an export of over {MOST_DATABASE_BYTES:,} bytes, expected less, or a file on a disk"
                    raise KernelTraceError(name, reason)
                copy.write(chunk)
        copy.flush()
        return _nsight(name, Path(copy.name))
