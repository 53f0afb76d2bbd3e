"""What is to be read of a capture: its traces as S3 lists them now, and those of them without a digest."""

import msgspec

from trainguard.kernels.captures.digest import FORMAT
from trainguard.kernels.captures.grouping import Capture, captures_of
from trainguard.kernels.captures.listed import listed_folder
from trainguard.kernels.captures.places import DIGESTS, DigestPlace, capture_folder, digest_place, run_folder
from trainguard.kernels.timeline.build import MOST_ROWS
from trainguard.kernels.timeline.ranks import MOST_RANKS
from trainguard.layout import ProfileRoot
from trainguard.ports import ProfileObjects

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
        """Refuse what is no name of an execution or of a capture."""
        run_folder(self.root, self.run)
        capture_folder(self.root, self.capture)

    @property
    def root(self) -> ProfileRoot:
        """Where the job's objects lie."""
        return ProfileRoot.of_job(self.prefix, self.job)


class TraceItem(msgspec.Struct, frozen=True, kw_only=True):
    """A trace to digest; ``rows`` is how many its timeline may have, ``name`` its key below the capture's folder."""

    job: str
    bucket: str
    prefix: str
    key: str
    name: str
    etag: str
    rows: int

    @property
    def place(self) -> DigestPlace:
        """Where its digests lie."""
        return digest_place(ProfileRoot.of_job(self.prefix, self.job), self.key, self.etag, self.rows, FORMAT)


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


class CapturePlanner:
    """Plans the digests of captures."""

    def __init__(self, *, objects: ProfileObjects) -> None:
        self._objects = objects

    def plan(self, call: CaptureCall) -> PlannedCapture:
        """Write the list of a capture's traces, and that of those without a digest.

        Raises
        ------
        PortUnavailableError
            When S3 did not answer.
        ValueError
            When the run's name is none.
        """
        place = run_folder(call.root, call.run)
        capture = self._capture(call)
        items = [] if capture is None else self._items(call, capture)
        planned = PlannedTraces(
            version="" if capture is None else capture.version,
            at=0.0 if capture is None else capture.at,
            left_out=0 if capture is None else capture.left_out,
            items=items,
        )
        self._objects.put(call.bucket, place + TRACES, msgspec.json.encode(planned), LISTS_TYPE)
        digests = {each.key for each in self._objects.list(call.bucket, call.root.report + DIGESTS, "")}
        missing = [item for item in items if item.place.brief not in digests]
        self._objects.put(call.bucket, place + ITEMS, msgspec.json.encode(missing), LISTS_TYPE)
        few = missing if len(missing) <= INLINE_ITEMS else []
        return PlannedCapture(bucket=call.bucket, key=place + ITEMS, count=len(missing), items=few)

    def _capture(self, call: CaptureCall) -> Capture | None:
        """Return the capture as it is now; None where its traces are gone."""
        listed = listed_folder(self._objects, call.bucket, call.folder).objects
        return next((each for each in captures_of(call.root, call.folder, listed) if each.name == call.capture), None)

    @staticmethod
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
    """Return how many rows of the timeline a trace may have: in few sizes, so that a late rank leaves most as it is."""
    shares = 1
    while shares < min(traces, MOST_RANKS):
        shares *= 2
    return MOST_ROWS // shares
