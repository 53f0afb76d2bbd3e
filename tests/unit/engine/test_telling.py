"""Follow-ups of a fire: each once, when its severity rises and when it is over, whenever a process dies."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.ledgers import HOUR_S, one_node
from tests.support.small_job import JOB
from tests.support.verdicts import ALWAYS, fired, over, quiet
from tests.unit.engine.test_summaries import CONTEXT, REPORT, case, streams
from tests.unit.engine.test_summaries import NOW as START
from trainguard.core.finding import Finding, Severity
from trainguard.core.records import AlertKind, JobRecord, OutboxEntry, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.outbox import compares_severity, due_notifications, execution_name, fire_payload
from trainguard.engine.reconcile import SLOW_POLL_EVERY, is_turn
from trainguard.engine.streams.job_streams import JobState
from trainguard.engine.summary import due_rows
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.document import shares_of
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import PaidTime

RULE = "LowGPUUtilization"
RECORD = JobRecord(JOB, "arn", "profiles", "")
NOW = 7_200.0
ACCOUNT = PaidTime("ml.p3.2xlarge", 0.0, NOW, 1)


def alerted(verdict: RuleOutcome, *, severity: str | None = "low", episode: int = 0) -> RuleOutcome:
    """Return the verdict of a rule that people were notified of, with that severity."""
    told = msgspec.structs.replace(verdict.history, alerted=episode, alerted_severity=severity)
    return replace(verdict, history=told)


def lost(share: float) -> Ledger:
    """Return the ledger of a job of two hours of which a share was lost."""
    return one_node((0.0, NOW / HOUR_S, {Bucket.UNEXPLAINED: share}), hours=NOW / HOUR_S, hourly=3.825)


def tell(
    state: JobState, *verdicts: RuleOutcome, wasted: float = 0.0, job: JobRecord = RECORD, paid_time: PaidTime = ACCOUNT
) -> list[Any]:
    follow_ups = due_notifications(job, FAMILIES.plan(job), verdicts, paid_time, state, lambda: lost(wasted))
    return [(entry.kind, entry.previous_severity, entry.finding.severity) for entry in follow_ups]


@pytest.mark.parametrize(
    ("wasted", "told"),
    [
        (0.09, []),
        (0.10, [(AlertKind.ESCALATION, "low", Severity.MEDIUM)]),
        (0.30, [(AlertKind.ESCALATION, "low", Severity.HIGH)]),
        (0.90, [(AlertKind.ESCALATION, "low", Severity.CRITICAL)]),
    ],
)
def test_grown_fire_sends_one_escalation_with_both_severities(wasted: float, told: list[Any]) -> None:
    state = JobState()
    assert tell(state, alerted(fired(RULE, ALWAYS)), wasted=wasted) == told
    assert tell(state, alerted(fired(RULE, ALWAYS)), wasted=wasted) == []


def test_each_level_of_a_varying_finding_is_alerted_once() -> None:
    state = JobState()
    steps = (0.05, 0.2, 0.05, 0.2, 0.4, 0.15, 0.9, 0.1, 0.95)
    told = [tell(state, alerted(fired(RULE, ALWAYS)), wasted=wasted) for wasted in steps]
    assert [entry[1:] for step in told for entry in step] == [
        ("low", "medium"),
        ("medium", "high"),
        ("high", "critical"),
    ]


@pytest.mark.parametrize("severity", ["high", "critical"])
def test_milder_verdict_of_the_whole_job_is_not_alerted(
    severity: str,
) -> None:
    assert tell(JobState(), alerted(fired(RULE, ALWAYS), severity=severity), wasted=0.3) == []


def test_older_fire_of_unknown_severity_counts_as_told_as_it_is() -> None:
    state = JobState()
    assert tell(state, alerted(fired(RULE, ALWAYS), severity=None), wasted=0.3) == []
    assert tell(state, alerted(fired(RULE, ALWAYS), severity=None), wasted=0.9) == [
        (AlertKind.ESCALATION, "high", Severity.CRITICAL)
    ]


@pytest.mark.parametrize(
    "told", [alerted(fired(RULE, ALWAYS), severity="critical"), alerted(over(RULE, (0.0, 1.0)), severity="high")]
)
def test_where_nothing_more_can_be_told_no_ledger_is_asked_for(told: RuleOutcome) -> None:
    def ledger() -> Ledger:
        raise AssertionError("asked for")

    state = JobState()
    tell(state, told)
    assert due_notifications(RECORD, FAMILIES.plan(RECORD), [told], ACCOUNT, state, ledger) == []


def test_a_run_of_a_job_that_is_well_makes_no_ledger() -> None:
    def ledger() -> Ledger:
        raise AssertionError("asked for")

    whole = streams(published={REPORT: ("OK -1", START), RULE: ("OK -1", START - 1_800.0)})
    well = replace(case(quiet(RULE)), streams=whole, ledger_once=ledger)
    assert [row.rule for row in due_rows(CONTEXT, well, [], now=START, finished=False)] == [RULE]


def test_symptom_severity_is_not_alerted_as_that_of_the_cause() -> None:
    cause, symptom = alerted(fired("CPUBottleneck", ALWAYS)), alerted(fired(RULE, ALWAYS), severity="high")
    assert tell(JobState(), cause, symptom, wasted=0.2) == [(AlertKind.ESCALATION, "low", Severity.MEDIUM)]


def test_ended_episode_is_alerted_once_with_duration_and_cost() -> None:
    state = JobState()
    ended = alerted(over(RULE, (0.0, 1.0)), severity="high")
    (entry,) = due_notifications(RECORD, FAMILIES.plan(RECORD), [ended], ACCOUNT, state, lambda: lost(0.4))
    assert (entry.kind, entry.lasted_s, entry.enqueued_at) == (AlertKind.CLEARED, NOW - 60.0, NOW)
    assert entry.finding.cost == "about USD 1.53 of the USD 7.65 spent"
    assert shares_of(entry.finding.facts) == {Bucket.COMPUTE: 0.6, Bucket.UNEXPLAINED: 0.4}
    assert entry.finding.reason == f"{RULE} is fine again."
    assert tell(state, ended) == []


def test_second_episode_is_alerted_for_growth_and_end_again() -> None:
    state, second = JobState(), replace(RECORD, episodes={RULE: 1})
    assert tell(state, alerted(over(RULE, ALWAYS), severity="critical"), wasted=0.9) == [
        (AlertKind.CLEARED, None, Severity.CRITICAL)
    ]
    again = alerted(fired(RULE, ALWAYS), severity="high", episode=1)
    assert tell(state, again, job=second, wasted=0.9) == [(AlertKind.ESCALATION, "high", Severity.CRITICAL)]
    assert tell(state, alerted(over(RULE), episode=1), job=second)[0][0] is AlertKind.CLEARED


@pytest.mark.parametrize(
    "verdict",
    [
        quiet(RULE),
        fired(RULE, ALWAYS),
        alerted(fired(RULE, ALWAYS), episode=3),
        alerted(replace(over(RULE), result=replace(over(RULE).result, status=Status.ERROR))),
    ],
)
def test_follow_up_needs_an_alerted_current_working_finding(
    verdict: RuleOutcome,
) -> None:
    assert tell(JobState(), verdict, wasted=0.9) == []


def test_findings_that_end_with_their_job_are_not_alerted() -> None:
    closing = replace(RECORD, closing=True)
    assert tell(JobState(), alerted(over(RULE)), alerted(fired("CPUBottleneck", ALWAYS)), job=closing) == []


def test_given_a_job_without_data_when_told_then_nothing_is() -> None:
    assert tell(JobState(), alerted(over(RULE)), paid_time=replace(ACCOUNT, watermark_s=None)) == []


def test_executions_of_one_fire_have_own_names_and_its_id() -> None:
    kinds = [
        (AlertKind.FIRE, None),
        (AlertKind.ESCALATION, "high"),
        (AlertKind.ESCALATION, "critical"),
        (AlertKind.CLEARED, "low"),
    ]
    entries = [
        OutboxEntry(
            "f" * 20,
            0,
            60.0,
            Finding(RULE, "algo-1", "", severity=None if severity is None else Severity(severity)),
            kind=kind,
        )
        for kind, severity in kinds
    ]
    names = [execution_name(entry, "j" * 63) for entry in entries]
    assert len(set(names)) == len({entry.alert_id for entry in entries}) == 4
    assert all(len(name) <= 80 for name in names)
    payloads = [fire_payload(entry, RECORD) for entry in entries]
    assert {payload["fireId"] for payload in payloads} == {"f" * 20}
    assert [payload["alertId"] for payload in payloads] == [entry.alert_id for entry in entries]


def test_every_ninth_run_of_a_minute_compares_severity() -> None:
    """A run of the scheduler may be a few seconds late; a look without a clock always compares."""
    looks = [compares_severity("job", 60.0 * minute + 7.0) for minute in range(30)]
    assert [looks[start : start + 9].count(True) for start in range(22)] == [1] * 22
    assert compares_severity("job", None)
    assert len({compares_severity(f"job-{number}", 0.0) for number in range(40)}) == 2


def test_run_that_compares_severity_is_a_turn_of_a_calm_job() -> None:
    at = [60.0 * minute for minute in range(30)]
    for job in map("job-{}".format, range(10)):
        assert all(is_turn(job, now, SLOW_POLL_EVERY) for now in at if compares_severity(job, now))
