"""Dumps that torch writes into the collector's folder, as ``nccl_trace_rank_<n>``: each becomes an object."""

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Callable, Optional

from trainguard_collector.objects import DUMP, Handover

# `trainguard hang` reads no larger dump.
MOST_BYTES = 64 * 1024 * 1024

MOST_AT_ONCE = 64
# Dumps of one sampler: a job that restarts for ever sends no more.
MOST_DUMPS = 4_096

_NAME = re.compile(rf"{DUMP}\d{{1,7}}")


class Dumps:
    """Takes each dump when it is whole: the same at two looks, and with the beginning and end of a dump."""

    def __init__(self, folder: Path, handover: Handover) -> None:
        self._folder, self._handover = folder, handover
        self._seen: dict[str, tuple[int, int]] = {}
        self._taken = 0
        self.faults: dict[str, str] = {}

    def take(self, key_of: "Callable[[str], str]", *, final: bool) -> int:
        """Hand over what is whole, under the keys of its names; return how many. What is not dropped when ``final``."""
        before, self._seen = self._seen, {}
        taken = 0
        for path in sorted(self._folder.glob(f"{DUMP}*"))[:MOST_AT_ONCE]:
            if _NAME.fullmatch(path.name):
                try:
                    taken += self._take(path, before.get(path.name), key_of, final=final)
                except FileNotFoundError:
                    continue  # torch writes it again
                except OSError as fault:
                    self._refuse(path, f"cannot be read: {fault.strerror or fault}", drop=final)
        return taken

    def _take(
        self, path: Path, before: "Optional[tuple[int, int]]", key_of: "Callable[[str], str]", *, final: bool
    ) -> bool:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return self._refuse(path, "is no regular file", drop=True)
        if found.st_size > MOST_BYTES:
            return self._refuse(path, f"has {found.st_size:,} bytes, expected at most {MOST_BYTES:,}", drop=True)
        self._seen[path.name] = now = found.st_size, found.st_mtime_ns
        if now != before and not final:
            return False
        if not _is_whole(path):
            return self._refuse(path, "has no end", drop=True) if final else False
        if self._taken >= MOST_DUMPS:
            return self._refuse(path, f"is one of more than {MOST_DUMPS:,}", drop=True)
        self._taken += 1
        self._handover.put_to_compress(key_of(f"{path.name}.gz"), path)
        return True

    def _refuse(self, path: Path, reason: str, *, drop: bool) -> bool:
        self.faults["dump"] = f"{path.name} {reason}"
        if drop:
            with suppress(OSError):
                path.unlink()
        return False


def _is_whole(path: Path) -> bool:
    """Whether a file begins and ends as a pickle or a JSON object does."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        first = os.pread(file, 1, 0)
        last = os.pread(file, 16, max(os.fstat(file).st_size - 16, 0)).rstrip()[-1:]
    finally:
        os.close(file)
    return (first, last) in ((b"\x80", b"."), (b"{", b"}"))
