"""Where a profile lies: its files on disk or in memory; finds the one ``profiler-output`` at, in or below a folder."""

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar

from trainguard.core.errors import NoProfileError, ObjectMissingError, ProfileSourceError
from trainguard.core.ports import ByteStream, Files, ListedObject, check_range
from trainguard.core.units import similar
from trainguard.formats.git_lfs import MARK as POINTER_MARK
from trainguard.formats.git_lfs import WHY as POINTER
from trainguard.formats.git_lfs import is_pointer
from trainguard.formats.profile.system import MAX_OBJECT_BYTES
from trainguard.formats.runs.run import SourceRun

PROFILER_OUTPUT = "profiler-output"
STREAMS = ("system", "framework")
RESULTS = "rule-output"
_SHOWN_ROOTS = 3
_MOST_NAMES = 10_000
_ARCHIVES = (".tar", ".tar.bz2", ".tar.gz", ".tar.xz", ".tgz", ".zip")
_REPORTS = ("report.json", "report.html", "profiler-reports")
# The name of a job whose folder has no letter or digit in its name.
ANY_JOB = "profile"

_OTHER = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_NAME = 63
_JOB_NAME = re.compile(r"[A-Za-z0-9](?:-*[A-Za-z0-9]){0,62}")
PLACES = "a folder, a file or s3://bucket/prefix"
# How the places of runs begin that a service keeps.
SERVICES = ("mlflow+", "prometheus+")

Root = TypeVar("Root", str, Path)


@dataclass(frozen=True, slots=True)
class ProfileSource:
    """A profile's ``files``, by names below ``profiler-output/``, in the order of ``sizes``: bytes as they were listed.

    ``place`` is the path or URI of ``profiler-output``, ``job`` the name of the folder that holds it: the training
    job's, in the layout of S3. A profile in a folder of another name is that job's. ``beside`` returns a file of the
    job's folder, up to so many bytes and one more, or None; it raises ProfileSourceError or PortUnavailableError.
    """

    place: str
    job: str
    files: Files
    sizes: Mapping[str, int]
    beside: Callable[[str, int], bytes | None]

    def read(self, name: str) -> bytes:
        """Return a file's content, at most one byte more than a profile object may have."""
        return self.files.get(name, MAX_OBJECT_BYTES)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run that can be read: ``place`` is what `recording_at` takes, ``size`` the bytes that it takes up alone.

    ``run`` and ``title`` are its identity and its name in a store of many; empty of a file of one.
    """

    place: str
    read: Callable[[], SourceRun]
    size: int = 0
    run: str = ""
    title: str = ""

    @property
    def stem(self) -> str:
        """What the run is called where it has no name."""
        return self.run or Path(self.place).stem


def safe_name(name: str) -> str:
    """Return a folder's name as SageMaker would take it: ``my-job`` of ``my_job``."""
    if _JOB_NAME.fullmatch(name):
        return name
    return _OTHER.sub("-", name).strip("-")[:_LONGEST_NAME].rstrip("-") or ANY_JOB


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """Files on disk by name; raises ObjectMissingError, and ProfileSourceError for one that cannot be read."""

    place: str
    paths: Mapping[str, Path]

    def get(self, name: str, max_bytes: int) -> bytes:
        with self._reading(name), self._path(name).open("rb") as opened:
            return read_opened(opened, max_bytes)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_range(start, length)
        with self._reading(name), self._path(name).open("rb") as opened:
            opened.seek(start)
            return opened.read(length)

    def open_stream(self, name: str) -> ByteStream:
        with self._reading(name):
            return self._path(name).open("rb")

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for name in _listed(self.paths, prefix, start_after):
            with self._reading(name):
                about = self.paths[name].stat()
            yield ListedObject(name, about.st_mtime, about.st_size)

    def _path(self, name: str) -> Path:
        if name not in self.paths:
            raise ObjectMissingError(self.place, name)
        return self.paths[name]

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise ProfileSourceError(str(self.paths[name]), f"cannot be read: {fault.strerror or fault}") from fault


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """Files in memory by name; raises ObjectMissingError."""

    place: str
    bodies: Mapping[str, bytes]
    modified_at: float = 0.0

    def get(self, name: str, max_bytes: int) -> bytes:
        return self._body(name)[: max_bytes + 1]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_range(start, length)
        return self._body(name)[start : start + length]

    def open_stream(self, name: str) -> ByteStream:
        return BytesIO(self._body(name))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for name in _listed(self.bodies, prefix, start_after):
            yield ListedObject(name, self.modified_at, len(self.bodies[name]))

    def _body(self, name: str) -> bytes:
        if name not in self.bodies:
            raise ObjectMissingError(self.place, name)
        return self.bodies[name]


def _listed(names: Iterable[str], prefix: str, start_after: str) -> list[str]:
    return sorted(name for name in names if name.startswith(prefix) and name > start_after)


@dataclass(frozen=True, slots=True)
class FilesAsBucket:
    """Files as the objects of any bucket, read only: a key is a name."""

    files: Files

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        del bucket
        return self.files.get(key, max_bytes)

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        del bucket
        return self.files.get_range(key, start, length)

    def open_stream(self, bucket: str, key: str) -> ByteStream:
        del bucket
        return self.files.open_stream(key)

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        del bucket
        return self.files.list(prefix, start_after)


def source_in_memory(
    place: str, job: str, bodies: Mapping[str, bytes], beside: Callable[[str, int], bytes | None]
) -> ProfileSource:
    sizes = {name: len(bodies[name]) for name in sorted(bodies)}
    return ProfileSource(place, job, MemoryFiles(place, bodies), sizes, beside)


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


def read_opened(opened: BinaryIO, max_bytes: int) -> bytes:
    """Return a file's content, at most ``max_bytes + 1`` bytes; that many are not set aside for a smaller file."""
    small = os.fstat(opened.fileno()).st_size <= max_bytes
    return opened.read() if small else opened.read(max_bytes + 1)


def open_folder(place: str) -> ProfileSource:
    """Find the profile at, directly in, or below a path that lies above one alone.

    Raises ProfileSourceError when the path cannot be read, or lies above several profiles; NoProfileError when there is
    no profile in it.
    """
    folder = Path(place)
    if not folder.exists():
        raise missing(place, PLACES)
    if not folder.is_dir():
        if folder.name.lower().endswith(_ARCHIVES):
            raise ProfileSourceError(place, "is an archive: unpack it, and give the folder that comes out of it")
        if is_pointer(read_beside(folder.parent, folder.name, len(POINTER_MARK)) or b""):
            raise ProfileSourceError(place, POINTER)
        raise NoProfileError(place)
    try:
        roots = [folder] if holds_streams(folder) else _roots_below(folder)
        if not roots and is_report(folder):
            expected = "expected the folder of the job, which holds profiler-output"
            raise ProfileSourceError(place, f"holds reports on a job and not its profile, {expected}")
        root = only_root(place, roots)
        paths = dict(sorted((file.relative_to(root).as_posix(), file) for file in files_below(root)))
        sizes = {name: file.stat().st_size for name, file in paths.items()}
    except OSError as fault:
        raise ProfileSourceError(place, f"cannot be read: {fault}") from fault
    whole = root.resolve()
    job = whole.parent if whole.name == PROFILER_OUTPUT else whole
    files = FolderFiles(str(root), paths)
    return ProfileSource(str(root), job.name, files, sizes, partial(read_beside, job))


def missing(place: str, expected: str) -> ProfileSourceError:
    """Return the error of a place that is not there, with the nearest names beside it."""
    path = Path(place)
    try:
        names = [each.name for each in islice(path.parent.iterdir(), _MOST_NAMES)]
    except OSError:
        names = []
    near = [str(path.parent / name) for name in similar(path.name, names)]
    perhaps = f"; perhaps you mean {' or '.join(near)}" if near else ""
    return ProfileSourceError(place, f"does not exist, expected {expected}{perhaps}")


def is_report(folder: Path) -> bool:
    if RESULTS in folder.resolve().parts or (folder / RESULTS).is_dir():
        return True
    return any((folder / name).exists() for name in _REPORTS)


def holds_streams(folder: Path) -> bool:
    """Whether a folder is a profile, whatever it is called."""
    return any((folder / stream).is_dir() for stream in STREAMS)


def _roots_below(folder: Path) -> list[Path]:
    """Return the ``profiler-output`` folders below one; results hold none."""
    direct = folder / PROFILER_OUTPUT
    if direct.is_dir() and holds_streams(direct):
        return [direct]
    found = []
    for parent, folders, _ in os.walk(folder, onerror=refuse_unreadable):
        folders[:] = sorted(each for each in folders if each != RESULTS)
        if PROFILER_OUTPUT in folders:
            folders.remove(PROFILER_OUTPUT)
            found.append(Path(parent) / PROFILER_OUTPUT)
    return list(filter(holds_streams, found))


def refuse_unreadable(fault: OSError) -> None:
    """Let a folder that cannot be read be an error: what lies in it would be missing from every verdict."""
    raise fault


def files_below(
    folder: Path, left_out: Container[str] = (), onerror: Callable[[OSError], object] = refuse_unreadable
) -> Iterator[Path]:
    """Yield the files below a folder, without those in folders of the names ``left_out``.

    ``onerror`` gets the fault of a folder that cannot be read, and raises it by default.
    """
    for parent, folders, names in os.walk(folder, onerror=onerror):
        folders[:] = sorted(name for name in folders if name not in left_out)
        for name in sorted(names):
            file = Path(parent) / name
            if file.is_file():
                yield file


def only_root(place: str, roots: Sequence[Root]) -> Root:
    """Return the one profile that was found at a place; raises when there is none, or a choice."""
    if not roots:
        raise NoProfileError(place)
    if len(roots) > 1:
        shown = ", ".join(str(root) for root in roots[:_SHOWN_ROOTS]) + (", …" if len(roots) > _SHOWN_ROOTS else "")
        raise ProfileSourceError(place, f"holds {len(roots)} profiles ({shown}), expected one: name it")
    return roots[0]
