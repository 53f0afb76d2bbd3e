"""What a report is made of, and what ends it."""

import math
import re

import pytest

from tests.defects.readings import both, compatible, documented
from tests.support.profile_folder import ProfileFolder, event, step, ticks
from trainguard.core.errors import RuleConfigError
from trainguard.core.records import Status
from trainguard.managed.parameters import RULES
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneck

LOW = {"LowGPUUtilization": {"window": 20, "patience": 20}, "BatchSize": {"window": 20, "patience": 20}}
# The eleven sub-rules of the original, in its order.
ALL = [rule.name for rule in RULES]

A_MINUTE = 12
WINDOWS = 9


@pytest.mark.defect("a node without GPUs")
def test_both_readings_report_all_rules_without_gpus(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), {"gpu0": 40.0, "gpu0_memory": 10.0, "cpu0": 30.0}, node="algo-1")
    profile.system(ticks(10), {"cpu0": 30.0}, node="algo-2")
    read = both(profile, LOW)
    assert list(read.compatible.replayed.reports) == ALL
    assert read.compatible.counts("BatchSize")[:2] == (8, 8)
    assert set(read.compatible.details("BatchSize")) == {"algo-1", "last_timestamp"}
    assert set(ALL) <= set(read.documented.verdicts)
    assert read.documented.times_fired("BatchSize") == 1
    assert "algo-1" in str(read.documented.worst("BatchSize"))


@pytest.mark.defect("a rule that fails")
def test_only_the_failing_rule_is_in_error(profile: ProfileFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("gpu0")

    monkeypatch.setattr(CPUBottleneck, "judge", fail)
    profile.system(ticks(10), {"gpu0": 40.0, "gpu0_memory": 10.0, "cpu0": 30.0})
    read = documented(profile, LOW)
    assert read.status("CPUBottleneck") is Status.ERROR
    assert "KeyError" in read.reason("CPUBottleneck")
    assert [rule for rule in ALL if read.status(rule) is Status.ERROR] == ["CPUBottleneck"]
    assert read.times_fired("LowGPUUtilization") == 1


@pytest.mark.defect("whole numbers")
def test_whole_numbers_are_reported_like_floats(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), {"gpu0": 40.0, "gpu0_memory": 10.0, "cpu0": 30.0})
    floats = both(profile, LOW)
    profile.change("system", lambda text: re.sub(r'("Value": \d+)\.0', r"\1", text))
    assert '"Value": 40,' in "".join(profile.lines("system"))
    integers = both(profile, LOW)
    assert integers.compatible == floats.compatible
    assert integers.documented.verdicts == floats.documented.verdicts


@pytest.mark.defect("values that are no numbers")
def test_neither_reading_reports_non_numeric_values(profile: ProfileFolder) -> None:
    profile.system(ticks(10), {"gpu0": 40.0, "cpu0": 30.0})
    profile.change("system", lambda text: text.replace('"Value": 30.0', '"Value": NaN', 1))
    read = both(profile)
    assert read.compatible.replayed.skipped["bad_lines"] == 10
    assert read.documented.counters("algo-1", "system")["bad_lines"] == 10
    assert math.isfinite(read.compatible.details("OverallSystemUsage")["CPU"]["algo-1"]["max"])
    assert math.isfinite(read.documented.details("OverallSystemUsage", "algo-1")["CPU"]["max"])


@pytest.mark.defect("fractional thresholds")
def test_both_readings_use_fractional_thresholds(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), {"gpu0": 50.25, "cpu0": 30.0})
    fired = {}
    for threshold in (50.5, 50):
        read = both(profile, {"LowGPUUtilization": {**LOW["LowGPUUtilization"], "threshold_p95": threshold}})
        shown = read.compatible.of("LowGPUUtilization")["RuleParameters"]
        assert f"threshold_p95:{threshold}\n" in shown
        fired[threshold] = (
            read.compatible.counts("LowGPUUtilization")[0] > 0,
            read.documented.times_fired("LowGPUUtilization") > 0,
        )
    assert fired == {50.5: (True, True), 50: (False, False)}


@pytest.mark.defect("operators of under 2 percent")
def test_both_readings_survive_operators_under_2_percent(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(4), {"gpu0": 90.0, "cpu0": 30.0})
    profile.timeline(event("cpu_functions", f"operator_{number}", 2.0 * number + 1.0, 0.9) for number in range(60))
    profile.timeline([step(1, 150.0, 5.0)])
    read = both(profile)
    metrics = read.compatible.details("OverallFrameworkMetrics")
    assert (metrics["CPU"], metrics["CPU_total"]) == ({}, {})
    shares = read.documented.details("OverallFrameworkMetrics", "algo-1")["CPU"]
    assert shares == pytest.approx({f"operator_{number}": 100.0 / 60 for number in range(60)})


@pytest.mark.defect("two kinds of low use")
def test_documented_distinguishes_two_kinds_of_low_use(profile: ProfileFolder) -> None:
    times = ticks(10)
    swinging = [0.0 if index % 4 == 0 else 95.0 for index in range(times.size)]
    profile.system(times, {"gpu0": 40.0, "gpu1": swinging, "cpu0": 30.0})
    read = both(profile, LOW)
    shown = read.compatible.details("LowGPUUtilization")["algo-1"]
    assert set(shown["gpu0"]) == set(shown["gpu1"])
    assert "kind" not in shown["gpu0"]
    gpus = read.documented.details("LowGPUUtilization", "algo-1")["gpus"]
    assert {gpu: details["kind"] for gpu, details in gpus.items()} == {"gpu0": "under", "gpu1": "fluctuating"}


@pytest.mark.defect("a job without GPUs")
def test_documented_says_what_it_cannot_judge_without_gpus(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(4), {"cpu0": 30.0})
    read = both(profile)
    assert read.compatible.details("OverallSystemUsage")["GPU"] == {}
    assert read.compatible.counts("LowGPUUtilization") == (0, 0, 0)
    for rule in (
        "CPUBottleneck",
        "IOBottleneck",
        "LowGPUUtilization",
        "GPUMemoryIncrease",
        "BatchSize",
        "LoadBalancing",
    ):
        assert read.documented.status(rule) is Status.NOT_APPLICABLE, rule
    assert read.documented.status("OverallSystemUsage") is Status.OK


@pytest.mark.defect("a node without CPU samples")
def test_both_readings_report_gpus_without_cpu_samples(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), {"gpu0": 40.0})
    read = both(profile, LOW)
    assert read.compatible.counts("LowGPUUtilization")[0] > 0
    assert read.compatible.details("OverallSystemUsage")["CPU"] == {}
    assert read.documented.times_fired("LowGPUUtilization") == 1
    assert set(read.documented.details("OverallSystemUsage", "algo-1")) == {"GPU"}
    assert Status.ERROR not in {verdict.result.status for verdict in read.documented.verdicts.values()}


@pytest.mark.defect("GPU memory alone")
def test_documented_averages_gpu_memory_without_utilization(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(4), {"gpu0_memory": 40.0, "cpu0": 30.0})
    read = both(profile)
    assert read.compatible.details("OverallSystemUsage")["GPU memory"]["algo-1"]["max"] == math.inf
    assert read.documented.details("OverallSystemUsage", "algo-1")["GPU memory"]["max"] == 40.0


@pytest.mark.defect("a hostile parameter")
def test_hostile_parameter_is_never_executed(profile: ProfileFolder) -> None:
    profile.system(ticks(4), {"gpu0": 40.0, "cpu0": 30.0})
    trap = profile.root / "trap"
    hostile = {"LowGPUUtilization": {"window": f"__import__('pathlib').Path({str(trap)!r}).touch() or 20"}}
    with pytest.raises(RuleConfigError, match="window"):
        compatible(profile, hostile)
    read = documented(profile, hostile)
    assert read.status("LowGPUUtilization") is Status.ERROR
    assert "__import__" in read.reason("LowGPUUtilization")
    assert read.status("OverallSystemUsage") is Status.OK
    assert not trap.exists()
