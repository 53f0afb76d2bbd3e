"""The rules over a whole profile: the deployed evaluator's streams, order and tick, on one parse and without stores.

What it leaves are the items that the deployed stack would hold at the job's end, so that verdicts and reports come from
the very functions that make them there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainguard.engine.assessment import assess
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobState, JobStreams
from trainguard.engine.streams.session import NEWEST, Applied
from trainguard.families.installed import FAMILIES
from trainguard.families.profiler.family import PROFILER
from trainguard.local.pool import WorkerPool
from trainguard.local.prefetch import BodiesAhead, SamplesAhead
from trainguard.local.profile import Profile
from trainguard.local.schedule import schedule
from trainguard.local.sessions import AnySession, ObjectListener, open_session
from trainguard.records import JobRecord, NodeRecord, StreamKey
from trainguard.state.codec import CODEC, encode_state

Watcher = Callable[[int, float | None], None]
"""Receives each applied object: its bytes, and its stream's watermark, epoch seconds."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A profile that was evaluated: the job, and its items as the deployed stack holds them at the job's end."""

    job: JobRecord
    plan: RulePlan
    records: tuple[NodeRecord, ...]


def evaluate_profile(
    job: JobRecord,
    plan: RulePlan,
    profile: Profile,
    pool: WorkerPool,
    watch: Watcher | None = None,
    *,
    tap: ObjectListener | None = None,
) -> Evaluation:
    """Evaluate a job that has ended, by the ``documented`` reading.

    Parameters
    ----------
    job : JobRecord
        What is known of the job beside its profile: instance type, start of training.
    plan : RulePlan
        The rules and their parameters.
    profile : Profile
    pool : WorkerPool
        Parses the system metrics.
    watch : Watcher, optional
    tap : Tap, optional
        Is shown what the objects hold, for example to draw time lines of it.

    Raises
    ------
    PortUnavailableError
        When the source did not answer.
    WorkerDiedError
        When a parsing process ended without an answer.
    """
    return _LocalEngine(job, plan, profile, pool, watch, tap).run()


@dataclass(frozen=True, slots=True)
class _Running:
    """A stream that has begun: its session, and the objects that it applies, one at a time."""

    session: AnySession
    applied: Iterator[Applied]


class _LocalEngine:
    """One evaluation under way; job and plan share the episodes, so that the tick can raise them."""

    def __init__(
        self,
        job: JobRecord,
        plan: RulePlan,
        profile: Profile,
        pool: WorkerPool,
        watch: Watcher | None,
        tap: ObjectListener | None,
    ) -> None:
        self._episodes = dict(job.episodes)
        self._job = replace(job, episodes=self._episodes)
        self._plan = replace(plan, episodes=self._episodes)
        self._profile = profile
        self._watch = watch
        self._tap = tap
        self._schedule = schedule(profile)
        self._samples = SamplesAhead(profile, self._schedule.minutes(profile), pool)
        self._bodies = BodiesAhead(profile.source, [profile.files[key] for key in self._schedule.framework()])
        self._running: dict[StreamKey, _Running] = {}
        self._records: dict[StreamKey, NodeRecord] = {}
        self._state = JobState()

    def run(self) -> Evaluation:
        for due, ticks in self._schedule.steps():
            for node, keys in due.minutes.items():
                self._apply(node, "system", keys)
            for node, keys in due.framework.items():
                self._apply(node, "framework", keys)
            if ticks:
                self._tick()
        for key in FAMILIES.expected(self._job, set(self._running)):
            self._stream(key)
        items = [running.session.to_record(closed=True) for running in self._running.values()]
        own = replace(self._own, version=1, state=encode_state(self._state), codec=CODEC)
        ordered = sorted(items, key=lambda item: item.key.node_kind)
        return Evaluation(replace(self._job, closing=True), self._plan, (*ordered, own))

    def _apply(self, node: str, stream: str, keys: Sequence[str]) -> None:
        running = self._stream(StreamKey(self._job.job, node, stream))
        for _ in keys:
            applied = next(running.applied)
            if self._watch is not None:
                self._watch(self._profile.size_of(applied.key), running.session.stream.state.watermark_s)

    def _stream(self, key: StreamKey) -> _Running:
        if key not in self._running:
            record = NodeRecord(key)
            session = open_session(record, self._profile, self._plan, self._samples, self._bodies, self._tap)
            self._running[key] = _Running(session, session.apply(drain=True, modified_before=None))
            self._records[key] = replace(record, cursors={NEWEST: 0})
        return self._running[key]

    @property
    def _own(self) -> NodeRecord:
        return NodeRecord(StreamKey.own(self._job.job))

    def _tick(self) -> None:
        """Look at the job as the tick does, and raise the numbers of the episodes that end."""
        for rule, episode in assess(self._job, self._plan, self._streams()).ended.items():
            self._episodes[rule] = episode + 1

    def _streams(self) -> JobStreams:
        streams = {key: running.session.stream for key, running in self._running.items()}
        records = {key: self._records[key] for key in streams}
        return JobStreams(
            families={PROFILER.name: PROFILER.streams_of(records, streams)},
            records=self._records,
            own=self._own,
            state=self._state,
        )
