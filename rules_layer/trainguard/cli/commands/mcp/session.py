"""What a server reads for its agents: the places that they may name, and a few readings, each made once.

A place is below a root, or as the operator has allowed it: nothing else is opened. No reading is awaited for ever.
"""

import os
import stat
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillReading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from trainguard.cli.services.readings import SourceReading
from trainguard.core.errors import RequestError
from trainguard.core.layout import S3
from trainguard.engine.jobs.replay_names import JOB_NAME, replayed_job
from trainguard.local.places import MARK
from trainguard.local.sources import SERVICES

# Of a place that holds more, nothing is read.
MOST_ENTRIES = 200_000
MOST_BYTES = 32 * 1024**3

LONGEST = 1_000

# A place as commands take it, and what changes when its files do, empty of what lies elsewhere.
Place = tuple[str, str]

# Readings that are kept, and seconds for which that of a place elsewhere is true.
KEPT = 8
FRESH_S = 60.0

# Seconds that a call waits; the reading goes on, and a later call gets it.
PATIENCE_S = 100.0


@dataclass(frozen=True, slots=True)
class Places:
    """``root`` is resolved; ``allowed`` are beginnings of remote places, such as ``s3://bucket/prefix``."""

    root: Path
    allowed: tuple[str, ...] = ()

    def find(self, source: str) -> Place:
        """Return the place that an agent has named; raises RequestError for one that it may not read."""
        if not source or len(source) > LONGEST or "\0" in source:
            raise RequestError("the source is empty, too long, or no text", "Name a run, a folder or a job.")
        if source.startswith((S3, *SERVICES)):
            if ".." not in source.split("/") and any(_begins(source, each) for each in self.allowed):
                return source, ""
            raise RequestError(
                f"{source!r} is not among the places that agents may read",
                "Whoever starts the server allows it with --source, for example --source s3://bucket/prefix.",
            )
        path, mark, run = source, "", ""
        if MARK in source and not _is_there(self.root / source):
            path, mark, run = source.rpartition(MARK)
        file = Path(os.path.realpath(self.root / path))
        if not file.is_relative_to(self.root):
            raise RequestError(f"{path!r} lies outside the root", "Name a place below it, by a relative path.")
        if not _is_there(file):
            if JOB_NAME.fullmatch(source) is not None or replayed_job(source) is not None:
                return source, ""
            raise RequestError(f"{source!r} is not there", "Name a folder or file below the root, or a job.")
        return f"{file}{mark}{run}", self._version(file)

    def _version(self, top: Path) -> str:
        """Return what changes when the files do; raises RequestError for a link that leads outside, or too much."""
        entries, size, newest = 0, 0, 0.0
        seen, waiting = {str(top)}, [top]
        while waiting:
            for each in _entries(waiting.pop()):
                real = Path(os.path.realpath(each)) if each.is_symlink() else each
                if not real.is_relative_to(self.root):
                    raise RequestError(f"{str(each)!r} is a link to a place outside the root", "Remove the link.")
                entries += 1
                # A job that goes on removes files, and a link to itself leads nowhere.
                with suppress(OSError):
                    about = real.stat()
                    if stat.S_ISDIR(about.st_mode) and str(real) not in seen:
                        seen.add(str(real))
                        waiting.append(real)
                    elif stat.S_ISREG(about.st_mode):
                        size, newest = size + about.st_size, max(newest, about.st_mtime)
                if entries > MOST_ENTRIES or size > MOST_BYTES:
                    much = f"{MOST_ENTRIES:,} files or {MOST_BYTES / 1024**3:.0f} GiB"
                    raise RequestError(f"{str(top)!r} holds more than {much}", "Name a folder below.")
        if top.is_file():
            about = top.stat()
            size, newest = about.st_size, about.st_mtime
        return f"{entries} {size} {newest}"


def _is_there(path: Path) -> bool:
    """Return whether a path leads to something; a name that is too long leads nowhere."""
    try:
        return path.exists()
    except OSError:
        return False


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder; nothing of a file, and of what cannot be listed."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _begins(source: str, allowed: str) -> bool:
    return source == allowed or source.startswith(allowed if allowed.endswith("/") else (f"{allowed}/", f"{allowed}#"))


class McpSession:
    """Readings by place and version; ``read`` reads a place, one at a time."""

    def __init__(self, places: Places, read: Callable[[str], SourceReading], *, patience_s: float = PATIENCE_S) -> None:
        self.places = places
        self._read = read
        self._patience_s = patience_s
        self._kept: OrderedDict[tuple[str, str], Future[SourceReading]] = OrderedDict()
        self._lock = Lock()
        self._reader = ThreadPoolExecutor(1, "trainguard-mcp")

    def reading(self, source: str) -> SourceReading:
        """Return what was read at a source; raises RequestError where it may not be, or is still being read."""
        place, version = self.places.find(source)
        try:
            return self._begun(place, version).result(self._patience_s)
        except StillReading:
            raise RequestError(f"{source!r} is still being read", "Call again in a minute.") from None

    def _begun(self, place: str, version: str) -> Future[SourceReading]:
        key = (place, version or str(int(time.time() // FRESH_S)))
        with self._lock:
            found = self._kept.pop(key, None)
            if found is None or (found.done() and found.exception() is not None):
                found = self._reader.submit(self._read, place)
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return found

    @property
    def readings(self) -> list[SourceReading]:
        """Return what has been read, the newest last."""
        with self._lock:
            done = [each for each in self._kept.values() if each.done() and not each.cancelled()]
        return [each.result() for each in done if each.exception() is None]

    def close(self) -> None:
        self._reader.shutdown(wait=False, cancel_futures=True)
