"""The room that all spools of a user have on disk together: what is oldest is deleted first, minutes and objects alike.

Spools are folders beside each other, ``<job>.<node>`` with minutes and ``<job>.<node>.objects`` with objects.
"""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MINUTE = ".json"
TENSORS, OBJECT, PLAIN = ".tensors", ".object", ".plain"
_SECOND_NS = 1_000_000_000
_COUNT_EVERY_S = 10.0
"""What other processes have written meanwhile is counted so often, and whenever the limit seems to be reached."""


class _File(NamedTuple):
    at_ns: int
    path: str
    size: int


class Budget:
    """Keeps the spools beside ``folder`` within ``max_bytes``; dropped files are counted here.

    Parameters
    ----------
    folder : Path
        One spool. It counts whatever its name is; folders beside it count where their names are those of spools.
    max_bytes : int
    counts_each_time : bool
        Count all files each time, for a process that writes seldom.
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
            self._size += sum(each.size for each in files)
            for each in sorted(each for each in files if each.at_ns >= 0):
                if self._size <= self._max_bytes:
                    break
                self._drop(each)
            return self._size <= self._max_bytes

    def forget(self) -> None:
        """Count anew the next time: other processes have written."""
        with self._lock:
            self._counted_at = float("-inf")

    def drop_oldest(self) -> bool:
        """Delete the oldest file that may be deleted; whether there was one."""
        with self._lock:
            oldest = min((each for each in self._files() if each.at_ns >= 0), default=None)
            return oldest is not None and self._drop(oldest)

    def _drop(self, file: _File) -> bool:
        try:
            Path(file.path).unlink()
        except OSError:
            return False
        self._size -= file.size
        if file.path.endswith(MINUTE):
            self.dropped_minutes += 1
        else:
            self.dropped_objects += 1
        return True

    def _files(self) -> "list[_File]":
        """Return all files of the spools; a time below 0 is one that is written, or not the spool's to delete."""
        found = []
        for folder in self._folders():
            with suppress(OSError):
                for entry in os.scandir(folder):
                    with suppress(OSError):
                        found.append(_File(_time_of(entry.name), entry.path, entry.stat().st_size))
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
    """Return the time of a finished file, epoch nanoseconds; -1 of any other."""
    stem = name.split(".", 1)[0]
    if not stem.isdecimal():
        return -1
    if name == f"{stem}{MINUTE}":
        return int(stem) * _SECOND_NS
    return int(stem) if name.endswith((TENSORS, OBJECT, PLAIN)) else -1
