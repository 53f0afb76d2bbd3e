"""Every rule's entry: order, units, parameters that were changed, recommendations, numbers for people."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.judged_jobs import JOB, Node, ended, in_job, judged_job
from tests.support.verdicts import fired, over, quiet
from trainguard.core.records import JobRecord, Status
from trainguard.engine.profiler.framework_session import FrameworkState
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.ledger.bucket import Bucket
from trainguard.render.rule_entry import RuleEntry
from trainguard.report.job.rule_entries import NODES_WITH_DETAILS, rule_entries
from trainguard.rules.low_gpu_utilization.usage import IDLE_TIME, P5
from trainguard.rules.rule_result import Measure
from trainguard.rules.step_outlier.rule import LOST_TIME, OUTLIERS


def entry(verdict: RuleOutcome, job: JobRecord = JOB, node: Node | None = None, **settings: str) -> RuleEntry:
    (found,) = rule_entries(judged_job(verdict, job=job, nodes=[node or Node()], settings=settings))
    return found


def saying(verdict: RuleOutcome, **said: Any) -> RuleOutcome:
    return replace(verdict, result=replace(verdict.result, **said))


def test_findings_come_first_by_rank_then_others_by_status() -> None:
    listed = rule_entries(
        judged_job(
            *map(
                in_job,
                [
                    quiet("OverallSystemUsage", Status.DISABLED),
                    quiet("Dataloader", Status.NOT_APPLICABLE),
                    quiet("StepOutlier", Status.WAITING_FOR_DATA),
                    quiet("BatchSize", Status.WARMING_UP),
                    quiet("LoadBalancing"),
                    over("IOBottleneck", (0.0, 8.0)),
                    fired("LowGPUUtilization", (8.0, None)),
                    fired("CPUBottleneck", (8.0, None)),
                    quiet("GPUMemoryIncrease", Status.ERROR),
                ],
            ),
            nodes=[Node(lost=[(0.0, 10.0, {Bucket.UNEXPLAINED: 0.9})])],
        )
    )
    assert [(each.rule, each.status) for each in listed] == [
        ("CPUBottleneck", "FIRED"),
        ("LowGPUUtilization", "FIRED"),
        ("IOBottleneck", "OK"),
        ("GPUMemoryIncrease", "ERROR"),
        ("LoadBalancing", "OK"),
        ("BatchSize", "WARMING_UP"),
        ("StepOutlier", "WAITING_FOR_DATA"),
        ("Dataloader", "NOT_APPLICABLE"),
        ("OverallSystemUsage", "DISABLED"),
    ]
    assert [each.severity for each in listed[:4]] == ["high", "high", "critical", None]


@pytest.mark.parametrize(
    ("rule", "measure", "unit"),
    [
        ("LowGPUUtilization", None, "%"),
        ("LowGPUUtilization", P5, "%"),
        ("LowGPUUtilization", IDLE_TIME, "min"),
        ("MaxInitializationTime", None, "min"),
        ("GPUMemoryIncrease", None, "percentage points"),
        ("LoadBalancing", None, None),
        ("Dataloader", None, "%"),
        ("StepOutlier", OUTLIERS, "steps"),
        ("StepOutlier", LOST_TIME, "%"),
        ("OwnRule", None, None),
        ("OwnRule", Measure("speed of the fan", "rpm"), "rpm"),
    ],
)
def test_given_a_measure_when_listed_then_it_has_its_unit(rule: str, measure: Measure | None, unit: str | None) -> None:
    verdict = fired(rule, measured=5.0, threshold=10.0, worst="algo-1/gpu0", measure=measure)
    assert entry(verdict).unit == unit
    assert entry(saying(verdict, measured=None)).unit is None


def test_numbers_with_clock_noise_are_rounded() -> None:
    details = {
        "initialization_s": 44.99825692176819,
        "at": (1.00000001, {"x": 1_700_277_419.000991}),
        "gradients": [3.1416e-8, -2.71828e-5, 0.0, float("inf")],
    }
    found = entry(fired("MaxInitializationTime", measured=0.7499709486961365, threshold=20.0, details=details))
    assert found.measured == 0.749971
    assert found.details == {
        "initialization_s": 44.998257,
        "at": [1.0, {"x": 1_700_277_419.000991}],
        "gradients": [3.14e-8, -2.72e-5, 0.0, float("inf")],
    }


def test_settings_that_differ_from_the_documented_are_named() -> None:
    found = entry(fired("BatchSize"), BatchSize_window="100", BatchSize_patience="100")
    assert found.changed == ["patience", "window"]
    assert (found.parameters["window"], found.parameters["window_s"]) == (100, None)
    assert entry(fired("BatchSize")).parameters["window_s"] == 250.0
    assert entry(fired("BatchSize")).changed == []
    wrong = entry(quiet("BatchSize", Status.ERROR), BatchSize_window="-3")
    assert (wrong.changed, wrong.parameters) == ([], {})


@pytest.mark.parametrize(
    ("verdict", "job", "said"),
    [
        (fired("CPUBottleneck", advice="Prefetch."), JOB, "Prefetch."),
        (saying(quiet("Dataloader", Status.NOT_APPLICABLE), advice="End it."), JOB, "End it."),
        (quiet("CPUBottleneck"), JOB, None),
        (quiet("CPUBottleneck", Status.WAITING_FOR_DATA), JOB, None),
        (quiet("CPUBottleneck", Status.WARMING_UP), JOB, None),
        (quiet("CPUBottleneck", Status.NOT_APPLICABLE), JOB, None),
        (quiet("LoadBalancing", Status.NOT_APPLICABLE), JOB, None),
        (quiet("StepOutlier", Status.NOT_APPLICABLE), JOB, "Collect framework metrics next time: what was not "),
        (quiet("StepOutlier", Status.WARMING_UP), ended(), "It needs more than 200 steps of a process: nothing"),
        (quiet("CPUBottleneck", Status.DISABLED), JOB, None),
        (quiet("CPUBottleneck", Status.ERROR), JOB, "Report this fault of TrainGuard: CPUBottleneck is quiet."),
        (
            saying(quiet("LowGPUUtilization", Status.WARMING_UP), data_points=400),
            ended(),
            "Lower LowGPUUtilization_patience_s for jobs as short as this one: it is 1,000 points, which are 8.3 min",
        ),
        (saying(quiet("LowGPUUtilization", Status.WARMING_UP), data_points=1_400), ended(), None),
        (saying(quiet("LowGPUUtilization", Status.WARMING_UP), data_points=400), JOB, None),
    ],
)
def test_recommendation_is_given_where_something_can_be_done(
    verdict: RuleOutcome, job: JobRecord, said: str | None
) -> None:
    found = entry(verdict, job).recommendation
    assert found is None if said is None else (found or "").startswith(said)


def test_correction_of_a_wrong_setting_is_recommended() -> None:
    reason = "BatchSize: parameter BatchSize_window is '-3', expected a whole number from 1 to 2000"
    found = entry(saying(quiet("BatchSize", Status.ERROR), reason=reason), BatchSize_window="-3")
    assert found.recommendation == f"Correct this setting: {reason}."


def test_framework_metrics_are_not_recommended_where_present() -> None:
    node = Node(framework=FrameworkState(watermark_s=1.0))
    assert entry(quiet("Dataloader", Status.NOT_APPLICABLE), node=node).recommendation is None


def test_overview_recommends_a_smaller_instance() -> None:
    verdict = saying(quiet("OverallSystemUsage"), oversized=True)
    assert entry(verdict).recommendation == "Try the job on a smaller instance."
    assert entry(quiet("OverallSystemUsage")).recommendation is None


def test_setting_that_leaves_out_a_rule_is_named() -> None:
    left_out = entry(quiet("CPUBottleneck", Status.DISABLED), rule_to_invoke="StepOutlier")
    assert left_out.recommendation == "Set rule_to_invoke to ProfilerReport to run it with the others."


def test_joint_rule_keeps_the_details_of_its_worst_node() -> None:
    nodes = [Node(name=f"algo-{number}") for number in range(1, NODES_WITH_DETAILS + 11)]
    details = {node.name: {"steps": 7} for node in nodes}
    verdict = fired("StepOutlier", worst="algo-260/algo-260-7 TRAIN", details=details)
    (found,) = rule_entries(judged_job(verdict, nodes=nodes))
    assert (len(found.details), found.nodes_left_out) == (NODES_WITH_DETAILS, 10)
    assert {"algo-260", "algo-1", "algo-255"} <= set(found.details)
    assert "algo-256" not in found.details
