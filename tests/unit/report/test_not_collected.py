"""What was not collected: each thing that is absent, with what is unknown and how to collect it; nothing else."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tests.support.judged_jobs import JOB, START, Node, judged_job
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.families.profiler.framework_stream import FrameworkState
from trainguard.report.document import NotCollected
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.not_collected import not_collected
from trainguard.rules.framework_time import FrameworkTimeState
from trainguard.rules.loader_series import LoaderState, LoadingProcess
from trainguard.rules.system_usage import UsageState
from trainguard.rules.time_table import TimeTable
from trainguard.state.usage_counts import PercentCounts, TrafficCounts

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


def test_given_everything_when_asked_then_only_what_no_report_has_is_absent() -> None:
    assert list(named(complete())) == ["Python profiles"]


def test_given_no_framework_metrics_when_asked_then_that_is_told_once_with_the_versions_that_can_write_them() -> None:
    judged = judged_job()
    count_use(judged, PERCENTS)
    (entry,) = named(judged).values()
    assert entry.what == "Framework metrics"
    assert "StepOutlier" in entry.unknown
    assert "none were asked for" in entry.unknown
    assert all(said in entry.how for said in ("FrameworkProfile()", "ProfilingParameters", "2.0", "2.11", "smdebug"))
    expected = judged_job(job=replace(JOB, framework_expected=True))
    assert "expected, but none came" in named(expected)["Framework metrics"].unknown


def test_given_framework_metrics_without_steps_loaders_and_operators_when_asked_then_each_is_told() -> None:
    judged = judged_job(nodes=[Node(framework=FrameworkState(watermark_s=START))])
    count_use(judged, PERCENTS)
    found = named(judged)
    assert list(found) == ["Steps", "Data loader events", "Operators (detailed profiling)", "Python profiles"]
    assert "DataloaderProfilingConfig" in found["Data loader events"].how
    assert "DetailedProfilingConfig" in found["Operators (detailed profiling)"].how
    assert "PythonProfilingConfig" in found["Python profiles"].how


def test_given_system_metrics_that_lack_some_when_asked_then_they_are_named() -> None:
    judged = complete()
    count_use(judged, ("GPU", "CPU"), network=False)
    found = named(judged)
    entry = found["System metrics: Network, CPU memory, I/O and GPU memory"]
    assert entry.unknown == (
        "OverallSystemUsage and the time lines have nothing on Network, CPU memory, I/O and GPU memory, and "
        "IOBottleneck, GPUMemoryIncrease and BatchSize cannot judge."
    )
    assert list(found) == ["Python profiles", entry.what]


@pytest.mark.parametrize(
    ("metric", "rules"),
    [
        ("GPU", "no rule on GPUs can judge"),
        ("CPU", "CPUBottleneck, BatchSize and Dataloader cannot judge"),
        ("I/O", "IOBottleneck cannot judge"),
    ],
)
def test_given_one_metric_that_lacks_when_asked_then_the_rules_that_need_it_are_named(metric: str, rules: str) -> None:
    judged = complete()
    count_use(judged, tuple(name for name in PERCENTS if name != metric))

    entry = named(judged)[f"System metrics: {metric}"]

    assert entry.unknown.endswith(f" nothing on {metric}, and {rules}.")
    assert "GPUUtilization, CPUUtilization, I/OWaitPercentage" in entry.how


def test_given_a_metric_that_no_rule_needs_when_asked_then_no_rule_is_named() -> None:
    judged = complete()
    count_use(judged, PERCENTS, network=False)

    assert named(judged)["System metrics: Network"].unknown.endswith(" have nothing on Network.")


def test_given_nodes_without_gpus_when_asked_then_all_or_those_are_named() -> None:
    cpu = judged_job(nodes=[Node(gpus=0, use=None)])
    assert "this job" in named(cpu)["GPU metrics"].unknown
    mixed = judged_job(nodes=[Node(), Node(name="algo-2", gpus=0, use=None)])
    assert "1 node" in named(mixed)["GPU metrics of algo-2"].unknown


def test_given_a_long_sampling_interval_when_asked_then_what_it_hides_is_told_with_its_numbers() -> None:
    entry = named(judged_job(nodes=[Node(interval_s=60.0)]))["What happens between two points, 60 s apart"]
    assert entry.unknown == (
        "Stalls shorter than 120 s are hidden or look longer than they are; 20 points of patience take 20 min."
    )
    assert "system_monitor_interval_millis=500" in entry.how
    assert not any("between" in what for what in named(judged_job(nodes=[Node(interval_s=1.0)])))


def test_given_a_report_from_state_when_asked_then_time_lines_are_absent_and_why_they_could_not_be_read() -> None:
    assert "Time lines" not in named(complete())
    assert "trainguard report <job>" in named(complete(), full=False)["Time lines"].how
    lost = named(complete(), full=False, missing=("algo-1 on 2026-11-21: the profile could not be read.",))
    assert lost["Time lines"].unknown.endswith("over time (algo-1 on 2026-11-21: the profile could not be read).")


def test_given_no_price_when_asked_then_why_and_the_options_are_told() -> None:
    entry = named(judged_job(job=replace(JOB, instance_type=None)))["Prices"]
    assert "because the job's instance type is not known" in entry.unknown
    assert "--instance-type" in entry.how


def test_given_one_rule_to_invoke_when_asked_then_the_others_verdicts_are_absent_and_nothing_is_guessed() -> None:
    framework = FrameworkState(watermark_s=START, first_step_us=1)
    judged = judged_job(nodes=[Node(framework=framework)], settings={"rule_to_invoke": "LowGPUUtilization"})
    found = named(judged)
    assert list(found) == ["Python profiles", "Verdicts of 13 rules"]
    assert "CPUBottleneck" in found["Verdicts of 13 rules"].unknown
