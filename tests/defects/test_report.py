"""What a report is made of, and what ends it."""

import math
import re

import pytest

from tests.defects.readings import both, compatible, documented
from tests.support.profile_folder import ProfileFolder, event, step, ticks
from trainguard.debugger_replay.rules import RULES
from trainguard.errors import RuleConfigError
from trainguard.records import Status
from trainguard.rules.cpu_bottleneck import CPUBottleneck

LOW = {"LowGPUUtilization": {"window": 20, "patience": 20}, "BatchSize": {"window": 20, "patience": 20}}
ALL = [rule.name for rule in RULES]
"""The eleven sub-rules of the original, in its order."""

A_MINUTE = 12
WINDOWS = 9


def test_given_a_node_without_gpus_when_the_original_dies_then_both_readings_report_all_rules(
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


def test_given_a_rule_that_fails_when_others_go_on_then_it_alone_is_in_error(
    profile: ProfileFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("gpu0")

    monkeypatch.setattr(CPUBottleneck, "judge", fail)
    profile.system(ticks(10), {"gpu0": 40.0, "gpu0_memory": 10.0, "cpu0": 30.0})
    read = documented(profile, LOW)
    assert read.status("CPUBottleneck") is Status.ERROR
    assert "KeyError" in read.reason("CPUBottleneck")
    assert [rule for rule in ALL if read.status(rule) is Status.ERROR] == ["CPUBottleneck"]
    assert read.times_fired("LowGPUUtilization") == 1


def test_given_whole_numbers_when_the_original_cannot_write_them_then_both_readings_say_the_same_as_of_floats(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), {"gpu0": 40.0, "gpu0_memory": 10.0, "cpu0": 30.0})
    floats = both(profile, LOW)
    profile.change("system", lambda text: re.sub(r'("Value": \d+)\.0', r"\1", text))
    assert '"Value": 40,' in "".join(profile.lines("system"))
    integers = both(profile, LOW)
    assert integers.compatible == floats.compatible
    assert integers.documented.verdicts == floats.documented.verdicts


def test_given_values_that_are_no_numbers_when_read_then_neither_reading_reports_them(profile: ProfileFolder) -> None:
    profile.system(ticks(10), {"gpu0": 40.0, "cpu0": 30.0})
    profile.change("system", lambda text: text.replace('"Value": 30.0', '"Value": NaN', 1))
    read = both(profile)
    assert read.compatible.replayed.skipped["bad_lines"] == 10
    assert read.documented.counters("algo-1", "system")["bad_lines"] == 10
    assert math.isfinite(read.compatible.details("OverallSystemUsage")["CPU"]["algo-1"]["max"])
    assert math.isfinite(read.documented.details("OverallSystemUsage", "algo-1")["CPU"]["max"])


def test_given_fractional_thresholds_when_the_original_takes_integers_then_both_readings_use_them(
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


def test_given_operators_of_under_2_percent_when_the_original_aborts_then_both_readings_go_on(
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


def test_given_two_kinds_of_low_use_when_told_then_documented_tells_them_apart(profile: ProfileFolder) -> None:
    times = ticks(10)
    swinging = [0.0 if index % 4 == 0 else 95.0 for index in range(times.size)]
    profile.system(times, {"gpu0": 40.0, "gpu1": swinging, "cpu0": 30.0})
    read = both(profile, LOW)
    shown = read.compatible.details("LowGPUUtilization")["algo-1"]
    assert set(shown["gpu0"]) == set(shown["gpu1"])
    assert "kind" not in shown["gpu0"]
    gpus = read.documented.details("LowGPUUtilization", "algo-1")["gpus"]
    assert {gpu: details["kind"] for gpu, details in gpus.items()} == {"gpu0": "under", "gpu1": "fluctuating"}


def test_given_a_job_without_gpus_when_reported_then_documented_says_what_it_cannot_judge(
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


def test_given_a_node_without_cpu_samples_when_the_original_fails_then_both_readings_report_its_gpus(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), {"gpu0": 40.0})
    read = both(profile, LOW)
    assert read.compatible.counts("LowGPUUtilization")[0] > 0
    assert read.compatible.details("OverallSystemUsage")["CPU"] == {}
    assert read.documented.times_fired("LowGPUUtilization") == 1
    assert set(read.documented.details("OverallSystemUsage", "algo-1")) == {"GPU"}
    assert Status.ERROR not in {verdict.result.status for verdict in read.documented.verdicts.values()}


def test_given_gpu_memory_alone_when_the_original_divides_by_no_gpu_then_documented_takes_the_mean(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(4), {"gpu0_memory": 40.0, "cpu0": 30.0})
    read = both(profile)
    assert read.compatible.details("OverallSystemUsage")["GPU memory"]["algo-1"]["max"] == math.inf
    assert read.documented.details("OverallSystemUsage", "algo-1")["GPU memory"]["max"] == 40.0


def test_given_a_hostile_parameter_when_read_then_it_is_text_and_no_program(profile: ProfileFolder) -> None:
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
