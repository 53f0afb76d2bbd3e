"""A job's newest capture of kernel traces on this machine, within bounds of bytes and files.

The session of the deployed stack asks for the verdict and takes it in; here the traces are read in its turn.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from trainguard.core.errors import KernelTraceError, ObjectMissingError, ProfileSourceError
from trainguard.core.layout import RESULTS_FOLDER, ProfileRoot
from trainguard.core.ports import ByteStream, ListedObject, ReadableObjects
from trainguard.core.records import JobRecord, NodeRecord, StreamKey
from trainguard.core.text import one_line
from trainguard.core.units import counted
from trainguard.engine.family import ObjectSource
from trainguard.engine.kernels.session import KERNEL_PROFILES
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import Announced
from trainguard.kernels.captures.capture import capture_verdict, rank_place
from trainguard.kernels.captures.digest import brief
from trainguard.kernels.captures.keys import (
    ALL_RANKS,
    KERNELS,
    Capture,
    TraceKey,
    TraceObject,
    captures_of,
    match_below,
    verdict_key,
)
from trainguard.kernels.document import RankProfile
from trainguard.kernels.join import across_ranks
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.reading import read_any
from trainguard.kernels.verdict import CaptureHead, encode_verdict
from trainguard.local.sources import FilesAsBucket, FolderFiles, files_below, refuse_unreadable, safe_name

MOST_LISTED = 50_000
"""As many as the deployed stack looks at."""


@dataclass(frozen=True, slots=True)
class KernelFiles:
    """A job's kernel traces in a bucket, or in a folder that is read as one.

    ``newest`` is the capture that was written last, ``key`` that of its first trace. ``is_cut`` says that there are
    more objects than are looked at.
    """

    objects: ReadableObjects
    bucket: str
    root: ProfileRoot
    newest: Capture
    key: TraceKey
    captures: int
    is_cut: bool

    def on_disk(self, key: str) -> Path | None:
        """Return where a trace lies on a disk, if it does."""
        files = self.objects.files if isinstance(self.objects, FilesAsBucket) else None
        return files.paths.get(key) if isinstance(files, FolderFiles) else None


def find_traces(folder: Path, onerror: Callable[[OSError], object] = refuse_unreadable) -> KernelFiles | None:
    """Find the kernel traces of a job; None where there is none. Raises ProfileSourceError.

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
        stats = {key: file.stat() for key, file in files.items()}
    except OSError as fault:
        raise ProfileSourceError(str(folder), f"cannot be read: {fault.strerror or fault}") from fault
    objects = FilesAsBucket(FolderFiles(str(folder), files))
    listed = [ListedObject(key, about.st_mtime, about.st_size) for key, about in stats.items()]
    return _found(objects, str(folder), root, listed)


def traces_below(objects: ReadableObjects, bucket: str, job: str) -> KernelFiles | None:
    """Find the kernel traces of the job with key prefix ``job``, or None; raises PortUnavailableError."""
    prefix, _, name = job.rpartition("/")
    if safe_name(name) != name:
        return None
    root = ProfileRoot(f"{prefix}/" if prefix else "", name)
    return _found(objects, bucket, root, list(islice(objects.list(bucket, root.folder, ""), MOST_LISTED + 1)))


def _found(objects: ReadableObjects, bucket: str, root: ProfileRoot, listed: list[ListedObject]) -> KernelFiles | None:
    kept = listed[:MOST_LISTED]
    keys = (match_below(each.key, root) for each in kept)
    folders = sorted({key.folder for key in keys if key is not None})
    captures = [capture for folder in folders for capture in captures_of(root, folder, kept) if capture.traces]
    newest = max(captures, key=lambda each: (each.at, each.name), default=None)
    key = None if newest is None else match_below(newest.traces[0].key, root)
    if newest is None or key is None:
        return None
    return KernelFiles(objects, bucket, root, newest, key, len(captures), is_cut=len(listed) > MOST_LISTED)


MOST_TRACES = 64
"""Ranks behind them are left out, which a note says."""

MOST_BYTES = 4 * 1024**3
"""Of text of all traces together; a trace of a gigabyte takes 8 s and 0.4 GB."""

GZIP_GROWTH = 16
"""A compressed trace grows 12 to 40 times, larger ones least."""

_LONGEST = 300


def evaluate_kernels(job: JobRecord, plan: RulePlan, files: KernelFiles) -> tuple[NodeRecord, tuple[str, ...]]:
    """Judge the newest capture of a job by the rules over kernel profiles; a trace that cannot be read is counted.

    The notes are what people have to know of it, a sentence each.
    """
    reader = _CaptureReader(files)
    source = ObjectSource(FilesAsBucket(reader), files.bucket, files.root, KERNEL_PROFILES.object_cap_bytes)
    session = KERNEL_PROFILES.open_session(NodeRecord(StreamKey(job.job, ALL_RANKS, KERNELS)), source, plan)
    session.announce([Announced(files.newest.traces[0].key, files.key)])
    for _ in session.apply(drain=True, modified_before=None):
        pass
    for name, _ in session.requests:
        reader.judge(name)
    for _ in session.apply(drain=True, modified_before=None):
        pass
    return session.to_record(closed=True), tuple(reader.notes)


class _CaptureReader:
    """The objects of a job as its session sees them: the newest capture's traces, and, once asked for, its verdict."""

    def __init__(self, files: KernelFiles) -> None:
        self._files = files
        self._verdict: bytes | None = None
        self.notes: list[str] = []

    def judge(self, run: str) -> None:
        capture = self._files.newest
        traces, left_out = _chosen(capture.traces)
        ranks, unread = _read(self._files, traces)
        left_out_notes = []
        if beyond := len(left_out) + capture.left_out:
            all_traces = counted(len(capture.traces) + capture.left_out, "kernel trace")
            left_out_notes.append(
                f"{beyond:,} of {all_traces} of the newest capture are left out: at most {MOST_TRACES} files of "
                f"{MOST_BYTES // 1024**3} GiB of text are read here. `trainguard kernels` reads all."
            )
        self.notes = [*left_out_notes, *self._notes(len(capture.traces)), *_unread(unread, len(traces))]
        head = CaptureHead(
            capture=capture.name,
            version=capture.version,
            run=run,
            folder=capture.folder,
            at=capture.at,
            traces=len(traces),
            notes=left_out_notes,
        )
        self._verdict = encode_verdict(capture_verdict(head, ranks, across_ranks(ranks), unread))

    def get(self, name: str, max_bytes: int) -> bytes:
        if self._verdict is None or name != verdict_key(self._files.root, self._files.newest.name):
            raise ObjectMissingError(self._files.bucket, name)
        return self._verdict[: max_bytes + 1]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._files.objects.get_range(self._files.bucket, name, start, length)

    def open_stream(self, name: str) -> ByteStream:
        return self._files.objects.open_stream(self._files.bucket, name)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for each in sorted(self._files.newest.traces, key=lambda trace: trace.key):
            if each.key.startswith(prefix) and each.key > start_after:
                yield ListedObject(each.key, each.modified_at, each.size, each.etag)

    def _notes(self, traces: int) -> Iterator[str]:
        files = self._files
        if files.captures > 1:
            newest = f"the newest one, of {counted(traces, 'trace')},"
            yield f"Of {counted(files.captures, 'capture')} of kernel traces {newest} is judged."
        if files.is_cut:
            yield "There are more objects than are looked at: newer kernel traces may be among the rest."


def _read(files: KernelFiles, traces: Sequence[TraceObject]) -> tuple[list[RankProfile], dict[str, str]]:
    """Return brief profiles by rank, one read at a time, and why others could not be read."""
    ranks, unread = [], {}
    for each in traces:
        name = each.key.removeprefix(files.newest.folder)
        try:
            opened = partial(files.objects.open_stream, files.bucket, each.key)
            ranks.append(brief(rank_profile(read_any(name, opened, files.on_disk(each.key)))))
        except KernelTraceError as fault:
            unread[name] = fault.reason
        except MemoryError:
            unread[name] = "it takes more memory than there is"
        except Exception as fault:
            # A reader that fails in a way nobody thought of must not cost the job its other verdicts.
            unread[name] = f"{type(fault).__name__}: {fault}"
    return sorted(ranks, key=rank_place), unread


def _chosen(traces: Sequence[TraceObject]) -> tuple[list[TraceObject], list[TraceObject]]:
    chosen: list[TraceObject] = []
    left_out: list[TraceObject] = []
    total = 0
    for trace in sorted(traces, key=lambda each: each.key):
        text = trace.size * (GZIP_GROWTH if trace.key.endswith(".gz") else 1)
        if len(chosen) < MOST_TRACES and total + text <= MOST_BYTES:
            total += text
            chosen.append(trace)
        else:
            left_out.append(trace)
    return chosen, left_out


def _unread(unread: Mapping[str, str], traces: int) -> Iterator[str]:
    kinds = Counter(unread.values())
    for why, count in kinds.most_common():
        first = next(name for name, reason in unread.items() if reason == why)
        yield one_line(
            f"{count:,} of {counted(traces, 'kernel trace')} could not be read ({first}): {why}.".replace("..", "."),
            _LONGEST,
        )
