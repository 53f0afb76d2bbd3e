"""Reads parameter files, and writes a report's files into a folder, each of them whole or not at all."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainguard.errors import OutputError, ParameterFileError


def read_body(file: Path) -> bytes:
    """Return a parameter file's content; raises ParameterFileError."""
    try:
        return file.read_bytes()
    except OSError as fault:
        raise ParameterFileError(str(file), fault.strerror or str(fault)) from fault


def prepare(folder: Path) -> None:
    """Make sure that reports can be written, before anything else takes time; raises OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as fault:
        raise OutputError(str(folder), fault.strerror or str(fault)) from fault


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their names below ``folder``, in order; raises OutputError."""
    for name, body in files.items():
        target = folder / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _replace(target, body)
        except OSError as fault:
            raise OutputError(str(target), fault.strerror or str(fault)) from fault


def _replace(target: Path, body: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
