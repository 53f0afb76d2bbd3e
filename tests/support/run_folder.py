"""A folder on disk, and files in memory, as the files of a run: the port that readers of debug-output take."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainguard.core.errors import ObjectMissingError
from trainguard.core.ports import check_range
from trainguard.formats.tensors.debug.ledger import StepLedger
from trainguard.formats.tensors.debug.run import DebugRun, DebugStep, complete_steps, find_run


@dataclass(frozen=True)
class FolderFiles:
    """The files below a folder; ``requests`` are the ranges that were read: name, start, bytes."""

    folder: Path
    requests: list[tuple[str, int, int]] = field(default_factory=list)

    def get(self, name: str, max_bytes: int) -> bytes:
        return self._read(name, 0, max_bytes + 1)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_range(start, length)
        self.requests.append((name, start, length))
        return self._read(name, start, length)

    def names(self, prefix: str, start_after: str = "") -> Iterator[str]:
        found = (each.relative_to(self.folder).as_posix() for each in self.folder.rglob("*") if each.is_file())
        yield from sorted(name for name in found if name.startswith(prefix) and name > start_after)

    def _read(self, name: str, start: int, length: int) -> bytes:
        try:
            with (self.folder / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(start)
                return file.read(max(min(length, size - start), 0))
        except FileNotFoundError as fault:
            raise ObjectMissingError(str(self.folder), name) from fault


@dataclass(frozen=True)
class MemoryFiles:
    """Files by name."""

    content: Mapping[str, bytes]
    requests: list[tuple[str, int, int]] = field(default_factory=list)

    def get(self, name: str, max_bytes: int) -> bytes:
        return self._content(name)[: max_bytes + 1]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_range(start, length)
        self.requests.append((name, start, length))
        return self._content(name)[start : start + length]

    def names(self, prefix: str, start_after: str = "") -> Iterator[str]:
        yield from sorted(name for name in self.content if name.startswith(prefix) and name > start_after)

    def _content(self, name: str) -> bytes:
        if name not in self.content:
            raise ObjectMissingError("memory", name)
        return self.content[name]


def steps_of(folder: Path, *, ended: bool | None = None) -> list[DebugStep]:
    """Return the complete steps of the debug-output in a folder; other runs are folders beside it."""
    run = run_of(folder)
    return list(complete_steps(FolderFiles(folder), run, StepLedger(), ended=ended))


def run_of(folder: Path) -> DebugRun:
    """Return the run in a folder; other runs are folders beside it."""
    return find_run(FolderFiles(folder), folder.name, lambda name: run_of(folder.parent / name))
