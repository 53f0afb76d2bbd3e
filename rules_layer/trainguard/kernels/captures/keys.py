"""Which objects of a bucket are a job's traces and memory snapshots, which are one capture, and where its files lie."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

from trainguard.core.layout import FUTURE_S, JOB_NAME, MAX_KEY_LENGTH, RESULTS_FOLDER, ProfileRoot, root_of
from trainguard.core.ports import ListedObject, ReadableObjects
from trainguard.kernels.memory.names import (
    JSON_FORMS,
    SNAPSHOT_ENDINGS,
    SNAPSHOT_FORMS,
    SNAPSHOT_WORDS,
    is_moment,
    is_snapshot_name,
    rank_of,
    snapshot_writer,
)
from trainguard.kernels.times.intervals import windows_of

KERNELS = "kernels"
# The one unit of the stream: rules judge all ranks of a capture together.
ALL_RANKS = "all-ranks"

TRACE_FOLDER = "kernel-traces"
TRACE_FOLDERS = (TRACE_FOLDER, "tensorboard-output", "trainer-output", "checkpoints", "profiler-output")
TRACE_ENDINGS = (".pt.trace.json", ".pt.trace.json.gz", ".xplane.pb", ".xplane.pb.gz")
# Exports of Nsight Systems: any database ends so, and only those in the first folder are taken for traces.
DATABASE_ENDINGS = (".sqlite", ".sqlite.gz")

_WORDED = tuple(f"*{word}" for word in SNAPSHOT_WORDS)

# The keys of traces and snapshots, as IAM writes them: of checkpoints, for example, nothing else.
TRACE_READS = (
    *(f"*/*{ending}" for ending in TRACE_ENDINGS),
    *(f"*/{TRACE_FOLDER}/*{ending}" for ending in DATABASE_ENDINGS),
    *(f"*/{place}*{ending}*" for place in (f"{TRACE_FOLDER}/", *_WORDED) for ending in SNAPSHOT_FORMS),
    *(f"*/*{ending}*" for ending in JSON_FORMS),
)

# Folders between that of the job, or the one of the five, and a trace.
DEEPEST = 12

EXPECTED_KEYS = (
    f"<job>/{{{','.join(TRACE_FOLDERS)}}}/…/*.pt.trace.json, *.xplane.pb, *memory*.pickle, *snapshot*.pickle, "
    f"*memory_snapshot.json, *memory_timeline.json, or "
    f"<job>/{TRACE_FOLDER}/…/*.sqlite, *.pickle, *.pkl, each with or without .gz; of a known job in any of its folders"
)

_MARK = "|".join(TRACE_FOLDERS)
_TRACE = re.compile(
    rf"(?P<prefix>(?:(?!(?:{_MARK})/)[^/]+/)*)(?!(?:{_MARK})/){JOB_NAME}/(?P<mark>{_MARK})/(?P<name>(?:[^/]+/){{0,{DEEPEST}}}[^/]+)"
)
_PATH = re.compile(rf"(?:[^/]+/){{0,{DEEPEST}}}[^/]+")
_UNIT = re.compile(r"(?:[a-z]+[-_])?(?:rank|worker|node|host|algo|gpu|proc|process|device)[-_=]?\d{1,6}", re.IGNORECASE)
_RUN = re.compile(r"\d{4}[-_]\d\d[-_]\d\d[-_T]\d\d[-_]\d\d[-_]\d\d")

# How `tensorboard_trace_handler` names files: worker, and time in ms, us or ns of the epoch.
_TIMED = re.compile(r"(?P<who>.+)\.(?P<time>\d{13}|\d{16}|\d{19})\.pt\.trace\.json(?:\.gz)?")

_NAME = re.compile(r"(?P<who>.+?)(?:\.pt\.trace\.json|\.xplane\.pb|\.sqlite)(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class CaptureTraceKey:
    """A kernel trace or a memory snapshot; ``written_at`` is the time in its name, epoch seconds.

    ``folder`` begins the key, slash included: the traces of a capture have the same. A ``writer`` has one trace in it;
    of its snapshots the newest counts.
    """

    root: ProfileRoot
    folder: str
    writer: str
    written_at: float | None
    node: str = ALL_RANKS
    stream: str = KERNELS
    named_at: float | None = None
    is_snapshot: bool = False


def match_key(key: str) -> CaptureTraceKey | None:
    match = _TRACE.fullmatch(key) if len(key) <= MAX_KEY_LENGTH else None
    if match is None:
        return None
    name, is_of_traces = match["name"], match["mark"] == TRACE_FOLDER
    is_snapshot = is_snapshot_name(name) or (is_of_traces and name.endswith(SNAPSHOT_ENDINGS))
    if not is_snapshot and not name.endswith((*TRACE_ENDINGS, *(DATABASE_ENDINGS if is_of_traces else ()))):
        return None
    root = root_of(match)
    return _read(root, f"{root.folder}{match['mark']}/", name, is_snapshot=is_snapshot)


def match_below(key: str, root: ProfileRoot) -> CaptureTraceKey | None:
    """Read the key of a trace or snapshot in any folder of a job; None for other objects, and of another job."""
    named = match_key(key)
    if named is not None:
        return named if named.root == root else None
    if not (key.startswith(root.folder) and is_named(key)) or RESULTS_FOLDER in key.split("/"):
        return None
    name = key.removeprefix(root.folder)
    return _read(root, root.folder, name, is_snapshot=is_snapshot_name(name)) if _PATH.fullmatch(name) else None


def is_named(key: str) -> bool:
    return len(key) <= MAX_KEY_LENGTH and (key.endswith(TRACE_ENDINGS) or is_snapshot_name(key))


def is_shared(part: str) -> bool:
    """Whether traces in folders of different names, such as this, are in different captures."""
    return not (_UNIT.fullmatch(part) or _RUN.fullmatch(part))


def _read(root: ProfileRoot, above: str, name: str, *, is_snapshot: bool) -> CaptureTraceKey:
    *parts, file = name.split("/")
    shared = 0
    while shared < len(parts) and is_shared(parts[shared]) and not (is_snapshot and is_moment(parts[shared])):
        shared += 1
    folder, own = above + "".join(f"{part}/" for part in parts[:shared]), parts[shared:]
    if is_snapshot:
        return CaptureTraceKey(root, folder, snapshot_writer(own, file), None, is_snapshot=True)
    timed = _TIMED.fullmatch(file)
    plain = timed or _NAME.fullmatch(file)
    who = file if plain is None else plain["who"]
    return CaptureTraceKey(
        root=root,
        folder=folder,
        writer="/".join([*(part for part in own if not _RUN.fullmatch(part)), who]),
        written_at=None if timed is None else _seconds(timed["time"]),
    )


def _seconds(digits: str) -> float:
    return int(digits) / 10.0 ** (len(digits) - 10)


FOLDER = "kernels/"
DIGESTS = f"{FOLDER}digests/"
RUNS = f"{FOLDER}runs/"
PAGE, DOCUMENT, VERDICT = "kernels.html", "kernels.json", "verdict.json"
FILES = {PAGE: "text/html; charset=utf-8", DOCUMENT: "application/json", VERDICT: "application/json"}


_RUN_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_CAPTURE_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


def verdict_key(root: ProfileRoot, capture: str) -> str:
    return capture_folder(root, capture) + VERDICT


def capture_folder(root: ProfileRoot, capture: str) -> str:
    """Return where a capture's page, document and verdict lie; ValueError for a name that is no capture's."""
    if not _CAPTURE_NAME.fullmatch(capture):
        raise ValueError(f"capture {capture!r}, expected a name such as 20260714T093000Z-0123abcd")
    return f"{root.report}{FOLDER}{capture}/"


def digest_key(root: ProfileRoot, trace: str, form: str) -> str:
    """Return where a digest lies; ``trace`` is all that it depends on."""
    return f"{root.report}{DIGESTS}{hashlib.sha256(trace.encode()).hexdigest()[:32]}-{form}.json"


def run_folder(root: ProfileRoot, run: str) -> str:
    """Return where an execution's lists lie; ValueError for a name that is none of an execution."""
    if not _RUN_NAME.fullmatch(run):
        raise ValueError(f"run {run!r}, expected the name of an execution")
    return f"{root.report}{RUNS}{run}/"


# Objects of a folder that are looked at; traces behind them are in no capture, which is counted.
MOST_LISTED = 50_000

# Objects of a folder in the folder, whose traces are in other captures, that are looked at before it is skipped.
PASSED_OVER = 1_000

_LAST = "\U0010ffff"


def listed_folder(objects: ReadableObjects, bucket: str, folder: str) -> tuple[list[ListedObject], bool]:
    """Return what a folder, which ends in a slash, holds for its captures, and whether more than is looked at.

    Folders in it of other captures are left out, but those of a step or a time, which hold snapshots. Raises
    PortUnavailableError.
    """
    found: list[ListedObject] = []
    looked_at, after = 0, ""
    while True:
        passed, inside = 0, ""
        for each in objects.list(bucket, folder, after):
            if looked_at == MOST_LISTED:
                return found, True
            looked_at += 1
            part, slash, _ = each.key.removeprefix(folder).partition("/")
            if not slash or not is_shared(part) or is_moment(part):
                found.append(each)
                continue
            passed = passed + 1 if part == inside else 1
            inside, behind = part, f"{folder}{part}/{_LAST}"
            if passed >= PASSED_OVER and each.key < behind:
                after = behind
                break
        else:
            return found, False


# So long after its first trace a capture's others are written.
WINDOW_S = 300.0

# Of a capture; those beyond are counted.
MOST_TRACES = 4_096

# 2000: a name's number that is an earlier time is none.
EARLIEST_S = 946_684_800.0


@dataclass(frozen=True, slots=True)
class TraceObject:
    """A trace as S3 lists it; ``at`` is when it was written, epoch seconds, as its name says it, else as S3 does."""

    key: str
    writer: str
    at: float
    modified_at: float
    size: int
    etag: str


@dataclass(frozen=True)
class SnapshotKeys:
    """The newest memory snapshot of each writer of a job, at least one; ``first`` is its oldest one of all.

    ``folder`` is that of the first one. ``replaced`` have a newer one beside them, ``left_out`` are more than are read.
    """

    folder: str
    first: TraceObject
    newest: Sequence[TraceObject]
    replaced: int
    left_out: int = 0

    @cached_property
    def version(self) -> str:
        return _version(self.newest)

    @property
    def at(self) -> float:
        """When S3 had the newest one, epoch seconds."""
        return max(each.at for each in self.newest)


@dataclass(frozen=True)
class Capture:
    """Traces of one window in the order in which they were written; the newest capture also has the job's snapshots.

    Without traces a capture has snapshots.
    """

    folder: str
    traces: Sequence[TraceObject]
    left_out: int = 0
    snapshots: SnapshotKeys | None = None

    @cached_property
    def name(self) -> str:
        """Time of the first trace, and a hash: the same however many ranks come late."""
        first = self.traces[0] if self.snapshots is None or self.traces else self.snapshots.first
        mark = hashlib.sha256(f"{self.folder}\n{first.key}".encode()).hexdigest()[:8]
        return f"{datetime.fromtimestamp(first.at, UTC):%Y%m%dT%H%M%SZ}-{mark}"

    @cached_property
    def version(self) -> str:
        """A hash of the traces: another one when a rank comes late, or a trace is rewritten; empty without traces."""
        return _version(self.traces) if self.traces else ""

    @property
    def at(self) -> float:
        """When its last trace was written, epoch seconds; without traces, its last snapshot."""
        return max((each.at for each in self.traces), default=0.0 if self.snapshots is None else self.snapshots.at)

    @property
    def newest_at(self) -> float:
        """When S3 had the newest of its traces and snapshots, epoch seconds."""
        times = [each.modified_at for each in self.traces]
        return max(times if self.snapshots is None else [*times, self.snapshots.at])


def _version(objects: Iterable[TraceObject]) -> str:
    held = sorted(f"{each.key}\n{each.etag or f'{each.size} {each.modified_at}'}" for each in objects)
    return hashlib.sha256("\n".join(held).encode()).hexdigest()[:16]


def captures_of(root: ProfileRoot, folder: str, listed: Iterable[ListedObject]) -> list[Capture]:
    """Return the captures of a folder (`TraceKey.folder`) of a job, oldest first.

    Traces are taken in the order of their times; a capture has one of each writer, from 300 s at most.
    """
    traces = sorted(_traces(root, folder, listed, of_snapshots=False), key=lambda each: (each.at, each.key))
    found = windows_of([(each, each.writer, each.at) for each in traces], WINDOW_S)
    return [Capture(folder, each[:MOST_TRACES], max(len(each) - MOST_TRACES, 0)) for each in found]


def snapshots_of(root: ProfileRoot, listed: Mapping[str, Sequence[ListedObject]], before: float) -> SnapshotKeys | None:
    """Return the newest snapshots of a job in some folders of it, as if S3 had nothing newer; None without any.

    A rank has one wherever it lies, a writer of no known rank one in each folder.
    """
    found = [
        (folder, each)
        for folder, objects in listed.items()
        for each in _traces(root, folder, objects, of_snapshots=True)
    ]
    found.sort(key=lambda each: (each[1].at, _by_numbers(each[1].key)))
    # Ranks write their snapshots one after another: those of one window count together.
    windows = windows_of([(each, each[1].writer, each[1].at) for each in found], WINDOW_S)
    found = [each for window in windows if window[-1][1].at <= before for each in window]
    newest: dict[str, TraceObject] = {}
    for folder, each in found:
        of_rank = rank_of(each.key.removeprefix(root.folder)) is not None
        newest[each.writer if of_rank else f"{folder}{each.writer}"] = each
    # Of more than are read, the newest count.
    kept = sorted(newest.values(), key=lambda each: each.at)[-MOST_TRACES:]
    if not kept:
        return None
    return SnapshotKeys(*found[0], kept, len(found) - len(newest), len(newest) - len(kept))


def _by_numbers(key: str) -> list[str | int]:
    """Return a key to sort by: step 9 before step 10."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"([0-9]+)", key))]


def captures_at(
    root: ProfileRoot,
    traces: Mapping[str, Sequence[ListedObject]],
    snapshots: Mapping[str, Sequence[ListedObject]],
    before: float,
) -> list[Capture]:
    """Return a job's captures of some folders, oldest first, as if S3 had nothing newer than ``before``.

    The newest one has the job's snapshots; without traces they are a capture of their own.
    """
    found = [each for folder, listed in traces.items() for each in captures_of(root, folder, listed)]
    settled = [each for each in found if max(trace.modified_at for trace in each.traces) <= before]
    settled.sort(key=lambda each: (each.at, each.name))
    held = snapshots_of(root, snapshots, before)
    if held is None:
        return settled
    if not settled:
        return [Capture(held.folder, (), snapshots=held)]
    return [*settled[:-1], replace(settled[-1], snapshots=held)]


def _traces(
    root: ProfileRoot, folder: str, listed: Iterable[ListedObject], *, of_snapshots: bool
) -> Iterator[TraceObject]:
    for each in listed:
        key = match_below(each.key, root)
        if key is not None and key.folder == folder and key.is_snapshot == of_snapshots:
            yield _trace(key, each)


def _trace(key: CaptureTraceKey, listed: ListedObject) -> TraceObject:
    # A name's time is one that lies before the object was there, give or take an hour.
    named, modified_at = key.written_at, listed.last_modified
    return TraceObject(
        key=listed.key,
        writer=key.writer,
        at=named if named is not None and EARLIEST_S <= named <= modified_at + FUTURE_S else modified_at,
        modified_at=modified_at,
        size=listed.size,
        etag=listed.etag,
    )
