"""Where a profile lies, and the folder as such a place: finds the one ``profiler-output`` at, in or below it."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from trainguard.core.errors import NoProfileError, ObjectMissingError, ProfileSourceError
from trainguard.core.ports import ByteStream, check_range
from trainguard.formats.profile.system import MAX_OBJECT_BYTES

PROFILER_OUTPUT = "profiler-output"
STREAMS = ("system", "framework")
RESULTS = "rule-output"
_SHOWN_ROOTS = 3
_ARCHIVES = (".tar", ".tar.bz2", ".tar.gz", ".tar.xz", ".tgz", ".zip")
_REPORTS = ("report.json", "report.html", "profiler-reports")

Root = TypeVar("Root", str, Path)


class ProfileSource(Protocol):
    """The files of one profile; a name is a path below ``profiler-output/`` with slashes."""

    @property
    def place(self) -> str:
        """The path or URI of ``profiler-output``, as a person reads it."""
        ...

    @property
    def job(self) -> str:
        """The name of the folder that holds ``profiler-output``: the training job's, in the layout of S3."""
        ...

    def names(self) -> Sequence[str]:
        """Return the names of all files, in order."""
        ...

    def size(self, name: str) -> int:
        """Return the bytes of a file as it was listed."""
        ...

    def read(self, name: str) -> bytes:
        """Return a file's content, at most one byte more than a profile object may have."""
        ...

    def open(self, name: str) -> ByteStream:
        """Open a file of any size to be read from the front."""
        ...

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from offset ``start`` on."""
        ...

    def beside(self, name: str, max_bytes: int) -> bytes | None:
        """Return a file beside ``profiler-output``, up to ``max_bytes`` + 1 bytes; None without one.

        Raises ProfileSourceError or PortUnavailableError where it cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A profile on disk: ``sizes`` holds the bytes of each file."""

    root: Path
    sizes: Mapping[str, int]

    @property
    def place(self) -> str:
        """The folder's path."""
        return str(self.root)

    @property
    def job(self) -> str:
        """The name of the folder above."""
        return self.root.resolve().parent.name

    def names(self) -> Sequence[str]:
        """Return the names of all files, in order."""
        return list(self.sizes)

    def size(self, name: str) -> int:
        """Return the bytes of a file as it was listed."""
        return self.sizes[name]

    def read(self, name: str) -> bytes:
        """Return a file's content; raises ProfileSourceError."""
        try:
            return read_file(self.root / name)
        except OSError as fault:
            raise self._unreadable(name, fault) from fault

    def open(self, name: str) -> ByteStream:
        """Open a file to be read from the front; raises ProfileSourceError."""
        return self._opened(name)

    def _opened(self, name: str) -> BinaryIO:
        try:
            return (self.root / name).open("rb")
        except OSError as fault:
            raise self._unreadable(name, fault) from fault

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from offset ``start`` on; raises ProfileSourceError."""
        check_range(start, length)
        with self._opened(name) as opened:
            opened.seek(start)
            return opened.read(length)

    def beside(self, name: str, max_bytes: int) -> bytes | None:
        """Return what a file beside the folder holds; raises ProfileSourceError where it cannot be read."""
        return read_beside(self.root.resolve().parent, name, max_bytes)

    def _unreadable(self, name: str, fault: OSError) -> ProfileSourceError:
        return ProfileSourceError(str(self.root / name), f"cannot be read: {fault.strerror or fault}")


def read_beside(folder: Path, name: str, max_bytes: int) -> bytes | None:
    """Return a file of a folder, up to ``max_bytes`` + 1 bytes; None without one. Raises ProfileSourceError."""
    file = folder / name
    try:
        with file.open("rb") as opened:
            return opened.read(max_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise ProfileSourceError(str(file), f"cannot be read: {fault.strerror or fault}") from fault


def read_file(file: Path) -> bytes:
    """Return a file's content, at most one byte more than a profile object may have."""
    with file.open("rb", buffering=0) as opened:
        # Reading all of a file asks for its size; a number of bytes would be set aside first.
        small = os.fstat(opened.fileno()).st_size <= MAX_OBJECT_BYTES
        return opened.readall() if small else opened.read(MAX_OBJECT_BYTES + 1)


def open_folder(place: str) -> FolderSource:
    """Find the profile at, directly in, or below a path that lies above one alone.

    Raises ProfileSourceError when the path cannot be read, or lies above several profiles; NoProfileError when there is
    no profile in it.
    """
    folder = Path(place)
    if not folder.exists():
        raise ProfileSourceError(place, "does not exist, expected a folder or s3://bucket/prefix")
    if not folder.is_dir():
        raise ProfileSourceError(place, _what_a_file_is(folder))
    try:
        roots = [folder] if _holds_streams(folder) else _roots_below(folder)
        if not roots and _is_report(folder):
            expected = "expected the folder of the job, which holds profiler-output"
            raise ProfileSourceError(place, f"holds reports on a job and not its profile, {expected}")
        root = only_root(place, roots)
        files = _files(root)
    except OSError as fault:
        raise ProfileSourceError(place, f"cannot be read: {fault}") from fault
    return FolderSource(root, files)


def _what_a_file_is(file: Path) -> str:
    if file.name.lower().endswith(_ARCHIVES):
        return "is an archive: unpack it, and give the folder that comes out of it"
    return "is no folder, expected a folder or s3://bucket/prefix; of a log of training, the folder that holds it"


def _is_report(folder: Path) -> bool:
    if RESULTS in folder.resolve().parts or (folder / RESULTS).is_dir():
        return True
    return any((folder / name).exists() for name in _REPORTS)


def _holds_streams(folder: Path) -> bool:
    return any((folder / stream).is_dir() for stream in STREAMS)


def _roots_below(folder: Path) -> list[Path]:
    """Return the ``profiler-output`` folders below one; results hold none."""
    direct = folder / PROFILER_OUTPUT
    if direct.is_dir() and _holds_streams(direct):
        return [direct]
    found = []
    for parent, folders, _ in os.walk(folder, onerror=refuse_unreadable):
        folders[:] = sorted(name for name in folders if name != RESULTS)
        if PROFILER_OUTPUT in folders:
            folders.remove(PROFILER_OUTPUT)
            if _holds_streams(Path(parent) / PROFILER_OUTPUT):
                found.append(Path(parent) / PROFILER_OUTPUT)
    return found


def refuse_unreadable(fault: OSError) -> None:
    """Let a folder that cannot be read be an error: what lies in it would be missing from every verdict."""
    raise fault


def _files(root: Path) -> dict[str, int]:
    sizes = {}
    for parent, _, files in os.walk(root, onerror=refuse_unreadable):
        for name in files:
            file = Path(parent) / name
            if file.is_file():
                sizes[file.relative_to(root).as_posix()] = file.stat().st_size
    return dict(sorted(sizes.items()))


def only_root(place: str, roots: Sequence[Root]) -> Root:
    """Return the one profile that was found at a place; raises when there is none, or a choice."""
    if not roots:
        raise NoProfileError(place)
    if len(roots) > 1:
        shown = ", ".join(str(root) for root in roots[:_SHOWN_ROOTS]) + (", …" if len(roots) > _SHOWN_ROOTS else "")
        raise ProfileSourceError(place, f"holds {len(roots)} profiles ({shown}), expected one: name it")
    return roots[0]


@dataclass(frozen=True, slots=True)
class MemorySource:
    """A profile in memory, by name; ``read_beside`` returns a file in the job's folder, or None."""

    place: str
    job: str
    read_beside: Callable[[str, int], bytes | None]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def names(self) -> Sequence[str]:
        """Return the names of all files, in order."""
        return sorted(self.files)

    def size(self, name: str) -> int:
        """Return the bytes of a file."""
        return len(self.read(name))

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        if name not in self.files:
            raise ObjectMissingError(self.place, name)
        return self.files[name]

    def open(self, name: str) -> ByteStream:
        """Open a file to be read from the front."""
        return BytesIO(self.read(name))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from offset ``start`` on."""
        check_range(start, length)
        return self.read(name)[start : start + length]

    def beside(self, name: str, max_bytes: int) -> bytes | None:
        """Return what a file in the job's folder holds, at most one byte more than ``max_bytes``."""
        return self.read_beside(name, max_bytes)
