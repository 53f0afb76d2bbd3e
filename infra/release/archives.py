"""Archives whose bytes depend on the content of a folder alone."""

import hashlib
import stat
import zipfile
from pathlib import Path

_BEGINNING = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_LEVEL = 6
_COMPRESSED = frozenset({".gz", ".whl", ".zip"})
_READABLE = (stat.S_IFREG | 0o644) << 16


def write_archive(target: Path, folder: Path, *, below: str = "") -> None:
    """Write a folder as a ZIP archive, the same bytes for the same files and zlib; ``below`` ends in a slash."""
    files = sorted((file.relative_to(folder).as_posix(), file) for file in folder.rglob("*") if file.is_file())
    with zipfile.ZipFile(target, "w") as archive:
        for name, file in files:
            entry = zipfile.ZipInfo(f"{below}{name}", _BEGINNING)
            entry.create_system, entry.external_attr = _UNIX, _READABLE
            entry.compress_type = zipfile.ZIP_STORED if file.suffix in _COMPRESSED else zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes(), compresslevel=_LEVEL)


def sums(folder: Path) -> str:
    """Return a line for each file of a folder, as ``sha256sum --check`` reads it."""
    files = sorted((file.relative_to(folder).as_posix(), file) for file in folder.rglob("*") if file.is_file())
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {name}\n" for name, file in files)
