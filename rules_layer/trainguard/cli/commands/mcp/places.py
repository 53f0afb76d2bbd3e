"""The places that agents may name: below a root, or as the operator has allowed them; nothing else is opened."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainguard.core.errors import RequestError
from trainguard.core.layout import S3
from trainguard.engine.jobs.replay_names import JOB_NAME, replayed_job
from trainguard.local.places import MARK
from trainguard.local.sources import SERVICES

# Of a place that holds more, nothing is read.
MOST_ENTRIES = 200_000
MOST_BYTES = 32 * 1024**3

LONGEST = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """A place as commands take it; ``version`` changes when its files do, and is empty of what lies elsewhere."""

    text: str
    version: str = ""


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
            return self._remote(source)
        path, mark, run = self._divided(source)
        file = self._below(path)
        if not _is_there(file):
            if JOB_NAME.fullmatch(source) is not None or replayed_job(source) is not None:
                return Place(source)
            raise RequestError(f"{source!r} is not there", "Name a folder or file below the root, or a job.")
        return Place(f"{file}{mark}{run}", self._version(file))

    def _remote(self, source: str) -> Place:
        if ".." not in source.split("/") and any(_begins(source, each) for each in self.allowed):
            return Place(source)
        raise RequestError(
            f"{source!r} is not among the places that agents may read",
            "Whoever starts the server allows it with --source, for example --source s3://bucket/prefix.",
        )

    def _divided(self, source: str) -> tuple[str, str, str]:
        if MARK not in source or _is_there(self.root / source):
            return source, "", ""
        return source.rpartition(MARK)

    def _below(self, path: str) -> Path:
        file = Path(os.path.realpath(self.root / path))
        if not file.is_relative_to(self.root):
            raise RequestError(f"{path!r} lies outside the root", "Name a place below it, by a relative path.")
        return file

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
