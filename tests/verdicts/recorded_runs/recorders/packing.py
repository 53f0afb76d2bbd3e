"""Makes one archive of the folders of all runs: the trainers' own files, without what names a machine."""

import io
import lzma
import re
import tarfile
from pathlib import Path

from tests.verdicts.recorded_runs.recordings import FILE

# An event file's time, its machine, and the rest of its name.
_EVENTS = re.compile(r"(events\.out\.tfevents\.\d+)\..*?((?:\.\d+)*(?:\.v2|\.resumed)?)$")


def pack(folder: Path) -> int:
    """Write the archive of all runs below a folder; return its size in bytes."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file in sorted(folder.rglob("*"), key=_by_kind):
            if file.is_file():
                archive.add(file, _named(file.relative_to(folder)), filter=_without_owner)
    FILE.write_bytes(lzma.compress(written.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    return FILE.stat().st_size


def _by_kind(file: Path) -> tuple[str, str]:
    """Like files lie together: they compress well."""
    return file.suffix if "tfevents" not in file.name else "", str(file)


def _named(path: Path) -> str:
    return path.with_name(_EVENTS.sub(r"\1.host\2", path.name)).as_posix()


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode, entry.mtime = 0o644, int(entry.mtime)
    return entry
