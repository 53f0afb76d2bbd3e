"""The rules over a whole profile: the evaluator's streams, order and schedule, on one parse and without stores.

Each object gets the run by which the deployed stack would have applied it: a minute at once when it follows the one
before, after a gap once its node is two minutes further on, a framework object two to three minutes later, and what
waits of a silent node after five minutes.

It leaves the items that the deployed stack would hold at the job's end: verdicts and reports come from the same
functions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from trainguard.core.records import JobRecord, RuleRow, StreamKey, StreamRecord
from trainguard.engine.diagnosis.case import case_of, ended_episodes
from trainguard.engine.installed import FAMILIES
from trainguard.engine.ordering.grid_order import GridOrder
from trainguard.engine.ordering.partition_order import PartitionOrder
from trainguard.engine.outbox import rule_row, unit_context
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.family import PROFILER
from trainguard.engine.profiler.framework_session import FrameworkSession
from trainguard.engine.profiler.system_stream import SystemSession
from trainguard.engine.streams.job_streams import JobState, JobStreams
from trainguard.engine.streams.session import NEWEST, STREAM_SILENT_S, Applied
from trainguard.engine.summary import job_context, job_rows
from trainguard.engine.verdicts.verdict import final
from trainguard.formats.profile.keys import MINUTE_S, FrameworkKey, SystemKey
from trainguard.local.pool import BodiesAhead, SamplesAhead, WorkerPool
from trainguard.local.profile import Node, Profile, ReadFaults, node_source
from trainguard.rules.rule_inputs import KnownHang
from trainguard.state.codec import CODEC, encode_state

if TYPE_CHECKING:
    from trainguard.local.training import RuleSteps
    from trainguard.report.timeline.digest import NodeDigest, NodeDigests
    from trainguard.report.training.digest import TrainingDigest

_SECOND_US = 1_000_000
_MINUTE_US = MINUTE_S * _SECOND_US
_UPLOAD_US = _SECOND_US


# An object's key, and what it says.
Planned = tuple[str, SystemKey | FrameworkKey]


def schedule(profile: Profile) -> list[list[Planned]]:
    """Return the objects that each run of the scheduler finds ready, then those that are left for the job's end."""
    last = max((_last_run(node) for node in profile.nodes.values()), default=0)
    runs: defaultdict[int, list[Planned]] = defaultdict(list)
    left: list[Planned] = []
    for ready in (_minutes, _framework):
        for node in profile.nodes.values():
            for planned, run_at in ready(node):
                (runs[run_at] if run_at <= last else left).append(planned)
    return [*(runs[run_at] for run_at in sorted(runs)), left]


def by_stream(
    planned: Iterable[Sequence[Planned]],
) -> tuple[list[tuple[str, SystemKey]], list[tuple[str, FrameworkKey]]]:
    """Return the system objects, and the framework objects, in the order in which they are applied."""
    objects = list(chain.from_iterable(planned))
    return (
        [(key, parsed) for key, parsed in objects if isinstance(parsed, SystemKey)],
        [(key, parsed) for key, parsed in objects if isinstance(parsed, FrameworkKey)],
    )


def _minutes(node: Node) -> Iterator[tuple[Planned, int]]:
    order = GridOrder()
    keys = sorted(node.minutes, key=lambda each: node.minutes[each].minute)
    applied = _applied(
        [(key, (node.minutes[key].minute + MINUTE_S) * _SECOND_US + _UPLOAD_US) for key in keys],
        lambda key: order.announce(key, node.minutes[key].minute),
        lambda drain: [key for _, key in order.ready(lambda _: (), drain=drain)],
    )
    return (((key, node.minutes[key]), run_at) for key, run_at in applied)


def _framework(node: Node) -> Iterator[tuple[Planned, int]]:
    order = PartitionOrder()
    keys = sorted(node.framework, key=lambda each: (node.framework[each].end_us, each))
    applied = _applied(
        [(key, node.framework[key].end_us + _UPLOAD_US) for key in keys],
        lambda key: order.announce(key, node.framework[key]),
        lambda drain: [arrival.key for arrival in order.ready(lambda *_: (), drain=drain)],
    )
    return (((key, node.framework[key]), run_at) for key, run_at in applied)


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
        flush = run_at + int(STREAM_SILENT_S)  # where nothing more comes of the node
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


Watcher = Callable[[int, float | None], None]


@dataclass(frozen=True, slots=True)
class ProfileEvaluation:
    """A job that was evaluated, and its items as the deployed stack holds them at the job's end.

    ``digests`` are its time lines by node, ``streams`` what each rule of training found, ``shown`` what a report shows
    of the training, as far as there is any; ``notes`` are what people have to know beside the verdicts, what could not
    be read among it, a sentence each.
    """

    job: JobRecord
    plan: RulePlan
    records: tuple[StreamRecord, ...]
    digests: "tuple[NodeDigest, ...]" = ()
    streams: "tuple[Sequence[RuleSteps], ...]" = ()
    shown: "TrainingDigest | None" = None
    notes: tuple[str, ...] = ()


def evaluate_profile(
    job: JobRecord,
    plan: RulePlan,
    profile: Profile,
    pool: WorkerPool,
    watch: Watcher | None = None,
    *,
    digests: "NodeDigests | None" = None,
    hang: KnownHang | None = None,
) -> ProfileEvaluation:
    """Evaluate a job that has ended, by the ``documented`` reading; ``digests`` put what the objects hold over time.

    ``hang`` is what the dumps of its newest standstill say.

    Raises PortUnavailableError when the source did not answer; WorkerDiedError when a parsing process ended without an
    answer.
    """
    # Job and plan share the episodes, so that the scheduler can raise them.
    episodes = dict(job.episodes)
    job, plan = replace(job, episodes=episodes), replace(plan, episodes=episodes)
    planned = schedule(profile)
    minutes, framework = by_stream(planned)
    samples = SamplesAhead(profile, minutes, pool)
    bodies = BodiesAhead(profile.source, [profile.files[key] for key, _ in framework])
    running: dict[StreamKey, tuple[AnySession, Iterator[Applied]]] = {}
    records: dict[StreamKey, StreamRecord] = {}
    own, state = StreamRecord(StreamKey.own(job.job)), JobState(hang=hang)
    faults = ReadFaults()

    def stream(key: StreamKey) -> tuple[AnySession, Iterator[Applied]]:
        if key not in running:
            records[key] = StreamRecord(key, cursors={NEWEST: 0})
            source = node_source(profile, key.node, bodies.read)
            tap = None if digests is None else partial(digests.add, key.node)
            session: AnySession = (
                SystemSession(StreamRecord(key), source, plan, load=samples.take, tap=tap)
                if key.stream == "system"
                else FrameworkSession(StreamRecord(key), source, plan, tap=tap)
            )
            running[key] = session, session.apply(drain=True, modified_before=None)
        return running[key]

    def run_scheduler() -> None:
        """Judge the job as the scheduler does, which also notifies, and raise the numbers of the episodes that end."""
        streams = {key: session.stream for key, (session, _) in running.items()}
        family = PROFILER.streams_of({key: records[key] for key in streams}, streams)
        known = JobStreams(families={PROFILER.name: family}, records=records, job_item=own, state=state)
        case, _ = case_of(job, plan, known)
        for rule, episode in ended_episodes(case.verdicts, state, episodes).items():
            episodes[rule] = episode + 1

    for run in planned:
        for _, parsed in run:
            name = "system" if isinstance(parsed, SystemKey) else "framework"
            session, objects = stream(StreamKey(job.job, parsed.node, name))
            applied = next(objects)
            faults.note(applied)
            if watch is not None:
                watch(profile.size_of(applied.key), session.stream.state.watermark_s)
        if run is not planned[-1]:
            run_scheduler()
    for key in FAMILIES.expected(job, set(running)):
        stream(key)
    items = sorted(
        (session.to_record(closed=True) for session, _ in running.values()), key=lambda item: item.key.node_kind
    )
    last = replace(own, version=1, state=encode_state(state), codec=CODEC)
    return ProfileEvaluation(replace(job, closing=True), plan, (*items, last), notes=tuple(faults.notes))


def evaluation_rows(evaluation: ProfileEvaluation, *, expires_at: int) -> list[RuleRow]:
    """Return the rows of every node, then those of the whole job; ``expires_at`` is in epoch seconds."""
    job, plan = evaluation.job, evaluation.plan
    streams = FAMILIES.open(job.job, plan, evaluation.records)
    rows = []
    for key, record in streams.records.items():
        stream = streams.stream_of(key)
        context = unit_context(job, plan, record, stream, expires_at)
        rows += [rule_row(context, final(each, context.watermark_s)) for each in stream.verdicts(closed=True)]
    case, _ = case_of(job, plan, streams)
    return [*rows, *job_rows(job_context(case, expires_at), case)]
