"""What a summary writes of a job: which rows are due, how far each is known, when the job is finished, and once."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.faults import Fault
from tests.support.ledgers import one_node
from tests.support.memory import MemoryJournal, MemoryWorld
from tests.support.own_rules import OwnJob, deploy
from tests.support.verdicts import fired, quiet
from trainguard.core.errors import StateConflictError
from trainguard.core.finding import Finding
from trainguard.core.ports import Timing
from trainguard.core.records import (
    AlertKind,
    JobRecord,
    JobStatus,
    OutboxEntry,
    RuleRow,
    Status,
    StreamKey,
    StreamRecord,
)
from trainguard.engine.diagnosis.case import DiagnosedJob
from trainguard.engine.installed import FAMILIES
from trainguard.engine.outbox import RowContext
from trainguard.engine.profiler.framework_session import FrameworkState
from trainguard.engine.profiler.system_stream import SystemState
from trainguard.engine.streams.job_streams import FamilyStreams, FamilyVerdicts, JobState, JobStreams, Watched
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.summary import Summariser, as_known, due_rows, job_rows, missing_streams, watch
from trainguard.engine.training.debug_session import DebugState
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.document import shares_of
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import PaidTime
from trainguard.state.codec import CODEC, decode_state, encode_state

RULE, REPORT, NOW = "LowGPUUtilization", "ProfilerReport", 1_795_248_000.0
JOB = JobRecord("job", "arn", "profiles", "", instance_count=1, framework_expected=True)
PLAN = FAMILIES.plan(JOB)
SYSTEM, FRAMEWORK = (StreamKey("job", "algo-1", stream) for stream in ("system", "framework"))
EMPTY = {"system": encode_state(SystemState()), "framework": encode_state(FrameworkState())}
CONTEXT = RowContext("job", None, PLAN, 500.0, {}, None, None, PaidTime(None, None, 500.0, 1), 0)


@dataclass
class State:
    """What a stream has stored."""

    watermark_s: float | None
    last_fault: str | None = None
    stored_rules: dict[str, StoredRule] = field(default_factory=dict)


@dataclass
class Seen:
    """A stream as far as its family looks at it."""

    state: State = field(default_factory=lambda: State(None))
    said: Sequence[RuleOutcome] = ()
    asked: list[bool] = field(default_factory=list)

    def verdicts(self, *, closed: bool) -> Sequence[RuleOutcome]:
        self.asked.append(closed)
        return self.said


class Streams(FamilyStreams):
    """The streams of a family that judges nothing."""

    def judge(self, *_: object, **__: object) -> FamilyVerdicts:
        return [], []


def case(*verdicts: RuleOutcome, ledger: Ledger | None = None) -> DiagnosedJob:
    """Return a job that was judged so, of one hour."""
    paid_time = PaidTime("ml.p3.2xlarge", 0.0, 3_600.0, 1)
    known = one_node(hours=1.0) if ledger is None else ledger
    return DiagnosedJob(
        JOB, PLAN, streams({SYSTEM: (StreamRecord(SYSTEM), Seen())}), verdicts, paid_time, lambda: known
    )


def rows_of(of: DiagnosedJob) -> list[RuleRow]:
    return job_rows(CONTEXT, of)


def streams(*families: Mapping[StreamKey, tuple[StreamRecord, Any]], **state: Any) -> JobStreams:
    made = {
        str(number): Streams(
            {key: record for key, (record, _) in of.items()}, {key: seen for key, (_, seen) in of.items()}
        )
        for number, of in enumerate(families)
    }
    records = {key: record for of in families for key, (record, _) in of.items()}
    return JobStreams(made, records, StreamRecord(StreamKey.own("job")), JobState(**state))


def test_family_without_streams_knows_nothing() -> None:
    empty = Streams({}, {})
    assert (empty.near_threshold, empty.nodes, empty.first_at, empty.unpaid_s) == (False, frozenset(), None, 0.0)
    assert (empty.due_for_listing(NOW), empty.watermark_s, empty.last_fault, empty.stored_rules) == (
        frozenset(),
        None,
        None,
        [],
    )
    whole = streams({}, {})
    assert (whole.watermark_s, whole.last_fault, whole.counters, whole.closed) == (None, None, {}, True)
    assert (whole.nodes, whole.due_for_listing(NOW)) == (frozenset(), frozenset())


def test_streams_give_the_furthest_times_first_fault_and_counts() -> None:
    last = StreamKey("job", "algo-2", "system")
    of = {
        SYSTEM: (StreamRecord(SYSTEM, counters={"b": 1}, closed=True), Seen(State(60.0, None), [quiet(RULE)])),
        last: (StreamRecord(last, counters={"b": 2, "a": 1}), Seen(State(120.0, "second"), [quiet(RULE), quiet("B")])),
        FRAMEWORK: (StreamRecord(FRAMEWORK, closed=True), Seen(State(None, "third"), [quiet("C")])),
    }
    whole = streams({}, of)
    family = whole.families["1"]
    assert family.watermarks == {"system": 120.0}
    assert (whole.watermark_s, whole.last_fault, list(whole.counters.items())) == (
        120.0,
        "second",
        [("a", 1), ("b", 3)],
    )
    assert whole.closed is False
    told: list[tuple[str, int]] = []
    judged = family.unit_verdicts(lambda key, _, verdicts: told.append((key.node_kind, len(verdicts))))
    assert {rule: sorted(of_rule) for rule, of_rule in judged.items()} == {
        RULE: ["algo-1", "algo-2"],
        "B": ["algo-2"],
        "C": ["algo-1"],
    }
    assert told == [("algo-1#system", 1), ("algo-2#system", 2), ("algo-1#framework", 1)]
    assert [seen.asked for _, seen in of.values()] == [[True], [False], [True]]


@pytest.mark.parametrize(
    ("published", "told", "finished", "due"),
    [
        (None, False, False, True),
        (("OK -1", NOW - 1_799.0), False, False, False),
        (("OK -1", NOW - 1_800.0), False, False, True),
        (("OK 0", NOW - 1.0), False, False, True),
        (("FIRED -1", NOW - 1.0), False, False, True),
        (("OK -1", NOW - 1.0), True, False, True),
        (("OK -1", NOW - 1.0), False, True, True),
    ],
)
def test_row_is_written_if_changed_old_or_alerted(
    published: tuple[str, float] | None, told: bool, finished: bool, due: bool
) -> None:
    before = {} if published is None else {RULE: published}
    whole = streams(published=before | {REPORT: ("OK -1", NOW)})
    entry = OutboxEntry("fire", 0, NOW, Finding(RULE, None, "so."), kind=AlertKind.CLEARED)
    verdict = replace(quiet(RULE), watermark_s=400.0)
    follow_ups = [entry] if told else []
    rows = due_rows(CONTEXT, replace(case(verdict), streams=whole), follow_ups, now=NOW, finished=finished)
    assert [row.rule for row in rows] == ([RULE] if due else []) + ([REPORT] if finished else [])
    assert whole.state.published[RULE] == (("OK -1", NOW) if due else published)
    assert whole.state.watermark_s.get(RULE) == ((500.0 if finished else 400.0) if due else None)


@pytest.mark.parametrize(("ago_s", "due"), [(299.0, False), (300.0, True)])
def test_unchanged_report_row_is_written_each_five_minutes(ago_s: float, due: bool) -> None:
    whole = streams(published={REPORT: ("OK -1", NOW - ago_s), RULE: ("OK -1", NOW)})
    rows = due_rows(CONTEXT, replace(case(quiet(RULE)), streams=whole), [], now=NOW, finished=False)
    assert [row.rule for row in rows] == ([REPORT] if due else [])


@pytest.mark.parametrize(
    ("verdict", "before", "through"),
    [
        (replace(quiet(RULE), watermark_s=400.0), None, 400.0),
        (replace(quiet(RULE), watermark_s=400.0), 450.0, 450.0),
        (replace(quiet(RULE), watermark_s=400.0), 350.0, 400.0),
        (quiet(RULE), None, 900.0),
        (quiet(RULE, Status.WAITING_FOR_DATA), None, None),
        (quiet(RULE, Status.NOT_APPLICABLE), 300.0, 300.0),
        (fired(RULE), None, 900.0),
    ],
)
def test_row_is_known_as_far_as_its_rule_and_never_less(
    verdict: RuleOutcome, before: float | None, through: float | None
) -> None:
    whole = streams(
        {SYSTEM: (StreamRecord(SYSTEM), Seen(State(900.0)))}, watermark_s={} if before is None else {RULE: before}
    )
    row, report = as_known(rows_of(case(verdict)), [verdict], whole)
    assert row.evaluated_through == through
    assert (report.rule, report.evaluated_through) == (
        REPORT,
        None if verdict.result.status in {Status.WAITING_FOR_DATA, Status.NOT_APPLICABLE} else 900.0,
    )


def test_rows_rank_the_findings_and_the_report_has_the_worst() -> None:
    ledger = one_node((0.0, 0.5, {Bucket.DATA: 1.0}), (0.5, 1.0, {Bucket.UNEXPLAINED: 0.3}), hours=1.0)
    low, high = fired(RULE, (0.5, 1.0)), fired("CPUBottleneck", (0.0, 0.5))
    rows = rows_of(case(low, quiet("BatchSize"), high, ledger=ledger))
    assert [(row.rule, row.finding.severity) for row in rows] == [
        (RULE, "medium"),
        ("BatchSize", None),
        ("CPUBottleneck", "critical"),
        (REPORT, "critical"),
    ]
    assert [row.wasted_percent for row in rows] == [15.0, None, 50.0, 50.0]
    assert rows[-1].finding.finding_kind == "unhealthy"
    assert shares_of(rows[-1].finding.facts) == {Bucket.COMPUTE: 0.35, Bucket.DATA: 0.5, Bucket.UNEXPLAINED: 0.15}


def test_it_is_noted_since_when_an_item_says_the_same() -> None:
    whole = streams()
    watch(whole, NOW)
    watch(whole, NOW + 60.0)
    assert whole.state.watched == {"*#job": Watched(0, NOW)}
    known = FAMILIES.open(
        "job", PLAN, [StreamRecord(key, state=EMPTY[key.stream], codec=CODEC) for key in (SYSTEM, FRAMEWORK)]
    )
    marks = {key: known.mark_of(key) for key in (SYSTEM, FRAMEWORK)}
    known.state.watched |= {
        "algo-1#system": Watched(marks[SYSTEM], 5.0),
        "algo-1#framework": Watched(marks[FRAMEWORK] + 1, 5.0),
    }
    watch(known, NOW)
    assert known.state.watched == {
        "algo-1#system": Watched(marks[SYSTEM], 5.0),
        "algo-1#framework": Watched(marks[FRAMEWORK], NOW),
    }
    assert missing_streams(JOB, whole, FAMILIES) == {SYSTEM, FRAMEWORK}
    assert missing_streams(JOB, known, FAMILIES) == set()


@pytest.mark.parametrize(
    ("changed", "is_data"),
    [
        ({"version": 4}, False),
        ({"state": encode_state(DebugState(looked_s=NOW))}, False),
        ({"counters": {"duplicates": 1}}, False),
        ({"closed": True}, False),
        ({"cursors": {"step": 1}}, True),
        ({"pending": {"key": 7}}, True),
        ({"watermark_s": NOW}, True),
        ({"state": encode_state(DebugState(progress_s=NOW))}, True),
    ],
)
def test_data_alone_change_the_mark_of_a_stream(changed: dict[str, Any], is_data: bool) -> None:
    tensors = StreamKey("job", "all-workers", "training")
    before = StreamRecord(tensors, version=3, state=encode_state(DebugState()), codec=CODEC)
    marks = {
        FAMILIES.open("job", FAMILIES.plan(JOB), [record]).mark_of(tensors)
        for record in (before, replace(before, **changed))
    }
    assert len(marks) == 1 + is_data


@dataclass
class Summed:
    """A job's items, and what a summary makes of them."""

    job: JobRecord
    items: Sequence[StreamRecord] = ()
    now: float = NOW
    pauses: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = MemoryWorld()
        self.world.jobs.register(self.job)
        for record in self.items:
            state = EMPTY.get(record.key.stream, record.state)
            self.world.nodes.save(replace(record, state=state, codec=CODEC))
        timing = Timing(now=lambda: self.now, pause=self.pauses.append, has_time=lambda: True)
        self._summariser = Summariser(services=self.world.services, timing=timing, families=FAMILIES)

    def make(self) -> bool:
        return self._summariser.summarise(self.job)[1]

    @property
    def own(self) -> JobState:
        own = self.world.nodes.load(StreamKey.own("job"))
        assert own is not None
        return decode_state("own", own.codec, own.state, JobState)

    @property
    def after(self) -> JobRecord:
        stored = self.world.jobs.load("job")
        assert stored is not None
        return stored


def closed(*keys: StreamKey, **fields: Any) -> list[StreamRecord]:
    return [StreamRecord(key, closed=True, **fields) for key in keys]


ENDED = replace(JOB, status=JobStatus.COMPLETED, closing=True, close_asks=1, close_asked_at=NOW)


@pytest.mark.parametrize(
    ("job", "items", "finished"),
    [
        (JOB, closed(SYSTEM, FRAMEWORK), False),
        (ENDED, closed(SYSTEM, FRAMEWORK), True),
        (ENDED, [*closed(SYSTEM), StreamRecord(FRAMEWORK)], False),
        (ENDED, closed(SYSTEM), False),
        (ENDED, [], False),
        (replace(ENDED, active=False), closed(SYSTEM), True),
        (replace(ENDED, close_asks=8, close_asked_at=NOW - 38_400.0), closed(SYSTEM), True),
        (replace(ENDED, close_asks=8, close_asked_at=NOW - 38_399.0), closed(SYSTEM), False),
    ],
)
def test_job_is_finished_once_all_its_streams_have_closed(
    job: JobRecord, items: Sequence[StreamRecord], finished: bool
) -> None:
    summed = Summed(job, items)
    assert summed.make() is finished
    assert (summed.after.active, summed.after.expires_at) == (
        (False, int(NOW) + 90 * 86_400) if finished else (job.active, None)
    )
    assert list(summed.world.reports.started.values()) == ([{"kind": "end", "job": "job"}] if finished else [])
    assert {row.expires_at for row in summed.world.rows.of_job("job")} == {summed.after.expires_at}


def test_finished_job_is_reported_again_only_on_new_data() -> None:
    summed = Summed(replace(ENDED, active=False), closed(SYSTEM, cursors={"minute": 0}))
    for number in range(30):
        summed.make()
        summed.make()
        assert len(summed.world.reports.started) == min(number + 1, 24)
        stored = summed.world.nodes.load(SYSTEM)
        assert stored is not None
        summed.world.nodes.save(replace(stored, cursors={"minute": 60 * number + 60}))
    journal = summed.world.journal
    assert isinstance(journal, MemoryJournal)
    assert journal.totals["reports_refused"] == 12
    assert len(summed.own.reported) == 24
    assert all(re.fullmatch("report-[0-9a-f]{20}-job", name) for name in summed.world.reports.started)


def test_failing_joint_rule_is_counted_once() -> None:
    with pytest.MonkeyPatch.context() as patch:
        deploy(patch, OwnJob())
        summed = Summed(JOB, [StreamRecord(SYSTEM)])
        summed.make()
        summed.make()
    (entry,) = summed.world.journal.entries
    assert (entry.what, entry.where["node"]) == ("rule_errors", "*")
    assert re.fullmatch(r"OwnJob: LookupError in [a-z_/]+\.py:\d+: 1 nodes are not enough", str(entry.where["reason"]))


@pytest.mark.parametrize(("later_s", "written"), [(0.0, 1), (299.0, 1), (300.0, 2)])
def test_unchanged_tuning_entry_is_written_each_five_minutes(later_s: float, written: int) -> None:
    summed = Summed(replace(JOB, tuning_job="tune"), [StreamRecord(SYSTEM)])
    summed.make()
    summed.now += later_s
    summed.make()
    assert summed.world.faults.calls.count("Bookkeeping.upsert_tuned_job") == written
    tuned = summed.world.bookkeeping.tuning_job("tune")
    assert tuned is not None
    assert [(name, each.findings, each.rule, each.finished) for name, each in tuned.jobs.items()] == [
        ("job", 0, None, False)
    ]
    assert tuned.expires_at == int(NOW + (later_s if written == 2 else 0.0)) + 90 * 86_400


def test_tuning_entry_of_a_finished_job_is_written_at_once() -> None:
    summed = Summed(replace(ENDED, tuning_job="tune", active=False), closed(SYSTEM))
    summed.make()
    summed.make()
    assert summed.world.faults.calls.count("Bookkeeping.upsert_tuned_job") == 2
    plain = Summed(ENDED, closed(SYSTEM, FRAMEWORK))
    plain.make()
    assert plain.world.faults.calls.count("Bookkeeping.upsert_tuned_job") == 0


@pytest.mark.parametrize(("conflicts", "fails"), [(1, False), (3, False), (4, True)])
def test_summary_conflict_is_retried_up_to_four_attempts(conflicts: int, fails: bool) -> None:
    summed = Summed(JOB, [StreamRecord(SYSTEM)])
    summed.world.faults.schedule("NodeStates.save", Fault.CONFLICT, times=conflicts)
    if fails:
        with pytest.raises(StateConflictError):
            summed.make()
    else:
        assert summed.make() is False
    assert summed.pauses == [1, 2, 3][: min(conflicts, 3)]


def test_fires_waiting_in_items_are_started_once_by_a_summary() -> None:
    entry = OutboxEntry("fire", 0, NOW, Finding(RULE, "algo-1", "so."))
    summed = Summed(JOB, [StreamRecord(SYSTEM, outbox={"fire": entry})])
    summed.make()
    summed.make()
    calls = Counter(summed.world.faults.calls)
    assert (calls["Executions.start"], calls["NodeStates.mark_sent"]) == (1, 1)
    # One item was saved by hand; the job's own once, as the second look finds nothing new.
    assert calls["NodeStates.save"] == 2
