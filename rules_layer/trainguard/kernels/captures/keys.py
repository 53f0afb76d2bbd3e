"""Which objects of a bucket are a job's kernel traces, which of them are one capture, and where its files lie."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from trainguard.core.layout import FUTURE_S, JOB_NAME, MAX_KEY_LENGTH, RESULTS_FOLDER, ProfileRoot, root_of
from trainguard.core.ports import ListedObject, ReadableObjects
from trainguard.kernels.times.intervals import windows_of

KERNELS = "kernels"
ALL_RANKS = "all-ranks"
"""The one unit of the stream: rules judge all ranks of a capture together."""

TRACE_FOLDER = "kernel-traces"
TRACE_FOLDERS = (TRACE_FOLDER, "tensorboard-output", "trainer-output", "checkpoints", "profiler-output")
TRACE_ENDINGS = (".pt.trace.json", ".pt.trace.json.gz", ".xplane.pb", ".xplane.pb.gz")
DATABASE_ENDINGS = (".sqlite", ".sqlite.gz")
"""Exports of Nsight Systems: any database ends so, and only those in the first folder are taken for traces."""

TRACE_READS = (
    *(f"*/*{ending}" for ending in TRACE_ENDINGS),
    *(f"*/{TRACE_FOLDER}/*{ending}" for ending in DATABASE_ENDINGS),
)
"""The keys of traces, as IAM writes them: of checkpoints, for example, nothing else."""

DEEPEST = 12
"""Folders between that of the job, or the one of the five, and a trace."""

EXPECTED_KEYS = (
    f"<job>/{{{','.join(TRACE_FOLDERS)}}}/…/*.pt.trace.json, *.xplane.pb, or <job>/{TRACE_FOLDER}/…/*.sqlite, "
    "each with or without .gz; traces of a known job in any of its folders"
)

_MARK = "|".join(TRACE_FOLDERS)
_TRACE = re.compile(
    rf"(?P<prefix>(?:(?!(?:{_MARK})/)[^/]+/)*)(?!(?:{_MARK})/){JOB_NAME}/(?P<mark>{_MARK})/(?P<name>(?:[^/]+/){{0,{DEEPEST}}}[^/]+)"
)
_PATH = re.compile(rf"(?:[^/]+/){{0,{DEEPEST}}}[^/]+")
_UNIT = re.compile(r"(?:[a-z]+[-_])?(?:rank|worker|node|host|algo|gpu|proc|process|device)[-_=]?\d{1,6}", re.IGNORECASE)
_RUN = re.compile(r"\d{4}[-_]\d\d[-_]\d\d[-_T]\d\d[-_]\d\d[-_]\d\d")

_TIMED = re.compile(r"(?P<who>.+)\.(?P<time>\d{13}|\d{16}|\d{19})\.pt\.trace\.json(?:\.gz)?")
"""How `tensorboard_trace_handler` names files: worker, and time in ms, us or ns of the epoch."""

_NAME = re.compile(r"(?P<who>.+?)(?:\.pt\.trace\.json|\.xplane\.pb|\.sqlite)(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class TraceKey:
    """A kernel trace; ``written_at`` is the time in its name, epoch seconds.

    ``folder`` begins the key, slash included: the traces of a capture have the same. A ``writer`` has one trace in it.
    """

    root: ProfileRoot
    folder: str
    writer: str
    written_at: float | None
    node: str = ALL_RANKS
    stream: str = KERNELS
    named_at: float | None = None


def match_key(key: str) -> TraceKey | None:
    match = _TRACE.fullmatch(key) if len(key) <= MAX_KEY_LENGTH else None
    endings = (*TRACE_ENDINGS, *DATABASE_ENDINGS) if match and match["mark"] == TRACE_FOLDER else TRACE_ENDINGS
    if match is None or not match["name"].endswith(endings):
        return None
    root = root_of(match)
    return _read(root, f"{root.folder}{match['mark']}/", match["name"])


def match_below(key: str, root: ProfileRoot) -> TraceKey | None:
    """Read the key of a trace in any folder of a job; None for any other object, and for one that names another job."""
    named = match_key(key)
    if named is not None:
        return named if named.root == root else None
    if not (key.startswith(root.folder) and is_trace_name(key)) or RESULTS_FOLDER in key.split("/"):
        return None
    name = key.removeprefix(root.folder)
    return _read(root, root.folder, name) if _PATH.fullmatch(name) else None


def is_trace_name(key: str) -> bool:
    return len(key) <= MAX_KEY_LENGTH and key.endswith(TRACE_ENDINGS)


def is_shared(part: str) -> bool:
    """Whether traces in folders of different names, such as this, are in different captures."""
    return not (_UNIT.fullmatch(part) or _RUN.fullmatch(part))


def _read(root: ProfileRoot, above: str, name: str) -> TraceKey:
    *parts, file = name.split("/")
    shared = 0
    while shared < len(parts) and is_shared(parts[shared]):
        shared += 1
    timed = _TIMED.fullmatch(file)
    plain = timed or _NAME.fullmatch(file)
    who = file if plain is None else plain["who"]
    return TraceKey(
        root=root,
        folder=above + "".join(f"{part}/" for part in parts[:shared]),
        writer="/".join([*(part for part in parts[shared:] if not _RUN.fullmatch(part)), who]),
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


MOST_LISTED = 50_000
"""Objects of a folder that are looked at; traces behind them are in no capture, which is counted."""

PASSED_OVER = 1_000
"""Objects of a folder in the folder, whose traces are in other captures, that are looked at before it is skipped."""

_LAST = "\U0010ffff"


def listed_folder(objects: ReadableObjects, bucket: str, folder: str) -> tuple[list[ListedObject], bool]:
    """Return what a folder, which ends in a slash, holds for its captures, and whether more than is looked at.

    Folders in it of other captures are left out. Raises PortUnavailableError.
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
            if not slash or not is_shared(part):
                found.append(each)
                continue
            passed = passed + 1 if part == inside else 1
            inside, behind = part, f"{folder}{part}/{_LAST}"
            if passed >= PASSED_OVER and each.key < behind:
                after = behind
                break
        else:
            return found, False


WINDOW_S = 300.0
"""So long after its first trace a capture's others are written."""

MOST_TRACES = 4_096
"""Of a capture; those beyond are counted."""

EARLIEST_S = 946_684_800.0
"""2000: a name's number that is an earlier time is none."""


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
class Capture:
    """Traces of one window, at least one, in the order in which they were written."""

    folder: str
    traces: Sequence[TraceObject]
    left_out: int = 0

    @cached_property
    def name(self) -> str:
        """Time of the first trace, and a hash: the same however many ranks come late."""
        first = self.traces[0]
        mark = hashlib.sha256(f"{self.folder}\n{first.key}".encode()).hexdigest()[:8]
        return f"{datetime.fromtimestamp(first.at, UTC):%Y%m%dT%H%M%SZ}-{mark}"

    @cached_property
    def version(self) -> str:
        """A hash of the traces: another one when a rank comes late, or a trace is rewritten."""
        held = sorted(f"{each.key}\n{each.etag or f'{each.size} {each.modified_at}'}" for each in self.traces)
        return hashlib.sha256("\n".join(held).encode()).hexdigest()[:16]

    @property
    def at(self) -> float:
        """When its last trace was written, epoch seconds."""
        return max(each.at for each in self.traces)

    @property
    def modified_at(self) -> float:
        """When S3 had its newest trace, epoch seconds."""
        return max(each.modified_at for each in self.traces)


def captures_of(root: ProfileRoot, folder: str, listed: Iterable[ListedObject]) -> list[Capture]:
    """Return the captures of a folder (`TraceKey.folder`) of a job, oldest first.

    Traces are taken in the order of their times; a capture has one of each writer, from 300 s at most.
    """
    traces = [trace for each in listed if (trace := _trace(root, folder, each)) is not None]
    traces.sort(key=lambda each: (each.at, each.key))
    found = windows_of([(each, each.writer, each.at) for each in traces], WINDOW_S)
    return [Capture(folder, each[:MOST_TRACES], max(len(each) - MOST_TRACES, 0)) for each in found]


def _trace(root: ProfileRoot, folder: str, listed: ListedObject) -> TraceObject | None:
    key = match_below(listed.key, root)
    if key is None or key.folder != folder:
        return None
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
