"""A job's newest capture of kernel traces on this machine: judged as in the stack, within bounds of bytes and files.

The session of the deployed stack asks for the verdict and takes it in; here the traces are read in its turn.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainguard.engine.family import ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import Announced
from trainguard.errors import KernelTraceError, ObjectMissingError
from trainguard.families.kernels.family import KERNEL_PROFILES
from trainguard.kernels.captures.brief import brief
from trainguard.kernels.captures.capture import CaptureHead, capture_verdict, rank_place
from trainguard.kernels.captures.grouping import TraceObject
from trainguard.kernels.captures.keys import ALL_RANKS, KERNELS
from trainguard.kernels.captures.places import verdict_key
from trainguard.kernels.captures.verdict import encode_verdict
from trainguard.kernels.document import RankProfile
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.ranks.join import across_ranks
from trainguard.kernels.reading import read_any
from trainguard.local.kernel_files import KernelFiles
from trainguard.plain_text import one_line
from trainguard.ports import ByteStream, ListedObject
from trainguard.records import JobRecord, NodeRecord, StreamKey
from trainguard.rules.units import counted

MOST_TRACES = 64
"""Of a capture; ranks behind them are left out, which is said."""

MOST_BYTES = 4 * 1024**3
"""Of text of all traces together; a trace of a gigabyte takes 8 s and 0.4 GB."""

GZIP_GROWTH = 16
"""How much longer the text of a compressed trace is: 12 to 40 times, of which larger ones grow least."""

_LONGEST = 300


@dataclass(frozen=True, slots=True)
class EvaluatedKernels:
    """A job's newest capture that was evaluated; ``notes`` are what people have to know of it, a sentence each."""

    record: NodeRecord
    notes: tuple[str, ...]


def evaluate_kernels(job: JobRecord, plan: RulePlan, files: KernelFiles) -> EvaluatedKernels:
    """Evaluate the newest capture of a job by the rules over kernel profiles; a trace that cannot be read is counted.

    Parameters
    ----------
    job : JobRecord
    plan : RulePlan
    files : KernelFiles
    """
    reader = _CaptureReader(files)
    source = ObjectSource(reader, files.bucket, files.root, KERNEL_PROFILES.object_cap_bytes)
    session = KERNEL_PROFILES.open_session(NodeRecord(StreamKey(job.job, ALL_RANKS, KERNELS)), source, plan)
    session.announce([Announced(files.newest.traces[0].key, files.key)])
    _drain(session.apply(drain=True, modified_before=None))
    for request in session.requests:
        reader.judge(request.name)
    _drain(session.apply(drain=True, modified_before=None))
    return EvaluatedKernels(session.to_record(closed=True), tuple(reader.notes))


class _CaptureReader:
    """The objects of a job as its session sees them: the newest capture's traces, and, once asked for, its verdict."""

    def __init__(self, files: KernelFiles) -> None:
        self._files = files
        self._verdict: bytes | None = None
        self.notes: list[str] = []

    def judge(self, run: str) -> None:
        """Read the traces, and have the verdict."""
        capture = self._files.newest
        traces, left_out = _chosen(capture.traces)
        ranks, unread = _read(self._files, traces)
        said = list(_left_out(len(left_out), len(capture.traces), capture.left_out))
        self.notes = [*said, *self._said(len(capture.traces)), *_unread(unread, len(traces))]
        head = CaptureHead(
            capture=capture.name,
            version=capture.version,
            run=run,
            folder=capture.folder,
            at=capture.at,
            traces=len(traces),
            notes=said,
        )
        self._verdict = encode_verdict(capture_verdict(head, ranks, across_ranks(ranks), unread))

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        """Return the verdict, one byte more than ``max_bytes`` at most; there is no other object."""
        if self._verdict is None or key != verdict_key(self._files.root, self._files.newest.name):
            raise ObjectMissingError(bucket, key)
        return self._verdict[: max_bytes + 1]

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes of an object from offset ``start`` on."""
        return self._files.objects.get_range(bucket, key, start, length)

    def open_stream(self, bucket: str, key: str) -> ByteStream:
        """Open an object to be read from the front."""
        return self._files.objects.open_stream(bucket, key)

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """Iterate over the traces of the newest capture."""
        del bucket
        for each in sorted(self._files.newest.traces, key=lambda trace: trace.key):
            if each.key.startswith(prefix) and each.key > start_after:
                yield ListedObject(each.key, each.modified_at, each.size, each.etag)

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        """Refuse: a job is only read."""
        raise NotImplementedError(f"{key}: a local job is only read")

    def _said(self, traces: int) -> Iterator[str]:
        files = self._files
        if files.captures > 1:
            newest = f"the newest one, of {counted(traces, 'trace')},"
            yield f"Of {counted(files.captures, 'capture')} of kernel traces {newest} is judged."
        if files.is_cut:
            yield "There are more objects than are looked at: newer kernel traces may be among the rest."


def _read(files: KernelFiles, traces: Sequence[TraceObject]) -> tuple[list[RankProfile], dict[str, str]]:
    """Return the brief profiles of traces by rank, one read at a time, and why others could not be read."""
    ranks, unread = [], {}
    for trace in traces:
        name = trace.key.removeprefix(files.newest.folder)
        read = _profile(files, name, trace.key)
        if isinstance(read, str):
            unread[name] = read
        else:
            ranks.append(read)
    return sorted(ranks, key=rank_place), unread


def _profile(files: KernelFiles, name: str, key: str) -> RankProfile | str:
    """Return the brief profile of a trace, or why there is none."""
    try:
        trace = read_any(name, lambda: files.objects.open_stream(files.bucket, key), files.on_disk(key))
        return brief(rank_profile(trace))
    except KernelTraceError as fault:
        return fault.reason
    except MemoryError:
        return "it takes more memory than there is"
    except Exception as fault:
        # A reader that fails in a way nobody thought of must not cost the job its other verdicts.
        return f"{type(fault).__name__}: {fault}"


def _drain(applied: Iterator[object]) -> None:
    for _ in applied:
        pass


def _chosen(traces: Sequence[TraceObject]) -> tuple[list[TraceObject], list[TraceObject]]:
    """Return the traces that are read, in order of their keys, and those that are left out."""
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


def _left_out(beyond: int, traces: int, behind: int) -> Iterator[str]:
    if beyond or behind:
        yield (
            f"{beyond + behind:,} of {counted(traces + behind, 'kernel trace')} of the newest capture are left out:"
            f" at most {MOST_TRACES} files of {MOST_BYTES // 1024**3} GiB of text are read here. `trainguard kernels`"
            " reads all."
        )


def _unread(unread: Mapping[str, str], traces: int) -> Iterator[str]:
    """Say by kind of fault how many traces could not be read, with the first of each."""
    kinds = Counter(unread.values())
    for why, count in kinds.most_common():
        first = next(name for name, reason in unread.items() if reason == why)
        yield one_line(
            f"{count:,} of {counted(traces, 'kernel trace')} could not be read ({first}): {why}.".replace("..", "."),
            _LONGEST,
        )
