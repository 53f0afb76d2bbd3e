"""The minutes of a node on disk until they are where they belong: bounded, the oldest dropped first."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Optional

_PART, _READY = ".part", ".json"


class SpoolInUseError(Exception):
    """Another sampler of this node and job is running."""


class Spool:
    """A folder with one file a minute; one sampler at a time holds it.

    What an earlier sampler of the same job and node left is sent as well. A minute that it left unfinished is gone on
    with, from the end of its last whole line.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SpoolInUseError(str(folder)) from None
        self._file: Optional[int] = None
        self._minute: Optional[int] = None
        self._end = 0
        self.dropped_minutes = 0
        self.lost_snapshots = 0

    def add(self, minute: int, lines: bytes) -> None:
        """Append a snapshot to its minute; what the disk does not take is counted in `lost_snapshots`."""
        if minute != self._minute:
            self.close_minute()
            for left in self._folder.glob(f"*{_PART}"):
                if left.stem != str(minute):
                    _finish(left)
        self._make_room(len(lines))
        try:
            if self._file is None:
                self._open(minute)
            self._write(lines)
        except OSError:
            self.lost_snapshots += 1
            self._drop_oldest()

    def close_minute(self) -> None:
        """Make the minute that is being written ready to be sent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._minute is not None:
            _finish(self._folder / f"{self._minute}{_PART}")
            self._minute = None

    def ready(self) -> list[Path]:
        """Return the files of finished minutes, the oldest first."""
        return sorted(self._folder.glob(f"*{_READY}"))

    def close(self) -> None:
        """Let the spool go, and delete its folder when nothing is left in it to be sent."""
        self.close_minute()
        with suppress(OSError):
            if not self.ready():
                (self._folder / "lock").unlink()
                self._folder.rmdir()
        os.close(self._lock)

    def _open(self, minute: int) -> None:
        path = self._folder / f"{minute}{_PART}"
        ready = path.with_suffix(_READY)
        if ready.exists() and not path.exists():
            ready.replace(path)
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

    def _make_room(self, more: int) -> None:
        sizes = 0
        for path in self._folder.iterdir():
            with suppress(OSError):
                sizes += path.stat().st_size
        while sizes + more > self._max_bytes:
            freed = self._drop_oldest()
            if freed == 0:
                break
            sizes -= freed

    def _drop_oldest(self) -> int:
        """Delete the oldest finished minute; return its bytes, 0 when there is none."""
        for path in self.ready():
            with suppress(OSError):
                size = path.stat().st_size
                path.unlink()
                self.dropped_minutes += 1
                return max(size, 1)
        return 0


def _finish(part: Path) -> None:
    """Give a minute the name of a finished one, or delete it when it is empty."""
    with suppress(OSError):
        if part.stat().st_size:
            part.replace(part.with_suffix(_READY))
        else:
            part.unlink()
