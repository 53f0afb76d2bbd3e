"""What a full report has to read: the nodes and days of a job, on one axis of time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from trainguard.core.errors import StateGoneError, UnknownJobError
from trainguard.core.layout import hour_folder
from trainguard.core.ports import ProfileObjects
from trainguard.core.records import JobRecord, StreamRecord
from trainguard.core.stores import Jobs, NodeStates
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.family import ProfilerStreams
from trainguard.engine.streams.job_streams import JobStreams
from trainguard.engine.streams.session import items_of
from trainguard.engine.training.family import TrainingStreams
from trainguard.engine.training.scalar_files import ScalarState
from trainguard.engine.training.stream import SCALARS, TRAINING, scalar_names
from trainguard.formats.tensors.debug.keys import ALL_WORKERS
from trainguard.report.timeline.series import TimeAxis, axis_for, job_span
from trainguard.report.training.predictions import CONFUSION, names_of
from trainguard.stack.report.keys import FEWEST_NODES, DayLists, Listing
from trainguard.stack.report.parts import DAY_S, READING_S, DigestItem, RunPlace, encode_items

# As many items as an inline Map runs at once; of more, a Distributed Map reads the list itself.
INLINE_ITEMS = 40

_ITEMS_TYPE = "application/json"


class PlanCall(msgspec.Struct, frozen=True):
    """The job to plan a report of, the execution, and how far an earlier call has listed its objects."""

    job: str
    run: str
    listing: Listing | None = None


@dataclass(frozen=True, slots=True)
class PlannedReport:
    """Number of items, their list's place, and few items themselves; with ``more`` call again with ``listing``."""

    bucket: str
    key: str
    count: int
    items: tuple[DigestItem, ...]
    more: bool = False
    listing: Listing | None = None


@dataclass(frozen=True, slots=True)
class ReportPlanner:
    """Plans full reports."""

    jobs: Jobs
    nodes: NodeStates
    objects: ProfileObjects

    def plan(
        self,
        name: str,
        run: str,
        *,
        now: float,
        has_time: Callable[[], bool] = lambda: True,
        listing: Listing | None = None,
    ) -> PlannedReport:
        """Write the items for ``run``, or return a ``listing`` to go on with; UnknownJobError, StateGoneError."""
        job = self.jobs.load(name)
        if job is None:
            raise UnknownJobError(name)
        place = RunPlace(job.root, run)
        records = items_of(job, self.nodes)
        require_state(job, records)
        rules = FAMILIES.plan(job)
        opened = FAMILIES.open(name, rules, records)
        streams = ProfilerStreams.of(opened)
        begun = Listing(began=now) if listing is None else listing
        until = begun.began + READING_S
        items = self._items(job, streams, rules.interval_s, run=run, until=until)
        items, left = self._listed(job, place, items, begun, has_time)
        if left is not None:
            return PlannedReport(job.bucket, place.items, 0, (), more=True, listing=left)
        tensors, scalars = has_steps(opened, TRAINING), has_steps(opened, SCALARS)
        if tensors or scalars:
            item = training_item(job, rules, run, until=until)
            states = scalar_states(opened)
            runs = {name: step for state in states for name, step in state.other_runs.items()}
            segments = {source: found for state in states for source, found in state.segments.items()}
            item = msgspec.structs.replace(item, other_runs=runs, segments=segments)
            items.append(msgspec.structs.replace(item, debug_output=tensors, scalars=scalars))
        self.objects.put(job.bucket, place.items, encode_items(items), _ITEMS_TYPE)
        few = tuple(items) if len(items) <= INLINE_ITEMS else ()
        return PlannedReport(job.bucket, place.items, len(items), few)

    def _items(
        self, job: JobRecord, streams: ProfilerStreams, configured_s: float, *, run: str, until: float
    ) -> list[DigestItem]:
        span = covered(job, streams)
        if span is None:
            return []
        gpus = sum(len(stream.state.gpu_names) for stream in streams.system.values())
        nodes = sorted(streams.nodes)
        intervals = [stream.state.interval_s for stream in streams.system.values()]
        interval_s = max((each for each in intervals if each is not None), default=configured_s)
        axis = axis_for(*span, gpus, len(nodes), interval_s=interval_s)
        days = self._days(job, *span)
        any_item = DigestItem(
            job=job.job, bucket=job.bucket, prefix=job.prefix, run=run, node="", day=0, axis=axis, until=until
        )
        return [msgspec.structs.replace(any_item, node=node, day=day) for node in nodes for day in days]

    def _listed(
        self, job: JobRecord, place: RunPlace, items: list[DigestItem], begun: Listing, has_time: Callable[[], bool]
    ) -> tuple[list[DigestItem], Listing | None]:
        """List the days for all nodes; return the items with what was listed, and what another call goes on with."""
        nodes = sorted({item.node for item in items})
        if len(nodes) < FEWEST_NODES:
            return items, None
        days = sorted({item.day for item in items})
        writer = DayLists(self.objects, job.bucket, job.root, place, nodes, has_time)
        listing, more = writer.write(days, begun)
        if more:
            return [], listing
        lists = dict(listing.lists)
        return [
            msgspec.structs.replace(item, listed=item.day in lists, lists=lists.get(item.day, 1)) for item in items
        ], None

    def _days(self, job: JobRecord, start: float, end: float) -> list[int]:
        """Return the first seconds of the days in the span that have folders."""
        hours: set[str] = set()
        root = job.root
        for prefix in (root.system, root.framework, root.tensorflow):
            hours.update(self.objects.folders(job.bucket, prefix))
        days = range(int(start // DAY_S) * DAY_S, int(end) + 1, DAY_S)
        dates = {hour[:8] for hour in hours}
        # A folder's hour is within a day of its objects' times: a trace has a time zone.
        return [day for day in days if dates & {hour_folder(max(day + near, 0))[:8] for near in (-DAY_S, 0, DAY_S)}]


def has_steps(streams: JobStreams, name: str) -> bool:
    """Whether complete steps of a stream of training, debug-output or files of scalars, were judged."""
    family = streams.families.get(TRAINING)
    of_steps = family.of_steps if isinstance(family, TrainingStreams) else {}
    return any(key.stream == name and stream.state.steps for key, stream in of_steps.items())


def scalar_states(streams: JobStreams) -> list[ScalarState]:
    family = streams.families.get(TRAINING)
    of_steps = family.of_steps.values() if isinstance(family, TrainingStreams) else ()
    return [stream.state for stream in of_steps if isinstance(stream.state, ScalarState)]


def training_item(job: JobRecord, rules: RulePlan, run: str, *, until: float) -> DigestItem:
    """Return the item of a job's debug-output and files of scalars, which has no axis of time."""
    confusion = rules.parameters.get(CONFUSION)
    none = TimeAxis(start=0.0, bucket_s=1.0, buckets=0)
    return DigestItem(
        job=job.job,
        bucket=job.bucket,
        prefix=job.prefix,
        run=run,
        node=ALL_WORKERS,
        day=0,
        axis=none,
        until=until,
        tensors=True,
        confusion={} if confusion is None else names_of(confusion.in_force()),
        scalar_names=dict(scalar_names(rules).replaced),
    )


def require_state(job: JobRecord, records: Sequence[StreamRecord]) -> None:
    """Raise StateGoneError when a job of which objects were seen has no item of a node."""
    if job.last_object_at is not None and all(record.key.stream == "job" for record in records):
        raise StateGoneError(job.job)


def covered(job: JobRecord, streams: ProfilerStreams) -> tuple[float, float] | None:
    """Return what `job_span` does; None without data."""
    through = streams.watermark_s
    if through is None:
        return None
    firsts = [first for first in (streams.first_at, streams.first_step_at) if first]
    return job_span(job, [*firsts, through], [through])
