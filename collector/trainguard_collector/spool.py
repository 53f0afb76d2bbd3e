"""The minutes of a node on disk until they are where they belong: bounded, the oldest dropped first.

All spools of a user, ``<job>.<node>`` and ``<job>.<node>.objects``, have their room together.
"""

import fcntl
import json
import os
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Optional

MINUTE = ".json"
TENSORS, OBJECT, PLAIN = ".tensors", ".object", ".plain"
_SECOND_NS = 1_000_000_000
# How often other processes' files are counted, and whenever the limit seems to be reached.
_COUNT_EVERY_S = 10.0


# Epoch nanoseconds, path and size.
_File = tuple[int, str, int]


class Budget:
    """Keeps the spools beside ``folder`` within ``max_bytes``; dropped files are counted here.

    ``counts_each_time`` is for a process that writes seldom.
    """

    def __init__(self, folder: Path, max_bytes: int, *, counts_each_time: bool = False) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._every_s = 0.0 if counts_each_time else _COUNT_EVERY_S
        self._lock = threading.Lock()
        self._size = 0
        self._counted_at = float("-inf")
        self.dropped_minutes = 0
        self.dropped_objects = 0

    def make_room(self, more: int) -> bool:
        """Count ``more`` bytes that will be written, and delete what is oldest; whether there is room for them."""
        with self._lock:
            self._size += more
            is_known = time.monotonic() - self._counted_at < self._every_s
            if is_known and self._size <= self._max_bytes:
                return True
            files, self._size = self._files(), more
            self._counted_at = time.monotonic()
            self._size += sum(size for _, _, size in files)
            for each in sorted(each for each in files if each[0] >= 0):
                if self._size <= self._max_bytes:
                    break
                self._drop(each)
            return self._size <= self._max_bytes

    def forget(self) -> None:
        with self._lock:
            self._counted_at = float("-inf")

    def drop_oldest(self) -> bool:
        """Delete the oldest file that may be deleted; whether there was one."""
        with self._lock:
            oldest = min((each for each in self._files() if each[0] >= 0), default=None)
            return oldest is not None and self._drop(oldest)

    def _drop(self, file: _File) -> bool:
        _, path, size = file
        try:
            Path(path).unlink()
        except OSError:
            return False
        self._size -= size
        if path.endswith(MINUTE):
            self.dropped_minutes += 1
        else:
            self.dropped_objects += 1
        return True

    def _files(self) -> "list[_File]":
        """Return files of the spools; a time below 0 is of one that is written, or not the spool's to delete."""
        found = []
        for folder in self._folders():
            with suppress(OSError):
                for entry in os.scandir(folder):
                    with suppress(OSError):
                        found.append((_time_of(entry.name), entry.path, entry.stat().st_size))
        return found

    def _folders(self) -> "list[str]":
        own = str(self._folder)
        with suppress(OSError):
            return [
                own,
                *(each.path for each in os.scandir(self._folder.parent) if "." in each.name and each.path != own),
            ]
        return [own]


def _time_of(name: str) -> int:
    """Return epoch nanoseconds; -1 of an unfinished file."""
    stem = name.split(".", 1)[0]
    if not stem.isdecimal():
        return -1
    if name == f"{stem}{MINUTE}":
        return int(stem) * _SECOND_NS
    return int(stem) if name.endswith((TENSORS, OBJECT, PLAIN)) else -1


_PART, _READY, _PACKING = ".part", MINUTE, ".packing"

# How a compressed file begins, and zlib's word for one. Of a profile's bytes a higher level saves little more, and
# takes several times as long.
GZIP, LEVEL = b"\x1f\x8b", 5
_AS_GZIP = 31
_PIECE_BYTES = 1024 * 1024

# Where the spool belongs, for a sampler of another job, and the lock of its writer.
ABOUT, LOCK = "about", "lock"

# A sampler of another job holds the lock for a moment, to finish what was left.
_TRIES, _BETWEEN_S = 5, 0.05


class SpoolInUseError(Exception):
    """Another sampler of this node and job is running."""


class Spool:
    """A folder with one file a minute, held by one sampler at a time; what an earlier one left is sent as well."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.budget = Budget(folder, max_bytes)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = _locked(folder)
        self._file: Optional[int] = None
        self._minute: Optional[int] = None
        self._end = 0
        self.lost_snapshots = 0

    @property
    def dropped_minutes(self) -> int:
        """Minutes that were deleted to make room, of other jobs too."""
        return self.budget.dropped_minutes

    def say_where_it_belongs(self, output: str, job: str, node: str) -> None:
        """Write down to which output the spool is sent, so that a later sampler can do so."""
        with suppress(OSError):
            (self.folder / ABOUT).write_text(json.dumps({"output": output, "job": job, "node": node}), "utf-8")

    def add(self, minute: int, lines: bytes) -> None:
        """Append a snapshot to its minute; what the disk does not take is counted in `lost_snapshots`."""
        if minute != self._minute:
            self.close_minute()
            finish_parts(self.folder, but=minute)
        self.budget.make_room(len(lines))
        try:
            if self._file is None:
                self._open(minute)
            self._write(lines)
        except OSError:
            self.lost_snapshots += 1
            self.budget.drop_oldest()

    def close_minute(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._minute is not None:
            _finish(self.folder / f"{self._minute}{_PART}")
            self._minute = None

    def ready(self) -> list[Path]:
        return ready_minutes(self.folder)

    def close(self) -> None:
        """Let the spool go, and delete its folder when nothing is left in it to be sent."""
        self.close_minute()
        with suppress(OSError):
            if not self.ready():
                for name in (ABOUT, LOCK):
                    (self.folder / name).unlink(missing_ok=True)
                self.folder.rmdir()
        os.close(self._lock)

    def _open(self, minute: int) -> None:
        path = self.folder / f"{minute}{_PART}"
        ready = path.with_suffix(_READY)
        if ready.exists() and not path.exists():
            ready.replace(path)
        _unpack(path)
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._minute = minute
        body = path.read_bytes()
        self._end = body.rfind(b"\n") + 1
        os.ftruncate(self._file, self._end)
        os.lseek(self._file, self._end, os.SEEK_SET)

    def _write(self, lines: bytes) -> None:
        assert self._file is not None  # noqa: S101 - _open has set it
        try:
            written = os.write(self._file, lines)
            if written != len(lines):
                raise OSError("the disk took a part of a snapshot")
        except OSError:
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
            raise
        self._end += len(lines)


def ready_minutes(folder: Path) -> "list[Path]":
    """Return the files of a spool's finished minutes, the oldest first."""
    return sorted(folder.glob(f"*{_READY}"))


def pack_minutes(folder: Path) -> None:
    """Compress the finished minutes as gzip, under their names; one for which the disk has no room stays plain."""
    for path in ready_minutes(folder):
        draft = path.with_suffix(_PACKING)
        try:
            with path.open("rb") as file:
                if file.read(len(GZIP)) == GZIP:
                    continue
                file.seek(0)
                packer = zlib.compressobj(LEVEL, wbits=_AS_GZIP)
                with draft.open("wb") as out:
                    while piece := file.read(_PIECE_BYTES):
                        out.write(packer.compress(piece))
                    out.write(packer.flush())
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)


def _unpack(path: Path) -> None:
    """Make a minute plain again that was compressed before its sampler started again; a broken stream begins again."""
    with suppress(FileNotFoundError):
        body = path.read_bytes()
        if body.startswith(GZIP):
            with suppress(zlib.error):
                body = zlib.decompress(body, wbits=_AS_GZIP)
            path.write_bytes(b"" if body.startswith(GZIP) else body)


def finish_parts(folder: Path, *, but: Optional[int] = None) -> None:
    """Finish the minutes that a sampler has left, but for one that goes on."""
    for left in folder.glob(f"*{_PART}"):
        if left.stem != str(but):
            _finish(left)


def _locked(folder: Path) -> int:
    """Return the lock's file descriptor; raises SpoolInUseError when another sampler holds the spool."""
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    for number in range(_TRIES):
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        time.sleep(_BETWEEN_S if number < _TRIES - 1 else 0.0)
    os.close(lock)
    raise SpoolInUseError(str(folder))


def _finish(part: Path) -> None:
    with suppress(OSError):
        if part.stat().st_size:
            part.replace(part.with_suffix(_READY))
        else:
            part.unlink()
