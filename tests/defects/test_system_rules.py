"""What the rules over system metrics compute."""

import numpy as np
import pytest

from tests.defects.readings import both
from tests.support.profile_folder import START, ProfileFolder, event, ticks
from trainguard.debugger_replay import low_gpu_utilization
from trainguard.records import Status

A_MINUTE = 12
"""Snapshots of a minute at the sampling interval of 5 s."""

WINDOWS = 9
"""Windows of ten minutes: the last one is lost."""

SAMPLES = WINDOWS * A_MINUTE
SECOND_US = 1_000_000


def test_given_unequal_gpus_when_compared_then_compatible_never_triggers(profile: ProfileFolder) -> None:
    profile.system(ticks(10, every_s=1.0, first_s=0.5), {"gpu0": 85.0, "gpu1": 25.0, "cpu0": 30.0})
    read = both(profile, {"LoadBalancing": {"threshold": 0, "patience": 0}})
    assert read.compatible.counts("LoadBalancing") == (0, 0, WINDOWS * 60)
    assert read.documented.times_fired("LoadBalancing") == 1
    assert read.documented.worst("LoadBalancing") == "algo-1/gpu1"


def test_given_full_utilization_when_counted_then_compatible_loses_99_and_100_percent(profile: ProfileFolder) -> None:
    times = ticks(10, every_s=1.0, first_s=0.5)
    profile.system(times, {"gpu0": 100.0, "gpu1": np.where(times % 2.0 < 1.0, 99.0, 30.0), "cpu0": 30.0})
    read = both(profile)
    lost = read.compatible.details("LoadBalancing")["algo-1"]["workloads"]
    assert (sum(lost["gpu0"]), sum(lost["gpu1"])) == (0, WINDOWS * 30)
    whole = read.documented.details("LoadBalancing", "algo-1")["workloads"]
    assert (sum(whole["gpu0"]), sum(whole["gpu1"])) == (600, 600)


def test_given_whiskers_of_gpu_memory_when_boxed_then_compatible_takes_the_quartile_of_utilization(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), {"gpu0": 50.0, "gpu0_memory": 10.0, "cpu0": 30.0})
    read = both(profile, {"BatchSize": {"window": 20, "patience": 20}})
    p25_of_utilization, p75_of_memory = 50.0, 10.0
    spread = p75_of_memory - p25_of_utilization
    memory = read.compatible.details("BatchSize")["algo-1"]["gpu0_memory"]
    assert (memory["upper"], memory["lower"]) == (10.0 + 1.5 * spread, 10.0 - 1.5 * spread) == (-50.0, 70.0)
    memory = read.documented.details("BatchSize", "algo-1")["gpu0_memory"]
    assert (memory["upper"], memory["lower"]) == (10.0, 10.0)


def test_given_a_frozen_timestamp_when_batches_are_small_then_compatible_names_the_first_window(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), {"gpu0": 50.0, "gpu0_memory": 10.0, "cpu0": 30.0})
    read = both(profile, {"BatchSize": {"window": 20, "patience": 20}})
    assert read.compatible.counts("BatchSize") == (8, 8, SAMPLES)
    assert read.compatible.details("BatchSize")["last_timestamp"] == START * SECOND_US
    assert read.documented.times_fired("BatchSize") == 1
    assert read.documented.details("BatchSize", "algo-1")["last_timestamp"] == (START + 596) * SECOND_US


MEMORY = {"GPUMemoryIncrease": {"increase": 5, "window": 20, "patience": 20}}


@pytest.mark.parametrize("jump", [20.0, 60.0])
def test_given_memory_jumps_when_compared_with_windows_that_overlap_then_compatible_misses_or_repeats_them(
    profile: ProfileFolder, jump: float
) -> None:
    times = ticks(15)
    profile.system(times, {"gpu0": 90.0, "gpu0_memory": np.where(times < 450.0, 10.0, 10.0 + jump), "cpu0": 30.0})
    read = both(profile, MEMORY)
    increases = [jump * (after / 20 - max(0, after - 2) / 19) for after in range(1, 22)]
    violations = sum(increase > 5.0 for increase in increases)
    assert violations == {20.0: 0, 60.0: 7}[jump]
    assert read.compatible.counts("GPUMemoryIncrease") == (violations, violations, 14 * A_MINUTE)
    assert read.documented.times_fired("GPUMemoryIncrease") == 1


def test_given_a_window_of_one_value_when_there_is_nothing_to_compare_it_with_then_compatible_is_silent(
    profile: ProfileFolder,
) -> None:
    times = ticks(15)
    profile.system(times, {"gpu0": 90.0, "gpu0_memory": np.where(times < 450.0, 10.0, 70.0), "cpu0": 30.0})
    read = both(profile, {"GPUMemoryIncrease": {"increase": 5, "window": 1, "patience": 20}})
    assert read.compatible.counts("GPUMemoryIncrease")[:2] == (0, 0)
    assert read.documented.times_fired("GPUMemoryIncrease") == 1


def test_given_slow_leaks_when_windows_overlap_then_compatible_is_blind_to_them(profile: ProfileFolder) -> None:
    times = ticks(15)
    profile.system(times, {"gpu0": 90.0, "gpu0_memory": 10.0 + 70.0 * times / times[-1], "cpu0": 30.0})
    read = both(profile, MEMORY)
    assert read.compatible.counts("GPUMemoryIncrease")[0] == 0
    assert read.documented.times_fired("GPUMemoryIncrease") == 1


def test_given_a_full_history_when_compatible_drops_it_then_patience_begins_again(
    profile: ProfileFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_gpu_utilization, "MAX_DATAPOINTS", 2 * A_MINUTE + 6)
    profile.system(ticks(10), {"gpu0": 40.0, "cpu0": 30.0})
    read = both(profile, {"LowGPUUtilization": {"window": 20, "patience": 3 * A_MINUTE}})
    assert read.compatible.counts("LowGPUUtilization") == (0, 0, (WINDOWS % 3 or 3) * A_MINUTE)
    assert read.documented.times_fired("LowGPUUtilization") == 1
    assert read.documented.datapoints("LowGPUUtilization") == 10 * A_MINUTE


def every_fourth(times: np.ndarray, value: float, otherwise: float) -> np.ndarray:
    return np.where(np.arange(times.size) % 4 == 0, value, otherwise)


BOTTLENECK = {"CPUBottleneck": {"threshold": 30, "patience": 0}}


def test_given_nodes_of_one_clock_when_one_waits_and_the_other_computes_then_compatible_joins_them(
    profile: ProfileFolder,
) -> None:
    times = ticks(10)
    profile.system(times, {"gpu0": every_fourth(times, 50.0, 5.0), "cpu0": 20.0}, node="algo-1")
    profile.system(times, {"gpu0": 95.0, "cpu0": 99.0}, node="algo-2")
    read = both(profile, BOTTLENECK)
    low = SAMPLES * 3 // 4
    assert read.compatible.counts("CPUBottleneck") == (WINDOWS, low, 2 * SAMPLES)
    assert read.documented.times_fired("CPUBottleneck") == 0
    for node in ("algo-1", "algo-2"):
        assert read.documented.details("CPUBottleneck", node)["bottlenecked"] == 0


def test_given_samplers_30_ms_apart_when_snapshots_are_20_ms_then_compatible_sees_no_bottleneck(
    profile: ProfileFolder,
) -> None:
    times = ticks(10)
    profile.system(times, {"gpu0": every_fourth(times, 50.0, 5.0), "cpu0@0.03": 99.0})
    read = both(profile, BOTTLENECK)
    assert read.compatible.counts("CPUBottleneck") == (0, 0, 2 * SAMPLES)
    assert read.documented.times_fired("CPUBottleneck") == 1
    details = read.documented.details("CPUBottleneck", "algo-1")
    last_active = 10 * A_MINUTE - 3
    assert (details["bottlenecked"], details["judged"]) == (last_active * 3 // 4, last_active)


def test_given_one_hot_core_when_one_gpu_of_eight_waits_then_compatible_calls_it_a_bottleneck(
    profile: ProfileFolder,
) -> None:
    times = ticks(10)
    busy = {f"gpu{number}": 95.0 for number in range(1, 8)}
    idle = {f"cpu{number}": 10.0 for number in range(1, 4)}
    profile.system(times, {"gpu0": every_fourth(times, 50.0, 5.0), **busy, "cpu0": 99.0, **idle})
    read = both(profile, BOTTLENECK)
    assert read.compatible.counts("CPUBottleneck") == (WINDOWS, SAMPLES * 3 // 4, SAMPLES)
    assert set(map(str, read.compatible.details("CPUBottleneck")["bottlenecks"].values())) == {"{'GPUs': 1, 'CPUs': 1}"}
    assert read.documented.times_fired("CPUBottleneck") == 0
    assert read.documented.details("CPUBottleneck", "algo-1")["bottlenecked"] == 0


def test_given_time_at_bottlenecks_when_an_event_covers_many_then_compatible_adds_it_each_time(
    profile: ProfileFolder,
) -> None:
    times = ticks(10)
    profile.system(times, {"gpu0": every_fourth(times, 50.0, 5.0), "cpu0": 99.0})
    profile.timeline(event("cpu_functions", "decode", 60.0 * minute, 59.0) for minute in range(10))
    read = both(profile, BOTTLENECK)
    times_over = SAMPLES * 3 // 4
    assert read.compatible.details("CPUBottleneck")["CPU_total"] == {"decode": times_over * 59 * SECOND_US}
    compared = read.documented.details("CPUBottleneck", "algo-1")["framework"]
    assert compared["minutes_with_bottlenecks"] == 10
    assert compared["classes"] == [
        {"class": "CPU operators", "with_bottlenecks_percent": pytest.approx(100.0 * 59 / 60), "without_percent": None}
    ]


def test_given_unlike_nodes_when_averaged_then_compatible_divides_by_devices_that_a_node_has_not(
    profile: ProfileFolder,
) -> None:
    times = ticks(4)
    profile.system(times, {"gpu0": 80.0, "gpu1": 80.0, "cpu0": 30.0}, node="algo-1")
    profile.system(times, {"gpu0": 80.0, "cpu0": 60.0, "cpu1": 60.0}, node="algo-2")
    read = both(profile)
    usage = read.compatible.details("OverallSystemUsage")
    assert (usage["GPU"]["algo-2"]["p50"], usage["CPU"]["algo-1"]["p50"]) == (80.0 / 2, 30.0 / 2)
    assert read.documented.details("OverallSystemUsage", "algo-2")["GPU"]["p50"] == 80.0
    assert read.documented.details("OverallSystemUsage", "algo-1")["CPU"]["p50"] == 30.0


def test_given_a_count_of_datapoints_when_a_gpu_comes_late_then_compatible_shows_that_gpus_count(
    profile: ProfileFolder,
) -> None:
    times = ticks(10)
    profile.system(times, {"gpu0": 90.0, "gpu1": np.where(times < 420.0, np.nan, 90.0), "cpu0": 30.0})
    read = both(profile)
    assert read.compatible.counts("LowGPUUtilization")[2] == 2 * A_MINUTE
    assert read.documented.datapoints("LowGPUUtilization") == 10 * A_MINUTE


LOW = {"LowGPUUtilization": {"window": 20, "patience": 20}}


def test_given_a_quantile_on_its_threshold_when_the_gpu_fluctuates_then_compatible_says_nothing(
    profile: ProfileFolder,
) -> None:
    times = ticks(10)
    profile.system(times, {"gpu0": every_fourth(times, 0.0, 70.0), "cpu0": 30.0})
    read = both(profile, LOW)
    assert read.compatible.counts("LowGPUUtilization")[0] == 0
    assert read.documented.times_fired("LowGPUUtilization") == 1
    assert read.documented.details("LowGPUUtilization", "algo-1")["gpus"]["gpu0"]["kind"] == "fluctuating"


def test_given_gpus_without_a_process_when_judged_then_compatible_calls_them_under_utilised(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), {"gpu0": 95.0, "gpu1": 0.0, "cpu0": 30.0})
    read = both(profile, LOW)
    assert set(read.compatible.details("LowGPUUtilization")["algo-1"]) == {"gpu1"}
    assert read.documented.status("LowGPUUtilization") is Status.OK
    assert read.documented.details("LowGPUUtilization", "algo-1")["never_active"] == ["gpu1"]
