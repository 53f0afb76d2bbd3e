"""Writes a report's files into a folder, all of them or none."""

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainguard.core.errors import OutputError, ReportPageError
from trainguard.core.layout import REPORT_PAGE

if TYPE_CHECKING:
    from trainguard.report.job.build import BuiltReport

_FILES = frozenset({".csv", ".htm", ".html", ".json", ".md", ".pdf", ".png", ".svg", ".txt", ".xlsx", ".zip"})


def prepare(folder: Path) -> None:
    """Make sure that reports can be written, before anything slow; raises OutputError, also for a file's name."""
    if folder.suffix.lower() in _FILES and not folder.is_dir():
        raise OutputError(str(folder), f"it is named as a {folder.suffix} file, which no command writes")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as fault:
        raise OutputError(str(folder), fault.strerror or str(fault)) from fault


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files below ``folder``; every body is on disk before the first is replaced. Raises OutputError."""
    bodies: dict[Path, Path] = {}
    target = folder
    umask = os.umask(0)
    os.umask(umask)
    try:
        for name, body in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            bodies[target] = Path(temporary)
            with os.fdopen(handle, "wb") as file:
                file.write(body)
            Path(temporary).chmod(0o666 & ~umask)
        for target, written in bodies.items():
            written.replace(target)
    except OSError as fault:
        raise OutputError(str(target), fault.strerror or str(fault)) from fault
    finally:
        for left in bodies.values():
            left.unlink(missing_ok=True)


_PAGE_SUFFIXES = frozenset({".html", ".htm"})


@dataclass(frozen=True, slots=True)
class OutputPath:
    """A folder, or with ``page`` the one file in it that is wanted."""

    folder: Path
    page: str | None = None

    @property
    def shown(self) -> Path:
        return self.folder / (self.page or REPORT_PAGE)

    def names(self, files: Iterable[str]) -> list[str]:
        """Return the names of those of a report's files that go here."""
        return list(files) if self.page is None else [self.page]

    def prepare(self) -> None:
        prepare(self.folder)

    def write(self, built: "BuiltReport") -> Mapping[str, bytes]:
        """Write and return a report's files, ``report.json`` last; raises OutputError, ReportPageError."""
        # A command that writes no report does not wait for what builds one.
        from trainguard.report.job.build import report_files

        try:
            files = report_files(built)
        except ReportPageError as fault:
            if self.page is None:
                write_files(self.folder, fault.files)
            raise
        write_files(self.folder, files if self.page is None else {self.page: files[REPORT_PAGE]})
        return files


def output_path(out: Path | None, name: str) -> OutputPath:
    """Return the path of ``out``: a file if it is called as one, else a folder; ``./<name>-report`` by default."""
    if out is None:
        return OutputPath(Path(f"{name}-report"))
    if out.suffix.lower() in _PAGE_SUFFIXES and not out.is_dir():
        return OutputPath(out.parent, out.name)
    return OutputPath(out)
