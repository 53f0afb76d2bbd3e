"""Writes a report's files into a folder, all of them or none."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainguard.core.errors import OutputError, ReportPageError
from trainguard.core.layout import REPORT_PAGE

if TYPE_CHECKING:
    from trainguard.report.job.build import BuiltReport

_FILES = frozenset({".csv", ".htm", ".html", ".json", ".md", ".pdf", ".png", ".svg", ".txt", ".xlsx", ".zip"})
_PAGE_SUFFIXES = frozenset({".html", ".htm"})


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


def output_path(out: Path | None, name: str) -> tuple[Path, str | None]:
    """Return a report's folder, by default ``./<name>-report``, and the name of its page where this alone is wanted."""
    if out is None:
        return Path(f"{name}-report"), None
    if out.suffix.lower() in _PAGE_SUFFIXES and not out.is_dir():
        return out.parent, out.name
    return out, None


def write_report(
    folder: Path, page: str | None, built: "BuiltReport"
) -> tuple[Mapping[str, bytes], Path, Sequence[str]]:
    """Write a report's files, ``report.json`` last, or its ``page`` alone; raises OutputError, ReportPageError.

    Returns all of its files, the path of its page, and the names of what was written.
    """
    # A command that writes no report does not wait for what builds one.
    from trainguard.report.job.build import report_files

    try:
        files = report_files(built)
    except ReportPageError as fault:
        if page is None:
            write_files(folder, fault.files)
        raise
    written = files if page is None else {page: files[REPORT_PAGE]}
    write_files(folder, written)
    return files, folder / (page or REPORT_PAGE), list(written)
