"""What was not collected: each thing that is absent, with what is unknown and how to collect it; nothing else."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.support.judged_jobs import JOB, START, Node, judged_job
from trainguard.engine.profiler.framework_session import FrameworkState
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.ledger.bucket import ROWS, Bucket, StepShares
from trainguard.ledger.job import Ledger
from trainguard.ledger.node import NodeLedger, empty_amounts
from trainguard.report.document import NotCollected
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.job.facts import not_collected
from trainguard.rules.dataloader.series import LoaderState, LoadingProcess
from trainguard.rules.framework_events import TimeTable
from trainguard.rules.overall_framework_metrics.rule import FrameworkTimeState
from trainguard.rules.overall_system_usage.rule import UsageState
from trainguard.state.histogram import PercentCounts, TrafficCounts

PERCENTS = ("GPU", "GPU memory", "CPU", "CPU memory", "I/O")


def complete() -> EvaluatedJob:
    """Return a job that has written all that a job can write."""
    metrics = FrameworkTimeState(events=1)
    metrics.classes[0] = TimeTable(names=["aten::mm"], times_us=[5])
    loads = LoaderState(processes=[LoadingProcess("algo-1-7")])
    framework = FrameworkState(
        watermark_s=START,
        first_step_us=1,
        stored_rules={
            "OverallFrameworkMetrics": StoredRule(msgspec.msgpack.encode(metrics)),
            "Dataloader": StoredRule(msgspec.msgpack.encode(loads)),
        },
    )
    judged = judged_job(nodes=[Node(framework=framework)])
    count_use(judged, PERCENTS)
    return judged


def count_use(judged: EvaluatedJob, metrics: tuple[str, ...], *, network: bool = True) -> None:
    """Let a job have samples of such metrics and no others."""
    use = UsageState(snapshots=1, percents={metric: PercentCounts() for metric in metrics})
    use.traffic = TrafficCounts()
    if network:
        use.traffic.add(np.ones(1))
    stream = judged.profiler.system["algo-1"]
    state = stream.state_of("OverallSystemUsage")
    assert isinstance(state, UsageState)
    state.percents, state.traffic, state.snapshots = use.percents, use.traffic, 1


def named(judged: EvaluatedJob, *, full: bool = True, missing: tuple[str, ...] = ()) -> dict[str, NotCollected]:
    return {each.what: each for each in not_collected(judged, "full" if full else "state", missing)}


def test_of_a_job_with_everything_nothing_is_absent() -> None:
    assert named(complete()) == {}


def without_framework(**changes: Any) -> EvaluatedJob:
    judged = judged_job(job=replace(JOB, **changes))
    count_use(judged, PERCENTS)
    return judged


def test_without_steps_the_recorder_is_the_way() -> None:
    (entry,) = named(without_framework()).values()
    assert entry.what == "Framework metrics"
    assert "StepOutlier" in entry.unknown
    assert "none came" in entry.unknown
    assert entry.how.startswith("Use the recorder (docs/recorder.md)")
    expected = named(without_framework(framework_expected=True))["Framework metrics"]
    assert "expected, but none came" in expected.unknown


@pytest.mark.parametrize("arn", ["unknown:run-abc123", "arn:aws:sagemaker:eu-west-1:111122223333:training-job/bert"])
def test_debugger_is_only_for_jobs_of_accounts_that_have_it(arn: str) -> None:
    judged = without_framework(arn=arn)
    count_use(judged, ("GPU",))
    hows = [entry.how for entry in named(judged).values()]
    hows += [
        entry.how for entry in named(judged_job(job=replace(JOB, arn=arn), nodes=[Node(interval_s=60.0)])).values()
    ]
    told = [how for how in hows if "ProfilerConfig" in how]
    assert bool(told) is arn.startswith("arn:")
    assert all("In an account that has SageMaker Debugger" in how for how in told)
    assert all("docs/recorder.md" in how or "docs/collector.md" in how for how in hows)


def test_missing_steps_and_waits_name_the_calls_of_the_recorder() -> None:
    judged = judged_job(nodes=[Node(framework=FrameworkState(watermark_s=START))])
    count_use(judged, PERCENTS)
    found = named(judged)
    assert list(found) == ["Steps", "Waits for data"]
    assert "recorder.step()" in found["Steps"].how
    assert "recorder.wrap(loader)" in found["Waits for data"].how


@pytest.mark.parametrize(("busy", "asked"), [(0.5, True), (0.95, False)])
def test_much_unexplained_time_asks_for_a_kernel_trace(busy: float, asked: bool) -> None:
    ledger = half_open(busy)
    judged = replace(complete(), ledger_once=lambda: ledger)
    entry = named(judged).get("A kernel trace")
    assert (entry is not None) is asked
    if entry is not None:
        assert "50 % of the paid time" in entry.unknown
        assert "KernelProfile" in entry.how
    traced = Ledger(half_open(busy).nodes, shares=StepShares(0.5, 0.0, 0.0, 0.0, 0.5, 0.0, steps=5))
    assert "A kernel trace" not in named(replace(complete(), ledger_once=lambda: traced))


def half_open(busy: float) -> Ledger:
    """Return the ledger of a node that computes for a share of an hour, and has no reason for the rest."""
    amounts = empty_amounts(1)
    amounts[ROWS[Bucket.COMPUTE]], amounts[ROWS[Bucket.UNEXPLAINED]] = 3_600.0 * busy, 3_600.0 * (1.0 - busy)
    return Ledger([NodeLedger("algo-1", 1, np.array([START, START + 3_600.0]), amounts, {})])


def test_a_log_of_losses_has_no_system_metrics() -> None:
    judged = judged_job(nodes=[Node(silent=True)])
    assert named(judged)["System metrics"].how.startswith("Run the collector (docs/collector.md)")


def test_missing_system_metrics_are_named() -> None:
    judged = complete()
    count_use(judged, ("GPU", "CPU"), network=False)
    found = named(judged)
    entry = found["System metrics: Network, CPU memory, I/O and GPU memory"]
    assert entry.unknown == (
        "OverallSystemUsage and the time lines have nothing on Network, CPU memory, I/O and GPU memory, and "
        "IOBottleneck, GPUMemoryIncrease and BatchSize cannot judge."
    )
    assert list(found) == [entry.what]


@pytest.mark.parametrize(
    ("metric", "rules"),
    [
        ("GPU", "no rule on GPUs can judge"),
        ("CPU", "CPUBottleneck, BatchSize and Dataloader cannot judge"),
        ("I/O", "IOBottleneck cannot judge"),
    ],
)
def test_rules_that_need_a_missing_metric_are_named(metric: str, rules: str) -> None:
    judged = complete()
    count_use(judged, tuple(name for name in PERCENTS if name != metric))

    entry = named(judged)[f"System metrics: {metric}"]

    assert entry.unknown.endswith(f" nothing on {metric}, and {rules}.")
    assert entry.how.startswith("Run the collector (docs/collector.md)")


def test_missing_metric_that_no_rule_needs_names_no_rule() -> None:
    judged = complete()
    count_use(judged, PERCENTS, network=False)

    assert named(judged)["System metrics: Network"].unknown.endswith(" have nothing on Network.")


def test_all_or_some_nodes_without_gpus_are_named() -> None:
    cpu = judged_job(nodes=[Node(gpus=0, use=None)])
    assert "this job" in named(cpu)["GPU metrics"].unknown
    mixed = judged_job(nodes=[Node(), Node(name="algo-2", gpus=0, use=None)])
    assert "1 node" in named(mixed)["GPU metrics of algo-2"].unknown


def test_long_sampling_interval_says_in_numbers_what_it_hides() -> None:
    entry = named(judged_job(nodes=[Node(interval_s=60.0)]))["What happens between two points, 60 s apart"]
    assert entry.unknown == (
        "Stalls shorter than 120 s are hidden or look longer than they are; 20 points of patience take 20 min."
    )
    assert "TRAINGUARD_INTERVAL_MS=500" in entry.how
    assert not any("between" in what for what in named(judged_job(nodes=[Node(interval_s=1.0)])))


def test_report_from_state_says_why_it_has_no_timelines() -> None:
    assert "Time lines" not in named(complete())
    assert "trainguard report <job>" in named(complete(), full=False)["Time lines"].how
    lost = named(complete(), full=False, missing=("algo-1 on 2026-11-21: the profile could not be read.",))
    assert lost["Time lines"].unknown.endswith("over time (algo-1 on 2026-11-21: the profile could not be read).")


def test_missing_price_shows_the_reason_and_the_options() -> None:
    entry = named(judged_job(job=replace(JOB, instance_type=None)))["Prices"]
    assert "because the job's instance type is not known" in entry.unknown
    assert "--instance-type" in entry.how


def test_single_invoked_rule_leaves_other_verdicts_absent() -> None:
    framework = FrameworkState(watermark_s=START, first_step_us=1)
    judged = judged_job(nodes=[Node(framework=framework)], settings={"rule_to_invoke": "LowGPUUtilization"})
    found = named(judged)
    assert list(found) == ["Verdicts of 13 rules"]
    assert "CPUBottleneck" in found["Verdicts of 13 rules"].unknown
