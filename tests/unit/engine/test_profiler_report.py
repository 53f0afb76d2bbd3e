"""ProfilerReport's row: the top finding, how many rules could judge, and its own configuration."""

import pytest
from trainguard.engine.verdicts.profiler_report import report_verdict

from tests.support.verdicts import fired, over, quiet
from trainguard.engine.verdicts.findings import rank_findings
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.families.installed import FAMILIES
from trainguard.pricing.cost import Account
from trainguard.records import JobRecord, Status

JOB = JobRecord("job", "arn", "bucket", "", instance_type="ml.p3.2xlarge")
ACCOUNT = Account(JOB.instance_type, 0.0, 36_000.0, 1)


def told(*verdicts: Verdict, **settings: str) -> Verdict:
    plan = FAMILIES.plan(JobRecord("job", "arn", "bucket", "", rule_settings=settings))
    return report_verdict(verdicts, rank_findings(verdicts, ACCOUNT), plan)


def test_given_findings_when_told_then_the_gravest_comes_with_its_cost_and_the_others_by_name() -> None:
    verdict = told(
        fired("LowGPUUtilization", wasted=0.6, advice="Look."),
        fired("CPUBottleneck", wasted=0.4, advice="Prefetch.", worst="algo-1"),
        quiet("StepOutlier", Status.NOT_APPLICABLE),
        quiet("BatchSize"),
    )
    assert shown_status(verdict) is Status.FIRED
    assert verdict.result.reason == (
        "CPUBottleneck (critical): CPUBottleneck fired. It has cost about USD 22.95 of the USD 38.25 spent. "
        "Also: LowGPUUtilization (critical, explained by CPUBottleneck). "
        "4 rules: 3 evaluated, 1 not applicable."
    )
    assert (verdict.result.advice, verdict.result.worst) == ("Prefetch.", "algo-1")
    assert (verdict.result.measured, verdict.result.data_points) == (2.0, 3)
    assert (verdict.history.times_fired, verdict.history.violations, verdict.history.fired_at) == (2, 6, 60.0)


def test_given_a_report_when_told_then_it_has_no_fire_of_its_own_to_alert_or_to_end() -> None:
    assert told(fired("LowGPUUtilization")).history.alerted == -1


@pytest.mark.parametrize(
    ("verdicts", "status", "reason"),
    [
        (
            [quiet("A"), quiet("B", Status.WARMING_UP)],
            Status.OK,
            "No rule has fired. 2 rules: 1 evaluated, 1 warming up.",
        ),
        (
            [quiet("A"), quiet("B", Status.ERROR)],
            Status.ERROR,
            "No rule has fired. 2 rules: 1 evaluated, 1 in error (B).",
        ),
        (
            [quiet("A", Status.WAITING_FOR_DATA)],
            Status.WAITING_FOR_DATA,
            "No rule has fired. 1 rule: 0 evaluated, 1 wait",
        ),
        ([quiet("A", Status.DISABLED)], Status.NOT_APPLICABLE, "No rule has fired. 1 rule: 0 evaluated, 1 disabled."),
        (
            [over("A", wasted=0.4)],
            Status.OK,
            "A (high, over now): A is fine again. It has cost about USD 15.30 of the USD 38.25 spent",
        ),
        (
            [fired("A"), quiet("B", Status.ERROR)],
            Status.FIRED,
            "A (medium): A fired. 2 rules: 1 evaluated, 1 in error (B).",
        ),
    ],
)
def test_given_verdicts_when_told_then_the_status_is_the_first_that_a_person_must_know(
    verdicts: list[Verdict], status: Status, reason: str
) -> None:
    verdict = told(*verdicts)
    assert shown_status(verdict) is status
    assert verdict.result.reason.startswith(reason)


def test_given_a_wrong_setting_of_the_report_when_told_then_its_row_says_so_and_the_rules_run() -> None:
    verdict = told(quiet("A"), rule_to_invoke="NoSuchRule")
    assert verdict.result.status is Status.ERROR
    assert "rule_to_invoke is 'NoSuchRule'" in verdict.result.reason


def test_given_one_rule_to_invoke_when_planned_then_it_alone_runs_of_the_profilers() -> None:
    plan = FAMILIES.plan(JobRecord("job", "arn", "bucket", "", rule_settings={"rule_to_invoke": "stepoutlier"}))
    assert [rule.name for rule in plan.rules_of("profiler")] == ["StepOutlier"]
    assert "CPUBottleneck" in plan.disabled
    assert "StepOutlier" not in plan.disabled
    assert FAMILIES.plan(JobRecord("job", "arn", "bucket", "")).disabled == ()
