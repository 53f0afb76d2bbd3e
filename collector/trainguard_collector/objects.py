"""What training processes hand over on disk: timelines that they append to, and whole objects.

Files: ``<epoch ns>.<process>.<pid>.timeline``; ``….tensors``, a step as `tensor_files` encodes it; ``<epoch ns>.<quoted
key>.object``, and ``.plain`` before it is compressed; ``<pid>.writer``, a process that may write; ``<pid>.pause``, one
in a checkpoint or an evaluation; ``<pid>.<signal>.stacks``, what ``faulthandler`` writes at the signal; ``<pid>.ask``,
a pipe by which the sampler asks for a dump; ``nccl_trace_rank_<n>``, torch's own dump; ``<stream>.stream``.
A timeline is locked by its writer to append, by the sampler to withdraw it; the writer never waits, and begins a new
file.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Optional
from urllib.parse import quote

from trainguard_collector.spool import OBJECT, PLAIN, TENSORS, Budget

TIMELINE = ".timeline"
WRITER, DRAFT, STREAM = ".writer", ".draft", ".stream"
PAUSE, STACKS, ASK = ".pause", ".stacks", ".ask"
DUMP = "nccl_trace_rank_"
_WRITABLE = 0o200
# Twice what a sampler lets a timeline grow to; one that nobody takes grows no further.
LARGEST_TIMELINE = 8 * 1024 * 1024

# Growth of a timeline after which there must be room for it in the spool.
ROOM_STEP = 256 * 1024

# Ends the name of a process that stands for several: the workers of loaders.
SHARED = "w"

_LONGEST_NAME = 250


def objects_folder(spool: str, job: str, node: str) -> Path:
    """Return the folder through which the processes of a node hand over."""
    return Path(spool, f"{job}.{node}.objects")


class TimelineFile:
    """The file that a process appends its events to; a new one begins when the sampler has taken the last."""

    def __init__(self, handover: "Handover", process: str, header: Callable[[], bytes]) -> None:
        self._handover, self._process, self._header = handover, process, header
        self._file: Optional[int] = None
        self._end = self._room = 0

    def append(self, lines: bytes) -> bool:
        """Append whole lines; False while the sampler reads the file. Raises OSError for a full disk, file or spool."""
        for _ in range(2):
            if self._file is None:
                self._open()
            if self._file is None or not _locked(self._file):
                return False
            try:
                found = os.fstat(self._file)
                if found.st_nlink and found.st_mode & _WRITABLE:
                    self._write(lines)
                    return True
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self.close()
        return False

    def close(self) -> None:
        """Let the file go; the sampler takes it when its writer has ended."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        folder = self._handover.folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = f"{time.time_ns()}.{self._process}.{os.getpid()}{TIMELINE}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._file, self._end, self._room = os.open(folder / name, flags, 0o600), 0, 0
        self._write(self._header())

    def _write(self, lines: bytes) -> None:
        assert self._file is not None  # noqa: S101 - the caller has opened it
        if self._end + len(lines) > LARGEST_TIMELINE:
            raise OSError(f"a timeline has {self._end:,} bytes, and nothing takes it")
        if self._end + len(lines) > self._room:
            self._handover.make_room(len(lines))
            self._room = self._end + max(ROOM_STEP, len(lines))
        written = os.write(self._file, lines)
        if written != len(lines):
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise OSError("the disk took a part of the events")
        self._end += written


class Handover:
    """Puts whole objects into the folder; bounded, the oldest dropped first."""

    def __init__(self, folder: Path, max_bytes: int, budget: Optional[Budget] = None) -> None:
        self.folder, self._max_bytes = folder, max_bytes
        self._budget = budget or Budget(folder, max_bytes, counts_each_time=True)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def dropped(self) -> int:
        return self._budget.dropped_objects + self._budget.dropped_minutes

    def mark(self, pid: int) -> Path:
        """Return the file that is there while a process may write."""
        return self.folder / f"{pid}{WRITER}"

    def register(self) -> None:
        """Say that this process may write until it says otherwise, or is gone."""
        self.mark(os.getpid()).touch()

    def unregister(self) -> None:
        self.mark(os.getpid()).unlink(missing_ok=True)

    def pause(self, *, is_open: bool) -> None:
        """Say whether this process is in a phase that may take long without a step; raises OSError."""
        mark = self.folder / f"{os.getpid()}{PAUSE}"
        if is_open:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)

    def put(self, key: str, body: bytes) -> None:
        """Hand over an object by its key below the job's folder; raises OSError."""
        self._write(object_name(key), (body,))

    def put_to_compress(self, key: str, path: Path) -> None:
        """Hand over a file, which is moved, and compressed by the sampler; raises OSError."""
        self.make_room(path.stat().st_size)
        path.replace(self.folder / f"{object_name(key)[: -len(OBJECT)]}{PLAIN}")

    def put_tensors(self, worker: str, parts: "tuple[bytes, ...]") -> None:
        self._write(f"{time.time_ns()}.{worker}.{os.getpid()}{TENSORS}", parts)

    def draft(self, name: str) -> Path:
        """Return a path for a file that is written here and handed over by `put_to_compress`."""
        return self.folder / f"{os.getpid()}.{name}{DRAFT}"

    def _write(self, name: str, parts: "tuple[bytes, ...]") -> None:
        self.make_room(sum(map(len, parts)))
        draft = self.folder / f"{name}{DRAFT}"
        try:
            with draft.open("wb") as file:
                file.writelines(parts)
            draft.replace(self.folder / name)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def make_room(self, more: int) -> None:
        """Make room for so many bytes, the oldest files dropped first; raises OSError where that is not enough."""
        if not self._budget.make_room(more):
            raise OSError(f"{more:,} bytes are too many for a spool of {self._max_bytes:,}")


def withdraw(timeline: int) -> bool:
    """Let the writer of a timeline, an open file, write no more into it; whether it was not just writing."""
    if not _locked(timeline):
        return False
    os.fchmod(timeline, os.fstat(timeline).st_mode & ~_WRITABLE)
    fcntl.flock(timeline, fcntl.LOCK_UN)
    return True


def object_name(key: str) -> str:
    """Return the name of the file that holds an object; raises OSError for a key that is too long for one."""
    name = f"{time.time_ns()}.{quote(key, safe='')}{OBJECT}"
    if len(name) > _LONGEST_NAME:
        raise OSError(f"the key {key[:80]!r} is too long")
    return name


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
