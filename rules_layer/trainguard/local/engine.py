"""The rules over a whole profile: the evaluator's streams, order and schedule, on one parse and without stores.

Each object gets the run by which the deployed stack would have applied it: a minute at once when it follows the one
before, after a gap once its node is two minutes further on, a framework object two to three minutes later, and what
waits of a silent node after five minutes.

It leaves the items that the deployed stack would hold at the job's end: verdicts and reports come from the same
functions.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from trainguard.core.records import JobRecord, NodeRecord, RuleRow, StreamKey
from trainguard.engine.diagnosis.case import assess, case_of
from trainguard.engine.installed import FAMILIES
from trainguard.engine.ordering.grid_order import GridOrder
from trainguard.engine.ordering.partition_order import PartitionOrder
from trainguard.engine.outbox import rule_row, unit_context
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.family import PROFILER
from trainguard.engine.profiler.framework_session import FRAMEWORK_EXTENTS, FrameworkSession
from trainguard.engine.profiler.listing import ProfileListing
from trainguard.engine.profiler.system_session import SystemSession
from trainguard.engine.streams.job_streams import JobState, JobStreams
from trainguard.engine.streams.session import NEWEST, SILENT_S, Applied, Parsed
from trainguard.engine.summary import job_context, job_rows
from trainguard.engine.verdicts.verdict import Fire, final
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.keys import MINUTE_S, SystemKey
from trainguard.formats.profile.system import Samples
from trainguard.local.pool import BodiesAhead, SamplesAhead, Unreadable, WorkerPool
from trainguard.local.profile import Node, Profile, node_objects
from trainguard.state.codec import CODEC, encode_state

if TYPE_CHECKING:
    from trainguard.local.training import RuleSteps
    from trainguard.report.timeline.digest import NodeDigest
    from trainguard.report.training.digest import TrainingDigest

_SECOND_US = 1_000_000
_MINUTE_US = MINUTE_S * _SECOND_US
_UPLOAD_US = _SECOND_US


@dataclass(slots=True)
class Due:
    """What becomes ready by one run: keys by node, minutes in order of time, framework objects of (time, key)."""

    minutes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    framework: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def streams(self) -> Iterator[tuple[str, str]]:
        """Yield node and stream of each object, in the order in which the objects are applied."""
        for stream, nodes in (("system", self.minutes), ("framework", self.framework)):
            for node, keys in nodes.items():
                yield from ((node, stream) for _ in keys)


@dataclass(frozen=True, slots=True)
class Schedule:
    """``runs`` in order of time, and what is ``left`` for the end."""

    runs: tuple[Due, ...]
    left: Due

    def steps(self) -> Iterator[tuple[Due, bool]]:
        """Yield what to apply, and whether the scheduler comes after it."""
        for due in self.runs:
            yield due, True
        yield self.left, False

    def minutes(self, profile: Profile) -> list[tuple[str, SystemKey]]:
        """Return the system objects in the order in which they are applied."""
        return [
            (key, profile.nodes[node].minutes[key])
            for due, _ in self.steps()
            for node, keys in due.minutes.items()
            for key in keys
        ]

    def framework(self) -> list[str]:
        """Return the keys of the framework objects in the order in which they are applied."""
        return [key for due, _ in self.steps() for keys in due.framework.values() for key in keys]


def schedule(profile: Profile) -> Schedule:
    planned = {name: (list(_minutes(node)), list(_framework(node))) for name, node in profile.nodes.items()}
    last = max((_last_run(node) for node in profile.nodes.values()), default=0)
    runs: defaultdict[int, Due] = defaultdict(Due)
    left = Due()
    for name, (minutes, framework) in planned.items():
        for key, run_at in minutes:
            (runs[run_at] if run_at <= last else left).minutes[name].append(key)
        for key, run_at in framework:
            (runs[run_at] if run_at <= last else left).framework[name].append(key)
    return Schedule(tuple(runs[run_at] for run_at in sorted(runs)), left)


def _minutes(node: Node) -> Iterator[tuple[str, int]]:
    order = GridOrder()
    keys = sorted(node.minutes, key=lambda each: node.minutes[each].minute)
    return _applied(
        [(key, (node.minutes[key].minute + MINUTE_S) * _SECOND_US + _UPLOAD_US) for key in keys],
        lambda key: order.announce(key, node.minutes[key].minute),
        lambda drain: [key for _, key in order.ready(lambda _: (), drain=drain)],
    )


def _framework(node: Node) -> Iterator[tuple[str, int]]:
    order = PartitionOrder(FRAMEWORK_EXTENTS)
    keys = sorted(node.framework, key=lambda each: (node.framework[each].end_us, each))
    return _applied(
        [(key, node.framework[key].end_us + _UPLOAD_US) for key in keys],
        lambda key: order.announce(key, node.framework[key]),
        lambda drain: [arrival.key for arrival in order.ready(lambda *_: (), drain=drain)],
    )


def _applied(
    arrivals: Iterable[tuple[str, int]], announce: Callable[[str], object], ready: Callable[[bool], list[str]]
) -> Iterator[tuple[str, int]]:
    """Yield keys with the run, epoch seconds, that applies them; ``arrivals`` are in order, with epoch microseconds."""
    flush: int | None = None
    for key, arrival_us in arrivals:
        if flush is not None and arrival_us > flush * _SECOND_US:
            yield from ((each, flush + MINUTE_S) for each in ready(True))
        announce(key)
        run_at = _run_after(arrival_us)
        yield from ((each, run_at) for each in ready(False))
        flush = run_at + int(SILENT_S)  # where nothing more comes of the node
    if flush is not None:
        yield from ((each, flush + MINUTE_S) for each in ready(True))


def _last_run(node: Node) -> int:
    minutes = [(parsed.minute + MINUTE_S) * _SECOND_US for parsed in node.minutes.values()]
    framework = [parsed.end_us for parsed in node.framework.values()]
    return _run_after(max([*minutes, *framework]) + _UPLOAD_US)


def _run_after(arrival_us: int) -> int:
    """Return epoch seconds of the scheduler's first run after an object came."""
    return -(-arrival_us // _MINUTE_US) * MINUTE_S


AnySession = SystemSession | FrameworkSession


class ObjectListener(Protocol):
    """Is shown each object that could be read, once, in the order in which it is applied."""

    def samples(self, node: str, samples: Samples) -> None:
        """Take one object of system metrics."""
        ...

    def events(self, node: str, events: FrameworkEvents) -> None:
        """Take one framework object."""
        ...


def _open_session(
    record: NodeRecord,
    profile: Profile,
    plan: RulePlan,
    samples: SamplesAhead,
    bodies: BodiesAhead,
    tap: ObjectListener | None,
) -> AnySession:
    node = record.key.node
    objects = node_objects(profile, node, bodies.read)
    listing = ProfileListing(objects=objects, bucket=profile.source.place, root=profile.root, node=node)
    if record.key.stream == "system":
        return _ParsedSystemSession(record, listing, plan, samples, tap)
    return (
        FrameworkSession(record, listing, plan) if tap is None else _TappedFrameworkSession(record, listing, plan, tap)
    )


class _ParsedSystemSession(SystemSession):
    def __init__(
        self,
        record: NodeRecord,
        listing: ProfileListing,
        plan: RulePlan,
        samples: SamplesAhead,
        tap: ObjectListener | None,
    ) -> None:
        super().__init__(record, listing, plan)
        self._samples = samples
        self._tap = tap

    def _use(
        self, key: str, read: Callable[[bytes], Parsed], fold: Callable[[Parsed], tuple[Counter[str], list[Fire]]]
    ) -> Applied:
        del read  # the samples come parsed
        outcome: Any = self._samples.take(key)

        def parsed(_: bytes) -> Any:
            if isinstance(outcome, Unreadable):
                raise outcome.error(key)
            return outcome

        return super()._use(key, parsed, fold)

    def _fold(self, samples: Samples) -> tuple[Counter[str], list[Fire]]:
        if self._tap is not None:
            self._tap.samples(self.record.key.node, samples)
        return super()._fold(samples)


class _TappedFrameworkSession(FrameworkSession):
    def __init__(self, record: NodeRecord, listing: ProfileListing, plan: RulePlan, tap: ObjectListener) -> None:
        super().__init__(record, listing, plan)
        self._tap = tap

    def _fold(self, end_us: int, events: FrameworkEvents) -> tuple[Counter[str], list[Fire]]:
        self._tap.events(self.record.key.node, events)
        return super()._fold(end_us, events)


Watcher = Callable[[int, float | None], None]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A job that was evaluated, and its items as the deployed stack holds them at the job's end.

    ``digests`` are its time lines by node, ``streams`` what each rule of training found, ``shown`` what a report shows
    of the training, as far as there is any; notes are what people have to know beside the verdicts, a sentence each.
    """

    job: JobRecord
    plan: RulePlan
    records: tuple[NodeRecord, ...]
    digests: "tuple[NodeDigest, ...]" = ()
    streams: "tuple[Sequence[RuleSteps], ...]" = ()
    shown: "TrainingDigest | None" = None
    training_notes: tuple[str, ...] = ()
    kernel_notes: tuple[str, ...] = ()


def evaluate_profile(
    job: JobRecord,
    plan: RulePlan,
    profile: Profile,
    pool: WorkerPool,
    watch: Watcher | None = None,
    *,
    tap: ObjectListener | None = None,
) -> Evaluation:
    """Evaluate a job that has ended, by the ``documented`` reading; ``tap`` is shown what the objects hold.

    Raises PortUnavailableError when the source did not answer; WorkerDiedError when a parsing process ended without an
    answer.
    """
    # Job and plan share the episodes, so that the scheduler can raise them.
    episodes = dict(job.episodes)
    job, plan = replace(job, episodes=episodes), replace(plan, episodes=episodes)
    planned = schedule(profile)
    samples = SamplesAhead(profile, planned.minutes(profile), pool)
    bodies = BodiesAhead(profile.source, [profile.files[key] for key in planned.framework()])
    running: dict[StreamKey, tuple[AnySession, Iterator[Applied]]] = {}
    records: dict[StreamKey, NodeRecord] = {}
    own, state = NodeRecord(StreamKey.own(job.job)), JobState()

    def stream(key: StreamKey) -> tuple[AnySession, Iterator[Applied]]:
        if key not in running:
            records[key] = NodeRecord(key, cursors={NEWEST: 0})
            session = _open_session(NodeRecord(key), profile, plan, samples, bodies, tap)
            running[key] = session, session.apply(drain=True, modified_before=None)
        return running[key]

    def run_scheduler() -> None:
        """Evaluate the job as the scheduler does, and raise the numbers of the episodes that end."""
        streams = {key: session.stream for key, (session, _) in running.items()}
        family = PROFILER.streams_of({key: records[key] for key in streams}, streams)
        known = JobStreams(families={PROFILER.name: family}, records=records, job_item=own, state=state)
        for rule, episode in assess(job, plan, known).ended.items():
            episodes[rule] = episode + 1

    for due, runs in planned.steps():
        for node, name in due.streams():
            session, objects = stream(StreamKey(job.job, node, name))
            applied = next(objects)
            if watch is not None:
                watch(profile.size_of(applied.key), session.stream.state.watermark_s)
        if runs:
            run_scheduler()
    for key in FAMILIES.expected(job, set(running)):
        stream(key)
    items = sorted(
        (session.to_record(closed=True) for session, _ in running.values()), key=lambda item: item.key.node_kind
    )
    last = replace(own, version=1, state=encode_state(state), codec=CODEC)
    return Evaluation(replace(job, closing=True), plan, (*items, last))


def evaluation_rows(evaluation: Evaluation, *, expires_at: int) -> list[RuleRow]:
    """Return the rows of every node, then those of the whole job; ``expires_at`` is in epoch seconds."""
    job, plan = evaluation.job, evaluation.plan
    streams = FAMILIES.open(job.job, plan, evaluation.records)
    rows = [row for key in streams.records for row in _node_rows(evaluation, streams, key, expires_at)]
    case, _ = case_of(job, plan, streams)
    return [*rows, *job_rows(job_context(case, expires_at), case)]


def _node_rows(evaluation: Evaluation, streams: JobStreams, key: StreamKey, expires_at: int) -> list[RuleRow]:
    job, plan = evaluation.job, evaluation.plan
    stream = streams.stream_of(key)
    context = unit_context(job, plan, streams.records[key], stream, expires_at)
    verdicts = [final(verdict, context.watermark_s) for verdict in stream.verdicts(closed=True)]
    return [rule_row(context, verdict) for verdict in verdicts]
