"""Which reader a trace needs, by its name and its first bytes."""

import re
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from tempfile import NamedTemporaryFile

from trainguard.errors import KernelTraceError
from trainguard.kernels.columns import Trace
from trainguard.kernels.kineto import read_trace
from trainguard.kernels.nsight.database import MAGIC
from trainguard.kernels.nsight.reader import read_nsight
from trainguard.kernels.unpacking import text_chunks
from trainguard.kernels.xplane.reader import read_xplane
from trainguard.ports import ByteStream

MOST_DATABASE_BYTES = 8 * 1024**3
"""A larger SQLite export is not copied: it is read where it lies on a disk, or not at all."""

_XLA_ENDINGS = (".xplane.pb", ".xplane.pb.gz")
REPORT_ENDINGS = (".nsys-rep", ".qdrep", ".qdstrm")
"""Reports of Nsight Systems before their export: only NVIDIA's tools read them."""

_SPACE = re.compile(rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12")
"""A plane with its number, if it is not 0, and its name."""


class Format(StrEnum):
    """Formats of traces."""

    CHROME = "chrome"
    XLA = "xla"
    NSIGHT = "nsight"


def read_any(name: str, open_stream: Callable[[], ByteStream], file: Path | None = None) -> Trace:
    """Read a trace of any format.

    Parameters
    ----------
    name : str
        The file's name: named in errors, and a place that the format and a rank are looked for.
    open_stream : callable
        Opens the trace, plain or gzip, from its first byte; called up to three times.
    file : Path, optional
        Where the trace lies on a disk. An SQLite export that does not is copied to a temporary file.

    Raises
    ------
    KernelTraceError
        When it is no trace, or nothing of it can be read.
    """
    found = _format(name, open_stream)
    if found is Format.XLA:
        return read_xplane(name, open_stream)
    if found is Format.NSIGHT:
        return read_nsight(name, file) if file and _is_database(file) else _copied(name, open_stream)
    with open_stream() as stream:
        return read_trace(name, stream)


def _format(name: str, open_stream: Callable[[], ByteStream]) -> Format:
    if name.endswith(REPORT_ENDINGS):
        reason = "it is a report of Nsight Systems, expected its export: nsys export --type sqlite"
        raise KernelTraceError(name, reason)
    if name.endswith(_XLA_ENDINGS):
        return Format.XLA
    with open_stream() as stream:
        first = next(text_chunks(name, stream, Counter()), b"")
    if first.startswith(MAGIC):
        return Format.NSIGHT
    is_text = first.lstrip().startswith((b"{", b"["))
    return Format.XLA if not is_text and _SPACE.match(first) else Format.CHROME


def _is_database(file: Path) -> bool:
    """Whether a file is a database as it lies there, not compressed."""
    with file.open("rb") as opened:
        return opened.read(len(MAGIC)) == MAGIC


def _copied(name: str, open_stream: Callable[[], ByteStream]) -> Trace:
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
        return read_nsight(name, Path(copy.name))
