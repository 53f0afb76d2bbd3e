"""The fleet's document: what wastes most, which rules fire, the trend; bounded."""

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from tests.support.fleets import (
    FLEET,
    HOSTILE,
    HOUR_S,
    MONDAY,
    P3,
    Rows,
    fleet_of,
    found,
    hostile,
    job,
    many,
    quiet,
    report_row,
    with_rows,
)
from tests.support.html_pages import Page
from trainguard.core.finding import Finding, Severity
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status
from trainguard.pricing.table import InstanceRow, PriceTable
from trainguard.report.document import encode_schema
from trainguard.report.fleet.document import FleetReport, encode_fleet, fleet_schema
from trainguard.report.fleet.facts import OWNERS_SHOWN
from trainguard.report.fleet.fleet import stop_was_made
from trainguard.report.html.fleet import render_fleet

WEEK_S = 7 * 24 * HOUR_S
LOW = "LowGPUUtilization"
PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas" / "fleet-1.json"


def test_jobs_are_ordered_by_money_lost() -> None:
    small, large, fine = job("small", hours=2.0), job("large", nodes=4), job("fine")
    report = fleet_of(
        with_rows(fine, quiet(fine, LOW)),
        with_rows(small, found(small, wasted=90.0)),
        with_rows(large, found(large, wasted=50.0), found(large, "StepOutlier", wasted=20.0)),
    )
    assert [each.job for each in report.jobs] == ["large", "small", "fine"]
    top = report.jobs[0]
    assert (top.wasted_share, top.instance_hours, top.spent, top.lost) == (0.5, 40.0, 153.0, 76.5)
    assert top.fired == ["LowGPUUtilization", "StepOutlier"]
    assert (report.jobs[2].lost, report.jobs[2].wasted_share, report.jobs[2].severity) == (0.0, 0.0, None)
    totals = report.totals
    assert (totals.jobs, totals.active, totals.judged, totals.with_findings, totals.fires) == (3, 0, 3, 2, 3)
    assert (totals.instance_hours, totals.spent, totals.lost) == (52.0, 198.9, 83.39)
    assert totals.wasted_share == round((20.0 + 1.8) / 52.0, 4)
    assert (totals.currency, totals.unpriced) == ("USD", 0)


def test_overlapping_findings_cost_as_much_as_the_worst_alone() -> None:
    of = job()
    report = fleet_of(with_rows(of, found(of, wasted=60.0), found(of, "CPUBottleneck", wasted=55.0)))
    assert report.jobs[0].wasted_share == 0.6
    assert report.totals.lost == 22.95
    assert {rule.rule: rule.lost for rule in report.rules} == {"LowGPUUtilization": 22.95, "CPUBottleneck": 21.04}


@pytest.mark.parametrize(
    ("changes", "hours"),
    [
        ({"instance_type": None}, 10.0),
        ({"instance_type": "ml.unheard-of.large"}, 10.0),
        ({"started_at": None}, None),
        ({"last_object_at": None}, None),
    ],
)
def test_job_without_a_price_is_ranked_by_its_waste(changes: dict[str, Any], hours: float | None) -> None:
    of, fine = replace(job("unpriced"), **changes), replace(job("fine"), **changes)
    report = fleet_of(with_rows(fine), with_rows(of, found(of)))
    assert [each.job for each in report.jobs] == ["unpriced", "fine"]
    assert (report.jobs[0].lost, report.jobs[0].spent, report.jobs[0].instance_hours) == (None, None, hours)
    assert report.jobs[0].wasted_share == 0.6
    assert (report.totals.lost, report.totals.unpriced) == (None, 2)
    assert any("No cost for 2 of 2 jobs" in note for note in report.notes)


def test_rule_without_a_known_waste_makes_nothing_up() -> None:
    of = job()
    report = fleet_of(with_rows(of, found(of, "GPUMemoryIncrease", wasted=None, severity=Severity.MEDIUM)))
    told = report.jobs[0]
    assert (told.wasted_share, told.lost, told.severity) == (None, None, "medium")
    assert (report.totals.wasted_share, report.totals.lost, report.totals.with_findings) == (None, None, 1)


def test_given_prices_when_summed_up_then_money_is_in_theirs() -> None:
    row = InstanceRow(per_hour=100.0, source="mine", date=datetime.date(2026, 1, 1))
    prices = PriceTable(region="here", currency="EUR", instances={P3: row})
    of = job()
    report = fleet_of(with_rows(of, found(of)), fleet=replace(FLEET, prices=prices))
    assert (report.totals.currency, report.totals.lost) == ("EUR", 600.0)
    assert report.notes[0] == "Prices: mine, here, 2026-01-01."


def test_replays_and_old_jobs_are_skipped() -> None:
    new, old = job("new"), job("old", began=MONDAY - WEEK_S)
    runs = job("runs", began=MONDAY - WEEK_S, status=JobStatus.IN_PROGRESS)
    again = job("new@replay-20261123T000000Z")
    jobs = [with_rows(each) for each in (new, old, runs, again)]
    since = replace(FLEET, since=MONDAY)
    assert {each.job for each in fleet_of(*jobs, fleet=since).jobs} == {"new", "runs"}
    assert {each.job for each in fleet_of(*jobs).jobs} == {"new", "old", "runs"}
    assert fleet_of(*jobs, fleet=since).since == "2026-11-23T00:00:00.000Z"
    edge = job("edge", began=MONDAY - HOUR_S, hours=1.0)
    assert since.wants(edge)
    assert not since.wants(replace(edge, last_object_at=None, ended_at=MONDAY - 0.001))


def test_rules_that_fired_on_most_jobs_come_first() -> None:
    one, two, three = job("one"), job("two", nodes=2), job("three")
    report = fleet_of(
        with_rows(one, found(one, "CPUBottleneck", times=3), quiet(one, "BatchSize", Status.ERROR)),
        with_rows(two, found(two, "CPUBottleneck", severity=None), found(two, "StepOutlier", wasted=None)),
        with_rows(three, quiet(three, "CPUBottleneck"), quiet(three, "StepOutlier", Status.NOT_APPLICABLE)),
    )
    assert [rule.rule for rule in report.rules] == ["CPUBottleneck", "StepOutlier", "BatchSize"]
    cpu, steps, batch = report.rules
    assert (cpu.jobs_fired, cpu.jobs_judged, cpu.times_fired, cpu.worst) == (2, 3, 4, "two")
    assert (steps.jobs_fired, steps.jobs_judged, steps.lost) == (1, 1, None)
    assert (batch.jobs_fired, batch.jobs_judged, batch.jobs_in_error, batch.worst) == (0, 0, 1, None)


def test_cell_of_a_rule_has_its_word_for_jobs_with_findings() -> None:
    one, two = job("one"), job("two")
    report = fleet_of(
        with_rows(one, found(one, "CPUBottleneck", severity=Severity.CRITICAL), quiet(one, "StepOutlier")),
        with_rows(two, found(two, "StepOutlier", wasted=1.0, severity=None), found(two, "CPUBottleneck", wasted=2.0)),
    )
    assert report.heat.rules == ["CPUBottleneck", "StepOutlier"]
    assert list(report.heat.rows.items()) == [
        ("one", ["critical", "OK"]),
        ("two", ["high", "over"]),
    ]


def test_jobs_are_in_the_week_of_their_start_without_gaps() -> None:
    times = (MONDAY, MONDAY - 0.001, MONDAY - 2 * WEEK_S, MONDAY + WEEK_S - 0.001)
    jobs = [job(f"job-{number}", began=at, hours=1.0) for number, at in enumerate(times)]
    report = fleet_of(with_rows(jobs[0], found(jobs[0])), *(with_rows(each) for each in jobs[1:]))
    weeks = {week.name: (week.jobs, week.with_findings) for week in report.weeks}
    assert weeks == {"2026-11-09": (1, 0), "2026-11-16": (1, 0), "2026-11-23": (2, 1)}
    assert list(weeks) == sorted(map(str, weeks))
    assert report.weeks[-1].lost == 2.29
    gap = fleet_of(with_rows(jobs[0]), with_rows(jobs[2]))
    assert [(week.name, week.jobs) for week in gap.weeks] == [("2026-11-09", 1), ("2026-11-16", 0), ("2026-11-23", 1)]


def test_instance_type_with_the_most_loss_comes_first() -> None:
    one, two = job("one"), job("two", instance_type=None)
    report = fleet_of(with_rows(two), with_rows(one, found(one)))
    assert [(each.name, each.jobs, each.lost) for each in report.instance_types] == [
        (P3, 1, 22.95),
        (None, 1, None),
    ]


def owned(name: str, *, began: float = MONDAY, **owners: str) -> JobRecord:
    return replace(job(name, began=began), owners=owners)


def test_owners_are_ordered_by_loss_with_unowned_jobs_last() -> None:
    ann, bob, other, bare = owned("a", user="ann"), owned("b", user="bob"), owned("c", user="ann"), job("d")
    report = fleet_of(
        with_rows(ann, found(ann, wasted=10.0)),
        with_rows(other),
        with_rows(bob, found(bob, wasted=50.0)),
        with_rows(bare, found(bare, wasted=90.0)),
    )
    told = [(each.kind, each.name, each.jobs, each.with_findings, each.spent, each.lost) for each in report.owners]
    assert told == [
        ("user", "bob", 1, 1, 38.25, 19.12),
        ("user", "ann", 2, 1, 76.5, 3.83),
        ("user", None, 1, 1, 38.25, 34.43),
    ]
    assert sum(each.jobs for each in report.owners) == report.totals.jobs


def test_several_platforms_are_summed_up_and_a_single_one_is_not() -> None:
    slurm, cloud = (replace(job(name), platform=name, queue="gpu") for name in ("slurm", "sagemaker"))
    report = fleet_of(with_rows(slurm, found(slurm, wasted=50.0)), with_rows(cloud))
    assert [(each.kind, each.name, each.lost) for each in report.owners] == [
        ("platform", "slurm", 19.12),
        ("platform", "sagemaker", None),
    ]
    assert fleet_of(with_rows(slurm, found(slurm))).owners == []
    assert "By platform, those that lost most first" in Page(render_fleet(report)).text


def test_given_no_owner_when_summed_up_then_there_is_no_section() -> None:
    report = fleet_of(with_rows(job(), found(job())))
    assert report.owners == []
    assert 'id="owners"' not in render_fleet(report)


def test_jobs_of_an_owner_are_in_the_week_of_their_start() -> None:
    jobs = [owned(f"job-{week}", began=MONDAY - week * WEEK_S, team="nlp") for week in (0, 2, 20)]
    report = fleet_of(with_rows(jobs[0], found(jobs[0])), *(with_rows(each, quiet(each, LOW)) for each in jobs[1:]))
    (team,) = report.owners
    assert [(week.name, week.jobs, week.with_findings, week.lost) for week in team.weeks] == [
        ("2026-07-06", 1, 0, 0.0),
        ("2026-11-09", 1, 0, 0.0),
        ("2026-11-23", 1, 1, 22.95),
    ]
    page = Page(render_fleet(report))
    assert "owners" in [attributes["id"] for attributes in page.of("section")]
    assert "Lost, week of 2026-11-23" in page.text


def test_excess_owners_are_summed_up_in_a_note() -> None:
    jobs = [owned(f"job-{each:02d}", project=f"project-{each:02d}") for each in range(OWNERS_SHOWN + 2)]
    report = fleet_of(*(with_rows(each, found(each, wasted=50.0 - at)) for at, each in enumerate(jobs)))
    assert [each.name for each in report.owners] == [f"project-{each:02d}" for each in range(OWNERS_SHOWN)]
    lost = sum(round(38.25 * (50.0 - at) / 100.0, 2) for at in (OWNERS_SHOWN, OWNERS_SHOWN + 1))
    assert report.notes[-1] == (
        f"2 more projects that lost less than those shown are not listed. They lost USD {lost:.2f}."
    )


def test_jobs_without_a_verdict_are_listed_with_the_reason() -> None:
    waits, gone = job("waits"), job("gone", status=JobStatus.FAILED)
    jobs: list[tuple[JobRecord, Rows]] = [with_rows(waits, judged=0), (gone, [])]
    report = fleet_of(*jobs)
    told = {each.job: (each.status, each.summary) for each in report.unjudged}
    assert told == {
        "waits": ("Completed", "No rule has fired."),
        "gone": ("Failed", "No row of it is there: none was written yet, or they have expired."),
    }
    assert report.totals.judged == 0
    assert report.jobs[0].wasted_share is None


@pytest.mark.parametrize(
    ("action", "made"),
    [
        ("Training job stopped: the owner allows it.", True),
        ("alert sent without its details; training job stopped", True),
        ("alert failed (PublishAlert: x); training job stopped: yes", True),
        ("alert failed (PublishAlert: x); training job stopped: no", False),
        ("Training job not stopped: it is not tagged.", False),
        ("Stopping the training job failed: AccessDenied: the training job stopped: maybe", False),
        ("alert sent without its details", False),
        (None, False),
    ],
)
def test_action_says_whether_the_job_was_stopped(action: str | None, made: bool) -> None:
    assert stop_was_made(action) is made
    of = job()
    report = fleet_of(with_rows(of, found(of, action=action)))
    told = [(stop.job, stop.rule, stop.action) for stop in report.stops]
    assert told == ([(of.job, "LowGPUUtilization", action)] if made else [])
    assert report.totals.stops == len(told)


def test_job_with_a_written_report_is_linked() -> None:
    done, runs, fired = (
        job("done"),
        job("runs", status=JobStatus.IN_PROGRESS),
        job("fired", status=JobStatus.IN_PROGRESS),
    )
    written = replace(found(fired), report_uri="s3://profiles/x")
    told = {each.job: each for each in fleet_of(with_rows(done), with_rows(runs), with_rows(fired, written)).jobs}
    assert told["done"].report == "s3://profiles/jobs/done/rule-output/TrainGuardReport/report.html"
    assert (told["done"].console or "").startswith("https://eu-west-1.console.aws.amazon.com/s3/object/profiles?")
    assert told["runs"].report is None
    assert told["fired"].report is not None


def test_published_schema_is_the_generated_one() -> None:
    made = encode_schema(fleet_schema())
    assert PUBLISHED.read_bytes() == made, (
        "python -m trainguard.report.fleet.document > docs/schemas/fleet-1.json renews it"
    )


@pytest.mark.parametrize("jobs", [[], many(40), [hostile(HOSTILE)], [(job("gone"), [])]])
def test_encoded_fleet_validates_and_reads_back(jobs: list[tuple[JobRecord, Rows]]) -> None:
    report = fleet_of(*jobs)
    body = encode_fleet(report)
    jsonschema.validate(json.loads(body), json.loads(PUBLISHED.read_bytes()))
    assert msgspec.json.decode(body, type=FleetReport) == report


def test_field_unknown_to_the_schema_is_refused() -> None:
    document = json.loads(encode_fleet(fleet_of(*many(3))))
    document["totals"]["jbos"] = 3
    with pytest.raises(jsonschema.ValidationError, match="jbos"):
        jsonschema.validate(document, json.loads(PUBLISHED.read_bytes()))


def test_row_written_only_by_the_fire_path_is_a_finding() -> None:
    of = job(status=JobStatus.IN_PROGRESS)
    row = RuleRow(of.job, Finding("BatchSize", None, "Small."), Status.FIRED, fired_at=MONDAY)
    report = fleet_of((of, [replace(row, fire_id="f1")]))
    assert (report.totals.with_findings, report.unjudged) == (1, [])
    assert report.jobs[0].fired == ["BatchSize"]


def test_job_row_without_a_ledger_has_an_unknown_loss() -> None:
    """Whatever the rules' rows say: what a finding claims is a part of what was lost."""
    of = job()
    (one,) = fleet_of((of, [quiet(of, LOW), report_row(of)])).jobs
    assert (one.wasted_share, one.lost, one.spent) == (None, None, 38.25)
    (one,) = fleet_of((of, [found(of, "Straggler", wasted=20.0), report_row(of, lost=30.0)])).jobs
    assert (one.wasted_share, one.lost) == (0.3, 11.47)


def test_job_of_a_folder_links_no_report() -> None:
    of = job(bucket="")
    (one,) = fleet_of(with_rows(of, found(of))).jobs
    assert (one.report, one.console) == (None, None)
