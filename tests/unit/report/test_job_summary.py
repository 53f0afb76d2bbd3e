"""The job as a whole: parts of its time are given where both ends were seen, and never made up."""

from dataclasses import replace

import msgspec
import pytest

from tests.support.judged_jobs import JOB, START, Node, ended, judged_job
from tests.support.ledgers import HOUR_S
from trainguard.core.records import JobRecord, JobStatus
from trainguard.engine.profiler.framework_session import FrameworkState
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.report.document import Span
from trainguard.report.job.build import job_summary
from trainguard.rules.framework_events import ProcessLoop
from trainguard.rules.overall_framework_metrics.rule import FrameworkTimeState
from trainguard.rules.step_outlier.rule import StepOutlier
from trainguard.rules.step_outlier.series import StepSeries, StepsState


def at_us(seconds: float) -> int:
    return int((START + seconds) * 1_000_000)


def stepping(first_s: float = 600.0, last_s: float = 9 * HOUR_S) -> FrameworkState:
    """Return a framework stream with steps in between, whose second process has none."""
    loops = [ProcessLoop("algo-1-7", at_us(first_s), at_us(last_s), 5), ProcessLoop("algo-1-8")]
    series = [
        StepSeries("algo-1-7", "Step:ModeKeys.TRAIN", dropped=100, steps=900),
        StepSeries("algo-1-7", "Step:ModeKeys.EVAL", dropped=20),
    ]
    return FrameworkState(
        watermark_s=START + 10 * HOUR_S,
        first_step_us=at_us(first_s),
        stored_rules={
            "OverallFrameworkMetrics": StoredRule(msgspec.msgpack.encode(FrameworkTimeState(loops=loops))),
            StepOutlier.name: StoredRule(msgspec.msgpack.encode(StepsState(series=series, steps_not_judged=3))),
        },
    )


def test_three_parts_of_the_time_add_up_to_the_job() -> None:
    summary = job_summary(judged_job(job=ended(), nodes=[Node(framework=stepping(), gpus=8)]))
    parts = (summary.initialization, summary.training_loop, summary.finalization)
    assert [part and part.duration_s for part in parts] == [600.0, 31_800.0, HOUR_S]
    assert sum(part.share or 0.0 for part in parts if part) == pytest.approx(1.0)
    assert summary.initialization == Span(
        start="2026-11-21T08:00:00.000Z", end="2026-11-21T08:10:00.000Z", duration_s=600.0, share=600.0 / 36_000.0
    )
    assert (summary.steps, summary.gpus, summary.duration_s) == (1_023, 8, 36_000.0)


def test_running_job_has_no_end() -> None:
    summary = job_summary(judged_job(nodes=[Node(framework=stepping())]))
    assert (summary.ended_at, summary.finalization, summary.duration_s) == (None, None, 36_000.0)
    assert summary.training_loop is not None


@pytest.mark.parametrize("framework", [None, FrameworkState(watermark_s=START)])
def test_given_no_step_when_summarised_then_no_part_is_made_up(framework: FrameworkState | None) -> None:
    summary = job_summary(judged_job(job=ended(), nodes=[Node(framework=framework)]))
    assert (summary.initialization, summary.training_loop, summary.finalization, summary.steps) == (None,) * 4


def test_differing_clocks_make_no_part_negative() -> None:
    job = replace(ended(), ended_at=START + HOUR_S)
    summary = job_summary(judged_job(job=job, nodes=[Node(framework=stepping(-5.0, 2 * HOUR_S))]))
    assert (summary.initialization, summary.finalization) == (
        Span(start="2026-11-21T08:00:00.000Z", end="2026-11-21T08:00:00.000Z", duration_s=0.0, share=0.0),
        Span(start="2026-11-21T10:00:00.000Z", end="2026-11-21T10:00:00.000Z", duration_s=0.0, share=0.0),
    )
    assert summary.training_loop is not None
    assert summary.training_loop.share == 1.0


@pytest.mark.parametrize("settings", [{"rule_to_invoke": "LowGPUUtilization"}, {"StepOutlier_mode": "TRAIN"}])
def test_number_of_steps_no_rule_counted_is_unknown(
    settings: dict[str, str],
) -> None:
    assert job_summary(judged_job(nodes=[Node(framework=stepping())], settings=settings)).steps is None


def test_values_of_rules_that_did_not_run_are_unknown() -> None:
    settings = {"rule_to_invoke": "LowGPUUtilization"}
    summary = job_summary(judged_job(job=ended(), nodes=[Node(framework=stepping())], settings=settings))
    assert summary.initialization is not None
    assert (summary.training_loop, summary.finalization) == (None, None)


@pytest.mark.parametrize(
    ("job", "end"),
    [
        (replace(JOB, closing=True), "2026-11-21T18:00:00.000Z"),
        (replace(JOB, status=JobStatus.FAILED), "2026-11-21T18:00:00.000Z"),
        (ended(hours=11.0), "2026-11-21T19:00:00.000Z"),
        (JOB, None),
    ],
)
def test_end_is_that_of_sagemaker_or_the_last_write(job: JobRecord, end: str | None) -> None:
    assert job_summary(judged_job(job=job, nodes=[Node(closed=True)])).ended_at == end
