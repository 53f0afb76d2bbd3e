"""A folder on disk, and files in memory, as the files of a run: the port that readers of debug-output take."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from trainguard.core.ports import ByteStream, Files, ListedObject
from trainguard.formats.tensors.debug.ledger import StepLedger
from trainguard.formats.tensors.debug.run import DebugRun, DebugStep, complete_steps, find_run
from trainguard.local import sources


class _Noted:
    """Files whose ranges that are read are noted: name, start, bytes."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.requests: list[tuple[str, int, int]] = []

    def get(self, name: str, max_bytes: int) -> bytes:
        return self.files.get(name, max_bytes)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self.requests.append((name, start, length))
        return self.files.get_range(name, start, length)

    def open_stream(self, name: str) -> ByteStream:
        return self.files.open_stream(name)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        return self.files.list(prefix, start_after)


class FolderFiles(_Noted):
    """The files below a folder, as they are now."""

    def __init__(self, folder: Path) -> None:
        found = {each.relative_to(folder).as_posix(): each for each in folder.rglob("*") if each.is_file()}
        super().__init__(sources.FolderFiles(str(folder), found))


class MemoryFiles(_Noted):
    """Files by name."""

    def __init__(self, content: Mapping[str, bytes]) -> None:
        self.content = content
        super().__init__(sources.MemoryFiles("memory", content))


def steps_of(folder: Path, *, ended: bool | None = None) -> list[DebugStep]:
    """Return the complete steps of the debug-output in a folder; other runs are folders beside it."""
    run = run_of(folder)
    return list(complete_steps(FolderFiles(folder), run, StepLedger(), ended=ended))


def run_of(folder: Path) -> DebugRun:
    """Return the run in a folder; other runs are folders beside it."""
    return find_run(FolderFiles(folder), folder.name, lambda name: run_of(folder.parent / name))
