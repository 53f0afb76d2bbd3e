"""The traces of a folder, as S3 lists them, to captures: what the ranks of a job recorded in one window."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from trainguard.core.layout import FUTURE_S, ProfileRoot
from trainguard.core.ports import ListedObject, ProfileObjects
from trainguard.kernels.captures.keys import is_shared, match_below

MOST_LISTED = 50_000
"""Objects of a folder that are looked at; traces behind them are in no capture, which is counted."""

PASSED_OVER = 1_000
"""Objects of a folder in the folder, whose traces are in other captures, that are looked at before it is skipped."""

_LAST = "\U0010ffff"


def listed_folder(objects: ProfileObjects, bucket: str, folder: str) -> tuple[list[ListedObject], bool]:
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

    Traces are taken in the order of their times. Each joins the first capture that began at most 300 s before it, that
    has none of its writer, and that is later than the writer's last one; where there is none, it begins another.
    """
    traces = [trace for each in listed if (trace := _trace(root, folder, each)) is not None]
    found: list[list[TraceObject]] = []
    last: dict[str, int] = {}
    begin = 0
    for trace in sorted(traces, key=lambda each: (each.at, each.key)):
        while begin < len(found) and found[begin][0].at < trace.at - WINDOW_S:
            begin += 1
        place = max(begin, last.get(trace.writer, -1) + 1)
        if place >= len(found):
            found.append([])
            place = len(found) - 1
        found[place].append(trace)
        last[trace.writer] = place
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
