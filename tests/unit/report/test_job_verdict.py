"""The verdict for other programs: idle, wasted, at risk, healthy, unknown; unknown wherever something is uncertain."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from tests.support.fleets import HOUR_S, MONDAY, found, job, quiet, report_row
from tests.support.memory import MemoryWorld
from trainguard.core.finding import Episode, Finding, Severity
from trainguard.core.job_policy import AlertPolicy, JobPolicy, StopPolicy
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status
from trainguard.report.document import encode_schema
from trainguard.report.job_verdict import (
    LACKING_SHARE,
    STALE_S,
    SURE_AFTER_S,
    job_verdict,
    verdict_of,
)
from trainguard.report.verdict_document import Certainty, JobVerdict, Missing, VerdictWord, WouldDo, verdict_schema
from trainguard.rules.low_gpu_utilization.usage import HELD_TIME, IDLE_TIME, P95, QUIET_MEAN

NOW = MONDAY + 10 * HOUR_S
PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas" / "verdict-1.json"
RUNNING = job(status=JobStatus.IN_PROGRESS, nodes=2)
LOW = "LowGPUUtilization"


def low(
    of: JobRecord, node: str | None, quantity: str | None = IDLE_TIME.what, *, start: float = MONDAY + HOUR_S
) -> RuleRow:
    """Return the row of LowGPUUtilization on a node that idles, or on the job; fine where ``quantity`` is None."""
    return RuleRow(
        job=of.job,
        finding=Finding(
            rule=LOW,
            node=node,
            reason="No GPU is used.",
            severity=None if quantity is None else Severity.CRITICAL,
            advice="Stop it.",
            episodes=() if quantity is None else (Episode(start=start, end=None),),
        ),
        status=Status.OK if quantity is None else Status.FIRED,
        quantity=quantity,
        wasted_percent=None if quantity is None else 90.0,
        times_fired=0 if quantity is None else 1,
        evaluated_through=NOW,
    )


def idle(of: JobRecord = RUNNING, *nodes: str | None) -> list[RuleRow]:
    """Return the rows of a job of which each node idles by one of the measures."""
    kinds = nodes or (IDLE_TIME.what, QUIET_MEAN.what)
    rows = [low(of, f"algo-{number}", each, start=MONDAY + number * HOUR_S) for number, each in enumerate(kinds, 1)]
    return [report_row(of, lost=90.0), low(of, None), *rows]


def said(of: JobRecord, *rows: RuleRow, now: float = NOW) -> JobVerdict:
    return verdict_of(of, rows, now=now)


def test_job_with_no_working_node_is_idle_since_the_last_work() -> None:
    verdict = said(RUNNING, report_row(RUNNING, lost=90.0), *idle()[1:])
    assert (verdict.verdict, verdict.certainty, verdict.rules) == (VerdictWord.IDLE, Certainty.HIGH, [LOW])
    assert verdict.since == "2026-11-23T02:00:00.000Z"
    assert verdict.idle_nodes == ["algo-1", "algo-2"]
    assert (verdict.why, verdict.advice) == ("No GPU is used.", "Stop it.")
    assert (verdict.spent, verdict.lost, verdict.currency, verdict.wasted_share) == (76.5, 68.85, "USD", 0.9)
    assert said(RUNNING, report_row(RUNNING), *idle()[1:]).wasted_share is None


@pytest.mark.parametrize(
    "nodes",
    [(IDLE_TIME.what, None), (IDLE_TIME.what, P95.what), (IDLE_TIME.what,)],
    ids=["one works", "one is low", "one is not known"],
)
def test_working_or_unknown_node_makes_the_job_not_idle(nodes: tuple[str | None]) -> None:
    assert said(RUNNING, *idle(RUNNING, *nodes)).verdict is VerdictWord.WASTED


def test_idle_node_beside_a_working_one_is_named() -> None:
    assert said(RUNNING, *idle(RUNNING, IDLE_TIME.what, None)).idle_nodes == ["algo-1"]
    assert said(RUNNING, *idle(RUNNING, P95.what, None)).idle_nodes == []
    ended = job(nodes=2)
    assert said(ended, *idle(ended)).idle_nodes == []


def test_idle_node_that_holds_memory_is_named() -> None:
    verdict = said(RUNNING, *idle(RUNNING, HELD_TIME.what, IDLE_TIME.what))
    assert (verdict.verdict, verdict.idle_nodes) == (VerdictWord.IDLE, ["algo-1", "algo-2"])
    assert verdict.memory_held_on == ["algo-1"]
    assert said(job(nodes=2), *idle(job(nodes=2), HELD_TIME.what)).memory_held_on == []


def test_costly_findings_are_waste_and_others_are_risks() -> None:
    assert said(RUNNING, report_row(RUNNING), found(RUNNING, "Dataloader", wasted=20.0)).verdict is VerdictWord.WASTED
    risk = said(RUNNING, report_row(RUNNING), found(RUNNING, "GPUMemoryIncrease", wasted=None))
    assert (risk.verdict, risk.lost, risk.wasted_share) == (VerdictWord.AT_RISK, None, None)


def test_ended_finding_is_healthy_only_in_a_running_job() -> None:
    assert said(RUNNING, report_row(RUNNING), found(RUNNING, severity=None)).verdict is VerdictWord.HEALTHY
    ended = job()
    assert said(ended, report_row(ended), found(ended, severity=None)).verdict is VerdictWord.WASTED


def test_attention_is_waste_only_where_nothing_was_found() -> None:
    report = report_row(RUNNING)
    attention = replace(report, finding=replace(report.finding, finding_kind="attention"))
    assert said(RUNNING, attention, low(RUNNING, None, None)).verdict is VerdictWord.WASTED
    assert said(RUNNING, attention, found(RUNNING, severity=None)).verdict is VerdictWord.HEALTHY


@pytest.mark.parametrize(
    ("changes", "rows", "now", "why"),
    [
        ({}, False, NOW, "No rule has judged the job yet."),
        ({"policy": JobPolicy(evaluated=False, why="the tag says so")}, True, NOW, "the tag says so"),
        ({}, True, NOW + STALE_S + 1.0, "is of 2026-11-23T10:00:00.000Z"),
        ({}, True, NOW - STALE_S - 1.0, "is of 2026-11-23T10:00:00.000Z"),
    ],
    ids=["no row", "not evaluated", "late", "a clock ahead"],
)
def test_doubt_makes_the_verdict_unknown_without_an_action(
    changes: dict[str, Any], rows: bool, now: float, why: str
) -> None:
    of = replace(RUNNING, stop_allowed=True, **changes)
    verdict = said(of, *(idle(of) if rows else ()), now=now)
    assert (verdict.verdict, verdict.certainty, verdict.would_do) == (VerdictWord.UNKNOWN, None, WouldDo.NOTHING)
    assert why in verdict.why


def test_unknown_of_old_data_says_what_held_until_then() -> None:
    verdict = said(RUNNING, *idle(RUNNING), now=NOW + STALE_S + 1.0)
    assert (verdict.verdict, verdict.rules, verdict.advice) == (VerdictWord.UNKNOWN, [LOW], "Stop it.")
    assert verdict.why.endswith("Until then: No GPU is used.")
    clean = said(RUNNING, report_row(RUNNING), quiet(RUNNING, LOW), now=NOW + STALE_S + 1.0)
    assert (clean.verdict, clean.rules, clean.advice) == (VerdictWord.UNKNOWN, [], None)


@pytest.mark.parametrize("status", [Status.WARMING_UP, Status.WAITING_FOR_DATA, Status.DISABLED])
def test_unjudged_gpus_make_a_verdict_without_findings_unknown(status: Status) -> None:
    verdict = said(RUNNING, report_row(RUNNING), quiet(RUNNING, "GPUHealth"), quiet(RUNNING, LOW, status))
    assert (verdict.verdict, verdict.would_do) == (VerdictWord.UNKNOWN, WouldDo.NOTHING)
    assert "GPUs work" in verdict.why
    found_too = said(RUNNING, report_row(RUNNING), found(RUNNING, "Straggler"), quiet(RUNNING, LOW, status))
    assert found_too.verdict is VerdictWord.WASTED


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([quiet(RUNNING, "GPUHealth")], "No rule has judged whether GPUs work."),
        ([quiet(RUNNING, LOW, Status.NOT_APPLICABLE)], "No rule has judged whether GPUs work: Fine."),
        ([quiet(RUNNING, LOW), quiet(RUNNING, "BatchSize", Status.WARMING_UP)], "BatchSize has too little data"),
        ([quiet(RUNNING, LOW), quiet(RUNNING, "BatchSize", Status.DISABLED)], "BatchSize is disabled."),
    ],
)
def test_unjudged_rules_lower_the_certainty_of_a_healthy_job(rows: list[RuleRow], why: str) -> None:
    verdict = said(RUNNING, report_row(RUNNING), *rows)
    assert (verdict.verdict, verdict.certainty) == (VerdictWord.HEALTHY, Certainty.MEDIUM)
    assert str(verdict.certainty_why).startswith(why)


def test_row_without_data_makes_the_verdict_unknown() -> None:
    verdict = said(RUNNING, report_row(RUNNING, judged=0, reason="No data yet."), quiet(RUNNING, LOW))
    assert (verdict.verdict, verdict.why) == (VerdictWord.UNKNOWN, "No data yet.")


@pytest.mark.parametrize(
    ("changes", "rows", "now", "missing"),
    [
        ({}, [], NOW, [Missing.GPU_SAMPLES, Missing.LOSSES]),
        ({"policy": JobPolicy(evaluated=False, why="it says so")}, [], NOW, [Missing.EVALUATION]),
        ({}, [low(RUNNING, None, None)], NOW + STALE_S + 1.0, [Missing.NEWER_DATA]),
        ({}, [quiet(RUNNING, LOW, Status.WARMING_UP)], NOW, [Missing.MORE_TIME]),
        ({}, [quiet(RUNNING, LOW, Status.DISABLED)], NOW, [Missing.ENABLED_RULES]),
        ({}, [quiet(RUNNING, LOW), quiet(RUNNING, "BatchSize", Status.ERROR)], NOW, [Missing.WORKING_RULES]),
        ({}, [replace(quiet(RUNNING, LOW), counters={"devices_not_judged": 8})], NOW, [Missing.DEVICES]),
        ({}, [replace(quiet(RUNNING, LOW), counters={"runs_not_judged": 1})], NOW, [Missing.ONE_WRITER]),
        ({}, [replace(quiet(RUNNING, LOW), counters={"bad_objects": 99})], NOW, [Missing.OBJECTS]),
        ({}, [quiet(RUNNING, LOW)], NOW, [Missing.MORE_TIME]),
    ],
)
def test_unknown_names_what_is_missing(
    changes: dict[str, Any], rows: list[RuleRow], now: float, missing: list[Missing]
) -> None:
    of = replace(RUNNING, **changes)
    report = report_row(of, judged=0, reason="No data yet.")
    verdict = said(of, replace(report, finding=replace(report.finding, finding_kind="unknown")), *rows, now=now)
    assert (verdict.verdict, verdict.missing) == (VerdictWord.UNKNOWN, missing)


def test_verdict_of_a_late_run_of_an_ended_job_is_known() -> None:
    ended = job()
    assert said(ended, report_row(ended), quiet(ended, LOW), now=NOW + 99 * HOUR_S).verdict is VerdictWord.HEALTHY


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([quiet(RUNNING, "BatchSize", Status.ERROR)], "BatchSize could not judge."),
        ([replace(quiet(RUNNING, "BatchSize"), counters={"gaps": 2})], "2 objects of the profile"),
    ],
)
def test_missing_data_lowers_the_certainty(rows: list[RuleRow], why: str) -> None:
    verdict = said(RUNNING, report_row(RUNNING), quiet(RUNNING, LOW), *rows)
    assert (verdict.verdict, verdict.certainty) == (VerdictWord.HEALTHY, Certainty.MEDIUM)
    assert why in str(verdict.certainty_why)


@pytest.mark.parametrize("counter", ["gaps", "bad_objects", "empty_objects"])
def test_much_lost_profile_makes_a_clean_verdict_unknown(counter: str) -> None:
    row = report_row(RUNNING)
    minutes = (row.evaluated_through or 0.0) - (RUNNING.started_at or 0.0)
    much = int(minutes / 60.0 * (RUNNING.instance_count or 1) * LACKING_SHARE) + 1
    lost = replace(row, counters={counter: much})
    few = replace(row, counters={counter: 1})
    assert said(RUNNING, lost, quiet(RUNNING, LOW)).verdict is VerdictWord.UNKNOWN
    assert said(RUNNING, few, quiet(RUNNING, LOW)).certainty is Certainty.MEDIUM
    assert said(RUNNING, lost, low(RUNNING, None, start=NOW - HOUR_S)).verdict is not VerdictWord.UNKNOWN


@pytest.mark.parametrize(("lasted", "certainty"), [(SURE_AFTER_S - 1.0, "medium"), (SURE_AFTER_S, "high")])
def test_certainty_follows_the_duration(lasted: float, certainty: str) -> None:
    of = replace(RUNNING, instance_count=1)
    rows = [report_row(of), low(of, None, start=NOW - lasted), low(of, "algo-1", start=NOW - lasted)]
    assert said(of, *rows).certainty == certainty


@pytest.mark.parametrize(
    ("changes", "expected", "why"),
    [
        ({"stop_allowed": True}, WouldDo.STOP, "allowed a stop by LowGPUUtilization"),
        ({}, WouldDo.ALERT, "has not allowed stops"),
        ({"resources": ("batch-job/1-2",)}, WouldDo.ALERT, "by the tags of the 1 batch job that"),
        ({"resources": ("instance/i-1", "instance/i-2")}, WouldDo.ALERT, "by the tags of the 2 instances that"),
        (
            {"resources": ("batch-job/1",), "policy": JobPolicy(stops=StopPolicy(dry_run=True))},
            WouldDo.ALERT,
            "dry run",
        ),
        ({"stop_allowed": True, "policy": JobPolicy(stops=StopPolicy(rules=("Dataloader",)))}, WouldDo.ALERT, LOW),
        ({"stop_allowed": True, "policy": JobPolicy(stops=StopPolicy(dry_run=True))}, WouldDo.ALERT, "dry run"),
        ({"stop_allowed": True, "policy": JobPolicy(alerts=AlertPolicy(staged=("all",)))}, WouldDo.NOTHING, "staged"),
        ({"stop_allowed": True, "active": False, "status": JobStatus.STOPPED}, WouldDo.NOTHING, "has ended"),
    ],
    ids=["allowed", "not allowed", "batch", "instances", "batch, dry run", "other rule", "dry run", "staged", "ended"],
)
def test_proposed_action_follows_the_settings_of_the_owner(
    changes: dict[str, Any], expected: WouldDo, why: str
) -> None:
    of = replace(RUNNING, **changes)
    verdict = said(of, *idle(of))
    assert verdict.would_do is expected
    assert why in verdict.would_do_why


def test_node_rows_are_read_only_where_they_decide() -> None:
    world = MemoryWorld()
    world.jobs.register(RUNNING)
    assert job_verdict(world.jobs, world.rows, "nobody", now=NOW).verdict is VerdictWord.UNKNOWN
    world.rows.publish(idle())
    assert job_verdict(world.jobs, world.rows, RUNNING.job, now=NOW).verdict is VerdictWord.IDLE


@pytest.mark.parametrize("rows", [[], idle(), [report_row(RUNNING), quiet(RUNNING, LOW)]])
def test_every_encoded_verdict_matches_the_published_schema(rows: list[RuleRow]) -> None:
    schema = json.loads(PUBLISHED.read_bytes())
    jsonschema.validate(json.loads(msgspec.json.encode(said(RUNNING, *rows))), schema)
    assert encode_schema(verdict_schema()) == PUBLISHED.read_bytes(), (
        "python -m trainguard.report.verdict_document > docs/schemas/verdict-1.json renews it"
    )
