"""A job's newest capture of kernel traces and its newest snapshots on this machine, within bounds of bytes and files.

The session of the deployed stack asks for the verdict and takes it in; here the traces are read in its turn.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from trainguard.core.errors import KernelTraceError, ProfileSourceError, error_text
from trainguard.core.layout import RESULTS_FOLDER, ProfileRoot
from trainguard.core.ports import ByteStream, ListedObject, ReadableObjects
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.core.text import one_line
from trainguard.core.units import counted
from trainguard.engine.family import ObjectSource
from trainguard.engine.kernels.session import KERNEL_PROFILES
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import Announced
from trainguard.kernels.captures.capture import capture_verdict, rank_place, snapshot_verdict
from trainguard.kernels.captures.digest import brief
from trainguard.kernels.captures.keys import (
    ALL_RANKS,
    KERNELS,
    Capture,
    TraceObject,
    captures_at,
    match_below,
    verdict_key,
)
from trainguard.kernels.document import RankProfile
from trainguard.kernels.join import across_ranks
from trainguard.kernels.memory.entries import SnapshotProfile
from trainguard.kernels.profile import rank_profile, snapshot_profile
from trainguard.kernels.readers.reading import read_any, read_memory
from trainguard.kernels.verdict import CaptureHead, SnapshotsHead, encode_verdict
from trainguard.local.sources import FilesAsBucket, FolderFiles, MemoryFiles, files_below, refuse_unreadable, safe_name

# As many as the deployed stack looks at.
MOST_LISTED = 50_000


@dataclass(frozen=True, slots=True)
class KernelFiles:
    """A job's kernel traces and memory snapshots in a bucket, or in a folder that is read as one.

    ``newest`` is the capture that was written last, with the newest snapshots. ``is_cut`` says that there are more
    objects than are looked at.
    """

    objects: ReadableObjects
    bucket: str
    root: ProfileRoot
    newest: Capture
    captures: int
    is_cut: bool

    def on_disk(self, key: str) -> Path | None:
        files = self.objects.files if isinstance(self.objects, FilesAsBucket) else None
        return files.paths.get(key) if isinstance(files, FolderFiles) else None


def find_traces(folder: Path, onerror: Callable[[OSError], object] = refuse_unreadable) -> KernelFiles | None:
    """Find the kernel traces and memory snapshots of a job; None where there is none. Raises ProfileSourceError.

    ``onerror`` gets the fault of a folder that cannot be read, and raises it by default.
    """
    job = folder.resolve()
    root = ProfileRoot("", safe_name(job.name))
    try:
        keys = (
            (root.folder + file.relative_to(job).as_posix(), file)
            for file in files_below(job, {RESULTS_FOLDER}, onerror)
        )
        found = ((key, file) for key, file in keys if match_below(key, root) is not None)
        files = dict(islice(found, MOST_LISTED + 1))
    except OSError as fault:
        raise ProfileSourceError(str(folder), f"cannot be read: {fault.strerror or fault}") from fault
    return traces_below(FilesAsBucket(FolderFiles(str(folder), files)), str(folder), root.job)


def traces_below(objects: ReadableObjects, bucket: str, job: str) -> KernelFiles | None:
    """Find the traces and snapshots of the job with key prefix ``job``, or None; raises PortUnavailableError."""
    prefix, _, name = job.rpartition("/")
    if safe_name(name) != name:
        return None
    root = ProfileRoot(f"{prefix}/" if prefix else "", name)
    listed = list(islice(objects.list(bucket, root.folder, ""), MOST_LISTED + 1))
    kept = listed[:MOST_LISTED]
    keys = [key for each in kept if (key := match_below(each.key, root)) is not None]
    traces, snapshots = (
        dict.fromkeys(sorted({key.folder for key in keys if key.is_snapshot == of_snapshots}), kept)
        for of_snapshots in (False, True)
    )
    captures = captures_at(root, traces, snapshots, math.inf)
    if not captures:
        return None
    return KernelFiles(objects, bucket, root, captures[-1], len(captures), is_cut=len(listed) > MOST_LISTED)


# Ranks behind them are left out, which a note says.
MOST_TRACES = 64

# Of text of all traces together; a trace of a gigabyte takes 8 s and 0.4 GB.
MOST_BYTES = 4 * 1024**3

# A compressed trace grows 12 to 40 times, larger ones least.
GZIP_GROWTH = 16

_LONGEST = 300
_Profile = TypeVar("_Profile", RankProfile, SnapshotProfile)


def evaluate_kernels(job: JobRecord, plan: RulePlan, files: KernelFiles) -> tuple[StreamRecord, tuple[str, ...]]:
    """Judge the newest capture of a job by the rules over kernel profiles; a file that cannot be read is counted.

    The notes are what people have to know of it, a sentence each.
    """
    bodies: dict[str, bytes] = {}
    notes: list[str] = []
    reader = _CaptureFiles(files.bucket, bodies, listed=_objects(files.newest))
    source = ObjectSource(FilesAsBucket(reader), files.bucket, files.root, KERNEL_PROFILES.object_cap_bytes)
    session = KERNEL_PROFILES.open_session(StreamRecord(StreamKey(job.job, ALL_RANKS, KERNELS)), source, plan)
    session.announce([Announced(each.key, match_below(each.key, files.root)) for each in reader.listed])
    for _ in session.apply(drain=True, modified_before=None):
        pass
    for name, _ in session.requests:
        bodies[verdict_key(files.root, files.newest.name)], notes = _judged(files, name)
    for _ in session.apply(drain=True, modified_before=None):
        pass
    return session.to_record(closed=True), tuple(notes)


@dataclass(frozen=True, slots=True)
class _CaptureFiles(MemoryFiles):
    """The objects of a job as its session sees them: the newest capture's are ``listed``, its verdict can be read."""

    listed: Sequence[TraceObject] = ()

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for each in sorted(self.listed, key=lambda trace: trace.key):
            if each.key.startswith(prefix) and each.key > start_after:
                yield ListedObject(each.key, each.modified_at, each.size, each.etag)


def _judged(files: KernelFiles, run: str) -> tuple[bytes, list[str]]:
    """Return the verdict on the newest capture, encoded, and what people have to know of it."""
    capture = files.newest
    snapshots = capture.snapshots
    of_memory = () if snapshots is None else snapshots.newest
    traces, snapshots_read, notes = _chosen(capture, of_memory)
    ranks, unread = _read(files, traces, capture.folder, lambda *opened: brief(rank_profile(read_any(*opened))))
    head = CaptureHead(
        capture=capture.name,
        version=capture.version,
        run=run,
        folder=capture.folder,
        at=capture.at,
        traces=len(traces),
        notes=notes["kernel trace"],
    )
    judged = None
    unread_too: Mapping[str, str] = {}
    if snapshots is not None:
        profiles, unread_too = _read(
            files,
            snapshots_read,
            files.root.folder,
            lambda name, opened, _: snapshot_profile(read_memory(name, opened)),
        )
        about = SnapshotsHead(
            version=snapshots.version, at=snapshots.at, replaced=snapshots.replaced, notes=notes["memory snapshot"]
        )
        judged = snapshot_verdict(about, profiles, unread_too)
    said = [note for each in notes.values() for note in each]
    if files.captures > 1:
        newest = f"the newest one, of {counted(len(capture.traces), 'trace')},"
        said.append(f"Of {counted(files.captures, 'capture')} of kernel traces {newest} is judged.")
    if files.is_cut:
        said.append("There are more objects than are looked at: newer kernel traces may be among the rest.")
    said += _unread(unread, len(traces), "kernel trace")
    said += _unread(unread_too, len(snapshots_read), "memory snapshot")
    return encode_verdict(capture_verdict(head, ranks, across_ranks(ranks), unread, judged)), said


def _read(
    files: KernelFiles,
    objects: Sequence[TraceObject],
    folder: str,
    read: Callable[[str, Callable[[], ByteStream], Path | None], _Profile],
) -> tuple[list[_Profile], dict[str, str]]:
    """Return profiles by rank, one read at a time, named below a folder, and why others could not be read."""
    found, unread = [], {}
    for each in objects:
        name = each.key.removeprefix(folder)
        try:
            opened = partial(files.objects.open_stream, files.bucket, each.key)
            found.append(read(name, opened, files.on_disk(each.key)))
        except KernelTraceError as fault:
            unread[name] = fault.reason
        except MemoryError:
            unread[name] = "it takes more memory than there is"
        except Exception as fault:
            # A reader that fails in a way nobody thought of must not cost the job its other verdicts.
            unread[name] = error_text(fault)
    return sorted(found, key=rank_place), unread


def _objects(capture: Capture) -> list[TraceObject]:
    """Return the traces and snapshots of a capture, and the snapshot that it is named by."""
    snapshots = capture.snapshots
    of_memory = {} if snapshots is None else {each.key: each for each in (snapshots.first, *snapshots.newest)}
    return [*capture.traces, *of_memory.values()]


def _chosen(
    capture: Capture, snapshots: Sequence[TraceObject]
) -> tuple[list[TraceObject], list[TraceObject], Mapping[str, list[str]]]:
    """Return the traces and the snapshots that are read, within one bound of bytes, and what is left out of each."""
    total = 0
    found = []
    notes = {}
    beyond = (capture.left_out, 0 if capture.snapshots is None else capture.snapshots.left_out)
    for what, objects, more in zip(
        ("kernel trace", "memory snapshot"), (capture.traces, snapshots), beyond, strict=True
    ):
        chosen: list[TraceObject] = []
        for each in sorted(objects, key=lambda each: each.key):
            text = each.size * (GZIP_GROWTH if each.key.endswith(".gz") else 1)
            if len(chosen) < MOST_TRACES and total + text <= MOST_BYTES:
                total += text
                chosen.append(each)
        found.append(chosen)
        count, of = len(objects) + more - len(chosen), len(objects) + more
        note = (
            f"{count:,} of {counted(of, what)} of the newest capture are left out: at most {MOST_TRACES} files of "
            f"{MOST_BYTES // 1024**3} GiB of text are read here. `trainguard kernels` reads all."
        )
        notes[what] = [note] if count else []
    return found[0], found[1], notes


def _unread(unread: Mapping[str, str], files: int, what: str) -> Iterator[str]:
    kinds = Counter(unread.values())
    for why, count in kinds.most_common():
        first = next(name for name, reason in unread.items() if reason == why)
        yield one_line(
            f"{count:,} of {counted(files, what)} could not be read ({first}): {why}.".replace("..", "."), _LONGEST
        )
