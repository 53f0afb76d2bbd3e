"""Where a report goes on this machine: a folder of files, or the page alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainguard.cli.output.files import prepare, write_files
from trainguard.errors import ReportPageError
from trainguard.links import REPORT_PAGE
from trainguard.report.build import BuiltReport
from trainguard.report.files import report_files

_PAGE_SUFFIXES = frozenset({".html", ".htm"})


@dataclass(frozen=True, slots=True)
class OutputPath:
    """A folder, or with ``page`` the one file in it that is wanted."""

    folder: Path
    page: str | None = None

    @property
    def shown(self) -> Path:
        """The page's path."""
        return self.folder / (self.page or REPORT_PAGE)

    def names(self, files: Iterable[str]) -> list[str]:
        """Return the names of those of a report's files that go here."""
        return list(files) if self.page is None else [self.page]

    def prepare(self) -> None:
        """Make sure that files can be written there, before anything takes time; raises OutputError."""
        prepare(self.folder)

    def write(self, built: BuiltReport) -> Mapping[str, bytes]:
        """Write a report's files, each whole or not at all; return all of them by their names, ``report.json`` last.

        Raises
        ------
        ReportPageError
            When the page could not be made; the other files are written then.
        OutputError
            When a file cannot be written.
        """
        try:
            files = report_files(built)
        except ReportPageError as fault:
            if self.page is None:
                write_files(self.folder, fault.files)
            raise
        write_files(self.folder, files if self.page is None else {self.page: files[REPORT_PAGE]})
        return files


def output_path(out: Path | None, name: str) -> OutputPath:
    """Return where ``out`` says: a file if it is called as one, else a folder; ``./<name>-report`` by default."""
    if out is None:
        return OutputPath(Path(f"{name}-report"))
    if out.suffix.lower() in _PAGE_SUFFIXES and not out.is_dir():
        return OutputPath(out.parent, out.name)
    return OutputPath(out)
