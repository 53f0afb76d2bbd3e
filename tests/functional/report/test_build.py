"""A whole report: from state and with time lines it says the same, and what the time lines add and lack."""

from pathlib import Path

import msgspec
import pytest

from tests.support.reports_of_jobs import JudgedProfile, judge, small
from tests.support.small_job import MINUTES
from trainguard.core.records import JobRecord
from trainguard.engine.diagnosis.case import case_of, diagnose
from trainguard.engine.diagnosis.text import report_verdict
from trainguard.engine.installed import FAMILIES
from trainguard.report.document import Report
from trainguard.report.job.build import build_report

LOW = {"LowGPUUtilization_window": "20", "LowGPUUtilization_patience": "20"}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> JudgedProfile:
    job = JobRecord(
        "small-job", "arn:small", "profiles", "", instance_type="ml.g5.12xlarge", rule_settings=LOW, instance_count=2
    )
    return judge(small(tmp_path_factory.mktemp("job")), job)


def without_times(report: Report) -> Report:
    """Leave out what the scopes differ in."""
    rest = [each for each in report.not_collected if each.what != "Time lines"]
    return msgspec.structs.replace(report, scope="state", timelines=None, not_collected=rest)


def test_both_scopes_are_equal_except_for_the_timelines(judged: JudgedProfile) -> None:
    state, full = judged.state(), judged.full()
    assert (state.report.scope, state.report.timelines) == ("state", None)
    assert full.report.scope == "full"
    assert without_times(state.report) == without_times(full.report)
    assert state.managed == full.managed
    assert "Time lines" in {each.what for each in state.report.not_collected}


def test_built_job_agrees_with_the_profiler_report_row(judged: JudgedProfile) -> None:
    evaluation = judged.evaluation
    streams = FAMILIES.open(evaluation.job.job, evaluation.plan, evaluation.records)
    case, _ = case_of(evaluation.job, evaluation.plan, streams)
    row = report_verdict(case, diagnose(case))
    report, findings, verdicts = judged.state().report, case.findings, case.verdicts
    assert row.result.reason == f"{report.verdict.health} {report.verdict.cost}"
    assert (row.result.advice, row.result.kind) == (report.verdict.change, report.verdict.level)
    assert report.summary.startswith(report.verdict.health)
    assert report.fired == [each.rule for each in verdicts if each.history.times_fired]
    assert [each.rule for each in report.rules][: len(findings)] == [each.rule for each in findings]
    assert {each.rule for each in report.rules} == {each.rule for each in verdicts}
    assert (report.final, report.healthy, report.job.gpus) == (True, False, 4)
    (low,) = (each for each in report.rules if each.rule == "LowGPUUtilization")
    assert low.changed == ["window", "patience"]


def test_lost_parts_are_named_in_either_scope(judged: JudgedProfile) -> None:
    evaluation, lost = judged.evaluation, "algo-2 on 2026-11-21: the profile could not be read."
    job, items = evaluation.job, evaluation.records
    full = build_report(job, items, now=0.0, plan=evaluation.plan, digests=judged.digests[:1], missing=[lost]).report
    assert full.timelines is not None
    assert full.timelines.left_out[0] == lost
    none = build_report(job, items, now=0.0, plan=evaluation.plan, missing=[lost]).report
    (entry,) = (each for each in none.not_collected if each.what == "Time lines")
    assert lost.removesuffix(".") in entry.unknown


def test_cost_without_prices_says_why(tmp_path: Path) -> None:
    report = judge(small(tmp_path), JobRecord("small-job", "arn", "profiles", "")).state().report
    assert (report.cost.spent, report.cost.note) == (None, "No cost: the job's instance type is not known.")
    assert report.job.duration_s == pytest.approx(60 * MINUTES, abs=10.0)


def test_slow_node_of_two_is_billed_over_all_nodes_claimed_once(tmp_path: Path) -> None:
    report = judge(small(tmp_path)).state().report
    findings = {each.rule: each for each in report.findings}
    cause, symptom = findings["LoadBalancing"], findings["LowGPUUtilization"]
    assert cause.cost is not None
    assert cause.wasted_share is not None
    assert report.cost.spent is not None
    assert cause.wasted_share * report.cost.spent == pytest.approx(cause.lost, abs=0.01)
    assert (symptom.nodes_affected, symptom.nodes) == (1, 2)
    assert symptom.cost is None
