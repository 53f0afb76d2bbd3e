"""The files that the trainers wrote, one folder for each run."""

import io
import lzma
import tarfile
from pathlib import Path

FILE = Path(__file__).with_name("recordings.tar.xz")


def unpack(folder: Path) -> None:
    """Write the folders of all runs, each file as of the time of its writing."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(FILE.read_bytes()))) as archive:
        archive.extractall(folder, filter="data")


def names() -> frozenset[str]:
    """Return the names of all recorded runs."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(FILE.read_bytes()))) as archive:
        return frozenset(name.partition("/")[0] for name in archive.getnames())
