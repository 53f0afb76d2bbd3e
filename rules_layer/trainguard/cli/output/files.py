"""Reads parameter files, and writes a report's files into a folder, all of them or none."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from trainguard.errors import OutputError, ParameterFileError

_FILES = frozenset({".csv", ".htm", ".html", ".json", ".md", ".pdf", ".png", ".svg", ".txt", ".xlsx", ".zip"})


def read_body(file: Path) -> bytes:
    """Return a parameter file's content; raises ParameterFileError."""
    try:
        return file.read_bytes()
    except OSError as fault:
        raise ParameterFileError(str(file), fault.strerror or str(fault)) from fault


def prepare(folder: Path) -> None:
    """Make sure that reports can be written, before anything else takes time; raises OutputError.

    A name that ends as a file's does is meant as a file, so no folder of that name is made.
    """
    if folder.suffix.lower() in _FILES and not folder.is_dir():
        raise OutputError(str(folder), f"it is named as a {folder.suffix} file, which no command writes")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as fault:
        raise OutputError(str(folder), fault.strerror or str(fault)) from fault


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their names below ``folder``, in order: all bodies first, so that a full disk leaves none.

    Raises
    ------
    OutputError
        When a file cannot be written; every body is on disk before the first file is replaced.
    """
    bodies: dict[Path, Path] = {}
    target = folder
    try:
        for name, body in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            bodies[target] = Path(temporary)
            with os.fdopen(handle, "wb") as file:
                file.write(body)
            Path(temporary).chmod(0o666 & ~_umask())
        for target, written in bodies.items():
            written.replace(target)
    except OSError as fault:
        raise OutputError(str(target), fault.strerror or str(fault)) from fault
    finally:
        for left in bodies.values():
            left.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
