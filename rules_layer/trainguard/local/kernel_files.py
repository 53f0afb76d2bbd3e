"""Where the kernel traces of a job lie: in its folder, or below its prefix in a bucket."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainguard.errors import ProfileSourceError
from trainguard.kernels.captures.grouping import Capture, captures_of
from trainguard.kernels.captures.keys import TraceKey, match_below
from trainguard.layout import RESULTS_FOLDER, ProfileRoot
from trainguard.local.profile import safe_name
from trainguard.local.training_files import FolderObjects
from trainguard.ports import ListedObject, ProfileObjects

MOST_LISTED = 50_000
"""Objects of a prefix, or traces of a folder, that are looked at: as many as the deployed stack looks at."""


@dataclass(frozen=True, slots=True)
class KernelFiles:
    """A job's kernel traces in a bucket, or in a folder that is read as one.

    Attributes
    ----------
    objects : ProfileObjects
    bucket : str
    root : ProfileRoot
        The job's.
    newest : Capture
        The capture that was written last.
    key : TraceKey
        What the key of its first trace says.
    captures : int
        How many there are.
    is_cut : bool
        Whether there are more objects than are looked at.
    """

    objects: ProfileObjects
    bucket: str
    root: ProfileRoot
    newest: Capture
    key: TraceKey
    captures: int
    is_cut: bool

    def on_disk(self, key: str) -> Path | None:
        """Return where a trace lies on a disk, if it does."""
        return self.objects.files.get(key) if isinstance(self.objects, FolderObjects) else None


def find_traces(folder: Path) -> KernelFiles | None:
    """Find the kernel traces of a job in its folder; None where there is none.

    Raises
    ------
    ProfileSourceError
        When the folder cannot be read.
    """
    job = folder.resolve()
    root = ProfileRoot("", safe_name(job.name))
    try:
        files = dict(islice(_traces(job, root), MOST_LISTED + 1))
        listed = [_listed(key, file) for key, file in files.items()]
    except OSError as fault:
        raise ProfileSourceError(str(folder), f"cannot be read: {fault.strerror or fault}") from fault
    objects = FolderObjects(files, job.parent, known={root.job})
    return _found(objects, str(folder), root, listed)


def traces_below(objects: ProfileObjects, bucket: str, job: str) -> KernelFiles | None:
    """Find the kernel traces of the job whose folder has the key prefix ``job``; None where there is none.

    Raises
    ------
    PortUnavailableError
        When S3 does not answer.
    """
    prefix, _, name = job.rpartition("/")
    if safe_name(name) != name:
        return None
    root = ProfileRoot(f"{prefix}/" if prefix else "", name)
    return _found(objects, bucket, root, list(islice(objects.list(bucket, root.folder, ""), MOST_LISTED + 1)))


def _traces(job: Path, root: ProfileRoot) -> Iterator[tuple[str, Path]]:
    for parent, folders, names in os.walk(job, onerror=_refuse):
        folders[:] = sorted(name for name in folders if name != RESULTS_FOLDER)
        for name in sorted(names):
            file = Path(parent) / name
            key = root.folder + file.relative_to(job).as_posix()
            if match_below(key, root) is not None and file.is_file():
                yield key, file


def _listed(key: str, file: Path) -> ListedObject:
    about = file.stat()
    return ListedObject(key, about.st_mtime, about.st_size)


def _found(objects: ProfileObjects, bucket: str, root: ProfileRoot, listed: list[ListedObject]) -> KernelFiles | None:
    kept = listed[:MOST_LISTED]
    captures = [
        capture for folder in _folders(root, kept) for capture in captures_of(root, folder, kept) if capture.traces
    ]
    newest = max(captures, key=lambda each: (each.at, each.name), default=None)
    key = None if newest is None else match_below(newest.traces[0].key, root)
    if newest is None or key is None:
        return None
    return KernelFiles(objects, bucket, root, newest, key, len(captures), is_cut=len(listed) > MOST_LISTED)


def _folders(root: ProfileRoot, listed: Iterable[ListedObject]) -> list[str]:
    """Return the folders of traces: those of a capture are below the same one."""
    keys = (match_below(each.key, root) for each in listed)
    return sorted({key.folder for key in keys if key is not None})


def _refuse(fault: OSError) -> None:
    """Let a folder that cannot be read be an error: what lies in it would be missing from every verdict."""
    raise fault
