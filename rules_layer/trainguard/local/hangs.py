"""Dumps and stacks of a job that stands still, and answers of NCCL RAS, in a folder or below a prefix of S3."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from trainguard.core.errors import (
    KernelTraceError,
    ObjectMissingError,
    PortUnavailableError,
    ProfileSourceError,
    RemedyError,
)
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ReadableObjects
from trainguard.hangs.files import (
    FILE_NAME,
    HANG_FOLDER,
    MOST_BYTES,
    OWN_FOLDERS,
    HangFile,
    HangFiles,
    hang_files,
    listed_files,
    read_hang,
)
from trainguard.hangs.text import with_words
from trainguard.hangs.verdict import HangVerdict
from trainguard.local.sources import FilesAsBucket, FolderFiles, safe_name
from trainguard.local.sources import files_below as files_of_job
from trainguard.local.traces import files_below
from trainguard.rules.rule_inputs import KnownHang

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients

# Files that are looked at; a job of 8,192 ranks leaves two of each.
MOST_FILES = 20_000

_EXPECTED = (
    "A dump is named by its rank, such as nccl_trace_rank_12; a stack too, such as stack_12.txt, "
    "of py-spy dump or faulthandler. An answer of NCCL RAS is the output of ncclras -f json."
)


def judge_hang(place: str, clients: "Clients | None" = None) -> HangVerdict:
    """Judge what lies at a file, a folder or ``s3://bucket/prefix``; raises RemedyError without any dump or stack."""
    try:
        found = files_below(place, clients, alone=True)
    except KernelTraceError as fault:
        raise RemedyError(f"{fault.place!r} cannot be read: {fault.reason}", _EXPECTED) from fault
    names = _of_hangs(found.names or list(found.changed))
    evidence = HangFiles()
    for name in sorted(names)[:MOST_FILES]:
        try:
            with found.open(name) as opened:
                data = opened.read(MOST_BYTES + 1)
        except (OSError, ObjectMissingError, PortUnavailableError, ProfileSourceError) as fault:
            evidence.refuse(name, str(fault))
            continue
        evidence.add(name, data, found.changed[name])
    if len(names) > MOST_FILES:
        evidence.refuse("…", f"{len(names) - MOST_FILES:,} more files, expected at most {MOST_FILES:,}")
    if evidence.is_empty:
        faults = "".join(f" {name}: {reason}." for name, reason in list(evidence.unread.items())[:3])
        raise RemedyError(
            f"{place!r} holds no dump of the flight recorder and no stack.{faults}".rstrip("."), _EXPECTED
        )
    return with_words(evidence.verdict())


def _of_hangs(names: Sequence[str]) -> Sequence[str]:
    """Return of a job's whole folder the files that are named as dumps, stacks or answers of RAS; else all."""
    parts = {name: PurePosixPath(name).parts for name in names}
    if not any(HANG_FOLDER in each for each in parts.values()):
        return names
    return [name for name, each in parts.items() if HANG_FOLDER in each or FILE_NAME.fullmatch(each[-1])]


# Says what the dumps of a job's newest standstill say, which was at the latest until a time, epoch seconds.
ReadDumps = Callable[[float], KnownHang | None]


def _read(objects: ReadableObjects, bucket: str, files: Sequence[HangFile], until: float) -> KnownHang | None:
    known = read_hang(objects, bucket, files)
    # A copy's own time is that of the copy.
    return None if known is None else msgspec.structs.replace(known, at=min(known.at, until))


def find_dumps(job: Path) -> ReadDumps | None:
    """Find the dumps and stacks of a job's folder, or None; a folder that cannot be read holds none."""
    root = ProfileRoot("", safe_name(job.resolve().name))
    paths = {
        root.folder + file.relative_to(job).as_posix(): file
        for folder in (HANG_FOLDER, *OWN_FOLDERS)
        for file in files_of_job(job / folder, onerror=lambda _: None)
    }
    objects = FilesAsBucket(FolderFiles(str(job), paths))
    try:
        found = hang_files(root, objects.list("", root.folder, ""))
    except ProfileSourceError:
        return None
    return partial(_read, objects, "", found) if found else None


def dumps_below(objects: ReadableObjects, bucket: str, job: str) -> ReadDumps | None:
    """Find the dumps and stacks of the job with key prefix ``job``, or None; raises PortUnavailableError."""
    prefix, _, name = job.rpartition("/")
    found = listed_files(objects, bucket, ProfileRoot(f"{prefix}/" if prefix else "", name))
    return partial(_read, objects, bucket, found) if found else None
