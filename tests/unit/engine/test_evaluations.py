"""One evaluation of a stream with a scripted session: what is written, published, started and counted."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.faults import Fault
from tests.support.ledgers import one_node
from tests.support.memory import MemoryJournal, MemoryWorld
from tests.support.small_job import describe
from tests.support.verdicts import ALWAYS, fired, quiet
from trainguard.core.errors import StateConflictError
from trainguard.core.finding import Finding
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import Timing
from trainguard.core.records import JobRecord, OutboxEntry, Status, StreamKey, StreamRecord
from trainguard.engine.batch import StreamEvaluator
from trainguard.engine.family import ObjectSource
from trainguard.engine.installed import FAMILIES
from trainguard.engine.messages import StreamWork
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.streams.session import Announced, Applied
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Fire, RuleOutcome
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import PaidTime
from trainguard.rules.rule_result import RuleResult

RULE, NOW = "LowGPUUtilization", 100_000.0
JOB = JobRecord("job", "arn", "profiles", "", instance_count=1, polled_fast=False)
KEY = StreamKey("job", "algo-1", "system")
FIRE = Fire(RuleOutcome(RULE, RuleResult(Status.FIRED, "so."), FiringHistory(is_open=True)), NOW)
OBJECT = StreamWork(KEY, messages=[Announced("k", None)])


@dataclass
class State:
    """What a stream has stored."""

    watermark_s: float | None = None
    last_fault: str | None = None
    stored_rules: dict[str, StoredRule] = field(default_factory=dict)


@dataclass
class Stream:
    """A stream that says which verdicts it was asked for."""

    state: State = field(default_factory=State)
    due: set[str] = field(default_factory=lambda: {RULE})
    raised: list[str] = field(default_factory=list)
    ends_with: tuple[Fire, ...] = ()
    said: RuleOutcome = field(default_factory=lambda: quiet(RULE))
    made: Ledger | None = None
    asked: list[tuple[bool, set[str] | None]] = field(default_factory=list)

    def finished(self) -> "Stream":
        return replace(self, state=replace(self.state, last_fault="at the end"))

    def finish(self) -> list[Fire]:
        return list(self.ends_with)

    def verdicts(self, *, closed: bool, of: Collection[str] | None = None) -> list[RuleOutcome]:
        self.asked.append((closed, None if of is None else set(of)))
        return [self.said]

    def ledger(self, _account: PaidTime) -> Ledger | None:
        return self.made


@dataclass
class Session:
    """A session, and what is ready in it: names of objects and what each counts, begins, and finds wrong."""

    ready: Sequence[Applied] = ()
    stream: Stream = field(default_factory=Stream)
    has_changes: bool = False
    near_threshold: bool = False
    requests: tuple[tuple[str, dict[str, object]], ...] = ()
    waits: bool = False
    counters: dict[str, int] = field(default_factory=dict)
    moves: bool = True
    record: StreamRecord = field(default_factory=lambda: StreamRecord(KEY))
    seen: list[Any] = field(default_factory=list)
    applied: int = 0

    def announce(self, messages: Sequence[Announced]) -> None:
        self.seen.append([each.key for each in messages])

    def apply(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        self.seen.append((drain, modified_before))
        for each in self.ready:
            self.applied += 1
            self.stream.state.watermark_s = NOW - 60.0
            yield each

    def defers(self, messages: Sequence[Announced], *, every_s: float, now: float, in_turn: bool) -> bool:
        self.seen.append((len(messages), every_s, now, in_turn))
        return self.waits

    def to_record(self, *, closed: bool) -> StreamRecord:
        cursors = {"minute": self.applied} if self.moves and self.applied else self.record.cursors
        return replace(
            self.record,
            cursors=cursors,
            counters=self.counters,
            watermark_s=self.stream.state.watermark_s,
            closed=closed or self.record.closed,
        )


@dataclass
class Evaluation:
    """An evaluator of one session, whose clock stands still and whose time left is set."""

    session: Session
    job: JobRecord = JOB
    has_time: Sequence[bool] = (True,)
    clock: Sequence[float] = (NOW,)
    object_cap_bytes: int = 1
    name: str = "profiler"
    pauses: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = MemoryWorld()
        self.world.jobs.register(self.job)
        answers, times = list(self.has_time), list(self.clock)
        timing = Timing(
            now=lambda: times.pop(0) if len(times) > 1 else times[0],
            pause=self.pauses.append,
            has_time=lambda: answers.pop(0) if len(answers) > 1 else answers[0],
        )
        self._evaluator = StreamEvaluator(services=self.world.services, timing=timing, families=self._families())

    def _families(self) -> Any:
        evaluation = self

        class Known:
            plan = staticmethod(FAMILIES.plan)

            def of(self, _: StreamKey) -> Evaluation:
                return evaluation

            def share(self, _: object) -> dict[str, object]:
                return {}

        return Known()

    def open_session(self, record: StreamRecord, source: ObjectSource, _: object) -> Session:
        self.session.record, self.source = record, source
        return self.session

    def evaluate(self, work: StreamWork = OBJECT) -> bool:
        return self._evaluator.evaluate(self.job, work)

    @property
    def counted(self) -> dict[str, int]:
        journal = self.world.journal
        assert isinstance(journal, MemoryJournal)
        return dict(journal.totals)

    @property
    def lags(self) -> list[float]:
        return [seconds for what, seconds in self.world.journal.times if what == "evaluation_lag_seconds"]

    def count(self, call: str) -> int:
        return self.world.faults.calls.count(call)


def applied(number: int, **counts: int) -> Applied:
    fault = f"object {number}: bad" if counts else None
    return Applied(str(number), (), Counter(counts or {"lines": 9}), fault)


@pytest.mark.parametrize(("objects", "writes"), [(1, 1), (119, 1), (120, 2), (121, 2), (241, 3)])
def test_backlog_is_written_after_every_120_objects(objects: int, writes: int) -> None:
    evaluation = Evaluation(Session([applied(number) for number in range(objects)]))
    assert evaluation.evaluate() is True
    assert evaluation.counted["objects_applied"] == objects
    # The last write has nothing to add where the one before it had all.
    assert evaluation.count("NodeStates.save") == (objects + 119) // 120
    assert evaluation.count("RuleStates.publish") == writes


@pytest.mark.parametrize(
    ("has_time", "applied_now", "done"),
    [((True,), 3, True), ((False,), 1, False), ((True, False), 2, False), ((False, True), 3, True)],
)
def test_little_time_writes_what_was_applied_and_leaves_the_rest(
    has_time: Sequence[bool], applied_now: int, done: bool
) -> None:
    evaluation = Evaluation(Session([applied(number) for number in range(3)]), has_time=has_time)
    assert evaluation.evaluate() is done
    stored = evaluation.world.nodes.load(KEY)
    assert stored is not None
    assert stored.cursors == {"minute": applied_now}


def test_applied_objects_name_faults_and_count_deliveries() -> None:
    session = Session([applied(1), applied(2, bad_lines=3)], counters={"gaps": 2, "late": 1, "duplicates": 0, "x": 9})
    evaluation = Evaluation(session)
    evaluation.evaluate()
    assert evaluation.counted == {"objects_applied": 2, "bad_lines": 3, "gaps": 2, "late": 1}
    (bad,) = [each for each in evaluation.world.journal.entries if each.what == "bad_lines"]
    assert (bad.where["key"], bad.where["reason"], bad.where["job"]) == ("2", "object 2: bad", "job")
    session.ready, session.counters = [applied(3)], {"gaps": 5, "late": 1}
    evaluation.evaluate()
    assert evaluation.counted == {"objects_applied": 3, "bad_lines": 3, "gaps": 5, "late": 1}


@pytest.mark.parametrize(
    ("took_s", "named"), [(1.999, None), (2.0, 2.0), (2.0004, 2.0), (2.5004, 2.5), (3.0006, 3.001)]
)
def test_object_taking_two_seconds_is_named(took_s: float, named: float | None) -> None:
    evaluation = Evaluation(Session([applied(1)]), clock=(5.0, 5.0, 5.0 + took_s))
    evaluation.evaluate()
    slow = [each.where["seconds"] for each in evaluation.world.journal.entries if each.what == "slow_objects"]
    assert slow == ([] if named is None else [named])


@pytest.mark.parametrize(
    ("now", "lags"), [(NOW, [60.0]), (NOW - 61.0, [0.0]), (NOW + 21_540.0, [21_600.0]), (NOW + 21_541.0, [])]
)
def test_lag_is_measured_for_live_profiles_only(now: float, lags: list[float]) -> None:
    evaluation = Evaluation(Session([applied(1)]), clock=(now,))
    evaluation.evaluate()
    assert evaluation.lags == lags
    evaluation.session.ready = []
    evaluation.evaluate()
    assert len(evaluation.lags) == len(lags)


@pytest.mark.parametrize(
    ("session", "saved"),
    [
        (Session(), 0),
        (Session(has_changes=True), 1),
        (Session([applied(1)]), 1),
        (Session([applied(1)], moves=False), 0),
        (Session([Applied("1", (FIRE,), Counter(), None)], moves=False), 1),
    ],
)
def test_unchanged_evaluation_writes_nothing(session: Session, saved: int) -> None:
    evaluation = Evaluation(session)
    evaluation.evaluate()
    assert evaluation.count("NodeStates.save") == saved
    assert evaluation.count("Executions.start") == sum(len(each.fires) for each in session.ready)


@pytest.mark.parametrize(
    ("job", "work", "asked"),
    [
        (JOB, OBJECT, [(False, {RULE})]),
        (JOB, replace(OBJECT, repeated=True), [(False, None)]),
        (JOB, replace(OBJECT, close=True), [(True, None)]),
        (replace(JOB, closing=True), OBJECT, [(True, None)]),
    ],
)
def test_due_rows_are_published_and_all_at_the_stream_end(
    job: JobRecord, work: StreamWork, asked: list[tuple[bool, set[str] | None]]
) -> None:
    evaluation = Evaluation(Session([applied(1)], counters={"gaps": 1}), job)
    assert evaluation.evaluate(work) is True
    stream, closed = evaluation.session.stream, asked[0][0]
    assert stream.asked == asked
    assert stream.due == set()
    stored = evaluation.world.nodes.load(KEY)
    assert stored is not None
    assert (stored.closed, stored.expires_at) == (closed, 100_000 + 90 * 86_400 if closed else None)
    (row,) = evaluation.world.rows.of_job("job")
    assert (row.node, row.evaluated_through, row.expires_at) == ("algo-1", NOW - 60.0, stored.expires_at)
    assert ("(last: at the end)" in row.finding.reason) is closed
    assert evaluation.session.seen[-1] == (closed, None)
    assert len(evaluation.lags) == (not closed)


def test_ending_stream_starts_its_last_fire_and_rows_gone_rules() -> None:
    session = Session([applied(1)], Stream(State(stored_rules={"Gone": StoredRule()}), ends_with=(FIRE,)))
    evaluation = Evaluation(session)
    evaluation.evaluate()
    assert (evaluation.count("Executions.start"), len(evaluation.world.rows.of_job("job"))) == (0, 1)
    evaluation.evaluate(replace(OBJECT, close=True))
    assert evaluation.count("Executions.start") == 1
    assert sorted((row.rule, row.status) for row in evaluation.world.rows.of_job("job")) == [
        ("Gone", Status.DISABLED),
        (RULE, Status.OK),
    ]


def test_node_row_has_the_cost_of_that_node_alone() -> None:
    job = replace(JOB, instance_type="ml.p3.2xlarge", started_at=NOW - 3_660.0, generation=3)
    ledger = one_node((0.0, 1.0, {Bucket.UNEXPLAINED: 0.5}), hours=1.0, hourly=3.825)
    stream = Stream(said=fired(RULE, ALWAYS), made=ledger)
    session = Session([applied(1)], stream, record=StreamRecord(KEY, generation=3))
    evaluation = Evaluation(session, job)
    evaluation.evaluate()
    (row,) = evaluation.world.rows.of_job("job")
    assert (row.wasted_percent, row.generation) == (50.0, 3)
    assert row.finding.cost == "about USD 1.91 of the USD 3.83 spent"


def test_location_of_another_job_is_the_one_from_sagemaker() -> None:
    evaluation = Evaluation(Session())
    evaluation.world.training_jobs.set(replace(describe(), job="other", profile_uri="s3://place/runs"))
    evaluation.evaluate()
    assert evaluation.source.place_of("other") == ("place", ProfileRoot("runs/", "other"))
    assert evaluation.source.place_of("unknown") is None


@pytest.mark.parametrize(
    ("work", "job", "closes", "asked", "seen"),
    [
        (OBJECT, JOB, False, True, (1, 180.0, NOW, False)),
        (OBJECT, replace(JOB, instance_count=4_001), False, True, (1, 180.0, NOW, True)),
        (replace(OBJECT, repeated=True), JOB, False, False, None),
        (replace(OBJECT, modified_before=5.0), JOB, False, False, None),
        (replace(OBJECT, close=True), JOB, True, False, None),
        (OBJECT, replace(JOB, closing=True), True, False, None),
    ],
)
def test_messages_alone_apply_nothing_in_a_deferrable_session(
    work: StreamWork, job: JobRecord, closes: bool, asked: bool, seen: tuple[object, ...] | None
) -> None:
    evaluation = Evaluation(Session([applied(1)], waits=True), job)
    assert evaluation.evaluate(work) is True
    expected = [seen] if asked else [["k"], (closes, work.modified_before)]
    assert evaluation.session.seen == expected
    assert evaluation.session.applied == (not asked)


@pytest.mark.parametrize(
    ("near_threshold", "polled_fast", "set_fast_polling"), [(True, False, 1), (True, True, 0), (False, False, 0)]
)
def test_rule_near_a_change_has_its_job_looked_at_each_minute(
    near_threshold: bool, polled_fast: bool, set_fast_polling: int
) -> None:
    session = Session([applied(1)], near_threshold=near_threshold, requests=(("capture-1", {"a": 1}),))
    session.stream.raised = ["Own: failed"]
    evaluation = Evaluation(session, replace(JOB, polled_fast=polled_fast))
    evaluation.evaluate()
    assert evaluation.count("Jobs.set_fast_polling") == set_fast_polling
    job = evaluation.world.jobs.load("job")
    assert job is not None
    assert job.polled_fast is (near_threshold or polled_fast)
    assert evaluation.world.captures.started == {"capture-1": {"a": 1}}
    assert evaluation.counted["rule_errors"] == 1


@pytest.mark.parametrize(("conflicts", "fails"), [(1, False), (3, False), (4, True)])
def test_write_conflict_is_retried_up_to_four_attempts(conflicts: int, fails: bool) -> None:
    evaluation = Evaluation(Session([applied(1)], has_changes=True))
    evaluation.world.faults.schedule("NodeStates.save", Fault.CONFLICT, times=conflicts)
    if fails:
        with pytest.raises(StateConflictError):
            evaluation.evaluate()
    else:
        assert evaluation.evaluate() is True
    assert evaluation.pauses == [1, 2, 3][: min(conflicts, 3)]
    assert evaluation.counted["state_conflicts"] == min(conflicts, 3)


def test_fire_pending_in_an_item_is_started_first() -> None:
    evaluation = Evaluation(Session())
    entry = OutboxEntry("fire", 0, NOW, Finding(RULE, "algo-1", "so."))
    evaluation.world.nodes.save(StreamRecord(KEY, outbox={"fire": entry}))
    evaluation.evaluate()
    assert evaluation.count("Executions.start") == 1
    stored = evaluation.world.nodes.load(KEY)
    assert stored is not None
    assert stored.unsent == ()
