"""The rules over a whole profile: the evaluator's streams, order and schedule, on one parse and without stores.

It leaves the items that the deployed stack would hold at the job's end: verdicts and reports come from the same
functions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainguard.core.records import JobRecord, NodeRecord, RuleRow, StreamKey
from trainguard.engine.diagnosis.case import assess, case_of
from trainguard.engine.installed import FAMILIES
from trainguard.engine.outbox import RowContext, rule_row
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.family import PROFILER
from trainguard.engine.streams.job_streams import JobState, JobStreams
from trainguard.engine.streams.session import NEWEST, Applied
from trainguard.engine.summary import job_rows
from trainguard.engine.verdicts.verdict import final
from trainguard.local.pool import WorkerPool
from trainguard.local.prefetch import BodiesAhead, SamplesAhead
from trainguard.local.profile import Profile
from trainguard.local.schedule import schedule
from trainguard.local.sessions import AnySession, ObjectListener, open_session
from trainguard.pricing.cost import Account
from trainguard.state.codec import CODEC, encode_state

Watcher = Callable[[int, float | None], None]


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
    """Evaluate a job that has ended, by the ``documented`` reading; ``tap`` is shown what the objects hold.

    Raises PortUnavailableError when the source did not answer; WorkerDiedError when a parsing process ended without an
    answer.
    """
    return _LocalEngine(job, plan, profile, pool, watch, tap).run()


@dataclass(frozen=True, slots=True)
class _Running:
    session: AnySession
    applied: Iterator[Applied]


class _LocalEngine:
    """One evaluation; job and plan share the episodes, so that the scheduler can raise them."""

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
        for due, runs in self._schedule.steps():
            for node, keys in due.minutes.items():
                self._apply(node, "system", keys)
            for node, keys in due.framework.items():
                self._apply(node, "framework", keys)
            if runs:
                self._schedule_run()
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

    def _schedule_run(self) -> None:
        """Evaluate the job as the scheduler does, and raise the numbers of the episodes that end."""
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


def evaluation_rows(evaluation: Evaluation, *, expires_at: int) -> list[RuleRow]:
    """Return the rows of every node, then those of the whole job; ``expires_at`` is in epoch seconds."""
    job, plan = evaluation.job, evaluation.plan
    streams = FAMILIES.open(job.job, plan, evaluation.records)
    rows = [row for key in streams.records for row in _node_rows(evaluation, streams, key, expires_at)]
    case, _ = case_of(job, plan, streams)
    context = RowContext(
        job=job.job,
        node=None,
        plan=plan,
        watermark_s=streams.watermark_s,
        counters=streams.counters,
        last_fault=streams.last_fault,
        expires_at=expires_at,
        account=case.account,
        ledger=lambda: case.ledger,
    )
    return [*rows, *job_rows(context, case)]


def _node_rows(evaluation: Evaluation, streams: JobStreams, key: StreamKey, expires_at: int) -> list[RuleRow]:
    job, plan = evaluation.job, evaluation.plan
    stream = streams.stream_of(key)
    context = RowContext(
        job=job.job,
        node=key.node,
        plan=plan,
        watermark_s=stream.state.watermark_s,
        counters=streams.records[key].counters,
        last_fault=stream.state.last_fault,
        expires_at=expires_at,
        account=(account := Account(job.instance_type, job.started_at, stream.state.watermark_s, 1, plan.prices)),
        ledger=lambda: stream.ledger(account),
    )
    verdicts = [final(verdict, context.watermark_s) for verdict in stream.verdicts(closed=True)]
    return [rule_row(context, verdict) for verdict in verdicts]
