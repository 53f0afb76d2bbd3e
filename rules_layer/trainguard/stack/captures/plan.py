"""The traces of a capture as S3 lists them now, and those of them without a digest."""

from typing import Literal

import msgspec

from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ProfileObjects
from trainguard.kernels.captures.digest import FORMAT
from trainguard.kernels.captures.keys import (
    DIGESTS,
    Capture,
    capture_folder,
    captures_of,
    digest_key,
    listed_folder,
    run_folder,
)
from trainguard.kernels.timeline.build import MOST_RANKS, MOST_ROWS

INLINE_ITEMS = 40
"""As many items as an inline Map runs at once; of more, a Distributed Map reads the list itself."""

LISTS_TYPE = "application/json"
TRACES, ITEMS = "traces.json", "items.json"


class CaptureCall(msgspec.Struct, frozen=True, kw_only=True):
    """The input of an execution: which capture of which job it judges."""

    job: str
    bucket: str
    prefix: str
    generation: int
    run: str
    capture: str
    folder: str

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid name of an execution or of a capture."""
        run_folder(self.root, self.run)
        capture_folder(self.root, self.capture)

    @property
    def root(self) -> ProfileRoot:
        return ProfileRoot.of_job(self.prefix, self.job)


class TraceItem(msgspec.Struct, frozen=True, kw_only=True):
    """A trace to digest; ``rows`` is the limit of its timeline, ``name`` its key below the capture's folder."""

    job: str
    bucket: str
    prefix: str
    key: str
    name: str
    etag: str
    rows: int

    def digest(self, form: Literal["brief", "full"]) -> str:
        """Return the key of one of its digests: another one for another trace, limit, or version of the form."""
        trace = f"{self.key}\n{self.etag}\n{self.rows}\n{FORMAT}"
        return digest_key(ProfileRoot.of_job(self.prefix, self.job), trace, form)


class PlannedTraces(msgspec.Struct, frozen=True, kw_only=True):
    """A capture as it was when it was planned; ``at`` is when its last trace was written, epoch seconds."""

    version: str
    at: float
    left_out: int
    items: list[TraceItem]


class PlannedCapture(msgspec.Struct, frozen=True, kw_only=True):
    """How many traces have no digest, where their list lies, and the items where they are few."""

    bucket: str
    key: str
    count: int
    items: list[TraceItem]


def plan_capture(objects: ProfileObjects, call: CaptureCall) -> PlannedCapture:
    """Write the lists of a capture's traces, and of those without digest; raises PortUnavailableError, ValueError."""
    place = run_folder(call.root, call.run)
    listed, _ = listed_folder(objects, call.bucket, call.folder)
    # None where its traces are gone.
    capture = next((each for each in captures_of(call.root, call.folder, listed) if each.name == call.capture), None)
    items = [] if capture is None else _items(call, capture)
    planned = PlannedTraces(
        version="" if capture is None else capture.version,
        at=0.0 if capture is None else capture.at,
        left_out=0 if capture is None else capture.left_out,
        items=items,
    )
    objects.put(call.bucket, place + TRACES, msgspec.json.encode(planned), LISTS_TYPE)
    digests = {each.key for each in objects.list(call.bucket, call.root.report + DIGESTS, "")}
    missing = [item for item in items if item.digest("brief") not in digests]
    objects.put(call.bucket, place + ITEMS, msgspec.json.encode(missing), LISTS_TYPE)
    few = missing if len(missing) <= INLINE_ITEMS else []
    return PlannedCapture(bucket=call.bucket, key=place + ITEMS, count=len(missing), items=few)


def _items(call: CaptureCall, capture: Capture) -> list[TraceItem]:
    rows = _rows(len(capture.traces))
    return [
        TraceItem(
            job=call.job,
            bucket=call.bucket,
            prefix=call.prefix,
            key=trace.key,
            name=trace.key.removeprefix(capture.folder),
            etag=trace.etag,
            rows=rows,
        )
        for trace in sorted(capture.traces, key=lambda each: each.key)
    ]


def _rows(traces: int) -> int:
    """Return the rows of a trace's timeline: few sizes, so that a late rank leaves most as it is."""
    shares = 1
    while shares < min(traces, MOST_RANKS):
        shares *= 2
    return MOST_ROWS // shares
