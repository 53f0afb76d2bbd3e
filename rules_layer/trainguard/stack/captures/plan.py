"""The traces and snapshots of a capture as S3 lists them now, and those of them without a digest."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ListedObject, ProfileObjects
from trainguard.kernels.captures.digest import FORMAT
from trainguard.kernels.captures.keys import (
    DIGESTS,
    TraceObject,
    capture_folder,
    captures_of,
    digest_key,
    listed_folder,
    run_folder,
    snapshots_of,
)
from trainguard.kernels.timeline.build import MOST_RANKS, MOST_ROWS

# As many items as an inline Map runs at once; of more, a Distributed Map reads the list itself.
INLINE_ITEMS = 40

LISTS_TYPE = "application/json"
TRACES, ITEMS = "traces.json", "items.json"


class CaptureCall(msgspec.Struct, frozen=True, kw_only=True):
    """The input of an execution: which capture of which job it judges.

    ``snapshots`` are folders with memory snapshots that it judges, too: those that S3 had ``before``.
    """

    job: str
    bucket: str
    prefix: str
    generation: int
    run: str
    capture: str
    folder: str
    snapshots: list[str] = []
    before: float | None = None

    def __post_init__(self) -> None:
        run_folder(self.root, self.run)
        capture_folder(self.root, self.capture)

    @property
    def root(self) -> ProfileRoot:
        return ProfileRoot.of_job(self.prefix, self.job)


class TraceItem(msgspec.Struct, frozen=True, kw_only=True):
    """A trace or snapshot to digest; ``rows`` is the limit of its timeline, ``name`` its key below its folder."""

    job: str
    bucket: str
    prefix: str
    key: str
    name: str
    etag: str
    rows: int
    is_snapshot: bool = False

    def digest(self, form: Literal["brief", "full"]) -> str:
        """Return the key of one of its digests: another one for another trace, limit, or version of the form."""
        trace = f"{self.key}\n{self.etag}\n{self.rows}\n{FORMAT}"
        return digest_key(ProfileRoot.of_job(self.prefix, self.job), trace, form)


class PlannedTraces(msgspec.Struct, frozen=True, kw_only=True):
    """Traces, or ``snapshots`` as `trainguard.kernels.captures.keys.Snapshots` describes them, when they were planned.

    The last one was written ``at`` epoch seconds.
    """

    version: str = ""
    at: float = 0.0
    left_out: int = 0
    replaced: int = 0
    items: list[TraceItem] = []
    snapshots: "PlannedTraces | None" = None


class PlannedCapture(msgspec.Struct, frozen=True, kw_only=True):
    """How many traces have no digest, where their list lies, and the items where they are few."""

    bucket: str
    key: str
    count: int
    items: list[TraceItem]


def plan_capture(objects: ProfileObjects, call: CaptureCall) -> PlannedCapture:
    """Write the lists of a capture's traces, and of those without digest; raises PortUnavailableError, ValueError."""
    place = run_folder(call.root, call.run)
    folders = dict.fromkeys((call.folder, *call.snapshots))
    listed = {folder: listed_folder(objects, call.bucket, folder)[0] for folder in folders}
    of_traces = captures_of(call.root, call.folder, listed[call.folder])
    # None where its traces are gone, and of snapshots alone.
    capture = next((each for each in of_traces if each.name == call.capture), None)
    snapshots = _snapshots(call, listed) if call.snapshots else None
    if capture is None:
        planned = PlannedTraces(at=0.0 if snapshots is None else snapshots.at, snapshots=snapshots)
    else:
        planned = PlannedTraces(
            version=capture.version,
            at=capture.at,
            left_out=capture.left_out,
            items=_items(call, capture.traces, capture.folder, _rows(len(capture.traces))),
            snapshots=snapshots,
        )
    objects.put(call.bucket, place + TRACES, msgspec.json.encode(planned), LISTS_TYPE)
    digests = {each.key for each in objects.list(call.bucket, call.root.report + DIGESTS, "")}
    items = [*planned.items, *([] if snapshots is None else snapshots.items)]
    missing = [item for item in items if item.digest("brief") not in digests]
    objects.put(call.bucket, place + ITEMS, msgspec.json.encode(missing), LISTS_TYPE)
    few = missing if len(missing) <= INLINE_ITEMS else []
    return PlannedCapture(bucket=call.bucket, key=place + ITEMS, count=len(missing), items=few)


def _snapshots(call: CaptureCall, listed: Mapping[str, Sequence[ListedObject]]) -> PlannedTraces:
    before = math.inf if call.before is None else call.before
    found = snapshots_of(call.root, {folder: listed[folder] for folder in call.snapshots}, before)
    if found is None:
        return PlannedTraces()
    return PlannedTraces(
        version=found.version,
        at=found.at,
        left_out=found.left_out,
        replaced=found.replaced,
        items=_items(call, found.newest, call.root.folder, 0),
    )


def _items(call: CaptureCall, traces: Sequence[TraceObject], folder: str, rows: int) -> list[TraceItem]:
    """Return traces with their names below a folder; those without a timeline, of no ``rows``, are snapshots."""
    return [
        TraceItem(
            job=call.job,
            bucket=call.bucket,
            prefix=call.prefix,
            key=trace.key,
            name=trace.key.removeprefix(folder),
            etag=trace.etag,
            rows=rows,
            is_snapshot=not rows,
        )
        for trace in sorted(traces, key=lambda each: each.key)
    ]


def _rows(traces: int) -> int:
    """Return the rows of a trace's timeline: few sizes, so that a late rank leaves most as it is."""
    shares = 1
    while shares < min(traces, MOST_RANKS):
        shares *= 2
    return MOST_ROWS // shares
