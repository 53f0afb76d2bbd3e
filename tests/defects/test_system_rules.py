"""What the rules over system metrics compute."""

import numpy as np
import pytest

from tests.defects.readings import both
from tests.support.profile_folder import START, ProfileFolder, event, ticks
from trainguard.core.records import Status
from trainguard.managed import system_rules

# Snapshots of a minute at the sampling interval of 5 s.
A_MINUTE = 12

# Windows of ten minutes: the last one is lost.
WINDOWS = 9

SAMPLES = WINDOWS * A_MINUTE
SECOND_US = 1_000_000


@pytest.mark.defect("unequal GPUs")
def test_compatible_never_triggers_on_unequal_gpus(profile: ProfileFolder) -> None:
    profile.system(ticks(10, every_s=1.0, first_s=0.5), {"gpu0": 85.0, "gpu1": 25.0, "cpu0": 30.0})
    read = both(profile, {"LoadBalancing": {"threshold": 0, "patience": 0}})
    assert read.compatible.counts("LoadBalancing") == (0, 0, WINDOWS * 60)
    assert read.documented.times_fired("LoadBalancing") == 1
    assert read.documented.worst("LoadBalancing") == "algo-1/gpu1"


@pytest.mark.defect("full utilization")
def test_compatible_loses_99_and_100_percent_utilization(profile: ProfileFolder) -> None:
    times = ticks(10, every_s=1.0, first_s=0.5)
    profile.system(times, {"gpu0": 100.0, "gpu1": np.where(times % 2.0 < 1.0, 99.0, 30.0), "cpu0": 30.0})
    read = both(profile)
    lost = read.compatible.details("LoadBalancing")["algo-1"]["workloads"]
    assert (sum(lost["gpu0"]), sum(lost["gpu1"])) == (0, WINDOWS * 30)
    whole = read.documented.details("LoadBalancing", "algo-1")["workloads"]
    assert (sum(whole["gpu0"]), sum(whole["gpu1"])) == (600, 600)


@pytest.mark.defect("whiskers of GPU memory")
def test_compatible_boxes_memory_by_the_utilization_quartile(
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


@pytest.mark.defect("a frozen timestamp")
def test_compatible_names_the_first_window_for_small_batches(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), {"gpu0": 50.0, "gpu0_memory": 10.0, "cpu0": 30.0})
    read = both(profile, {"BatchSize": {"window": 20, "patience": 20}})
    assert read.compatible.counts("BatchSize") == (8, 8, SAMPLES)
    assert read.compatible.details("BatchSize")["last_timestamp"] == START * SECOND_US
    assert read.documented.times_fired("BatchSize") == 1
    assert read.documented.details("BatchSize", "algo-1")["last_timestamp"] == (START + 596) * SECOND_US


MEMORY = {"GPUMemoryIncrease": {"increase": 5, "window": 20, "patience": 20}}


@pytest.mark.defect("memory jumps")
@pytest.mark.parametrize("jump", [20.0, 60.0])
def test_compatible_misses_or_repeats_memory_jumps(profile: ProfileFolder, jump: float) -> None:
    times = ticks(15)
    profile.system(times, {"gpu0": 90.0, "gpu0_memory": np.where(times < 450.0, 10.0, 10.0 + jump), "cpu0": 30.0})
    read = both(profile, MEMORY)
    increases = [jump * (after / 20 - max(0, after - 2) / 19) for after in range(1, 22)]
    violations = sum(increase > 5.0 for increase in increases)
    assert violations == {20.0: 0, 60.0: 7}[jump]
    assert read.compatible.counts("GPUMemoryIncrease") == (violations, violations, 14 * A_MINUTE)
    assert read.documented.times_fired("GPUMemoryIncrease") == 1


@pytest.mark.defect("a window of one value")
def test_compatible_is_silent_on_a_window_of_one_value(
    profile: ProfileFolder,
) -> None:
    times = ticks(15)
    profile.system(times, {"gpu0": 90.0, "gpu0_memory": np.where(times < 450.0, 10.0, 70.0), "cpu0": 30.0})
    read = both(profile, {"GPUMemoryIncrease": {"increase": 5, "window": 1, "patience": 20}})
    assert read.compatible.counts("GPUMemoryIncrease")[:2] == (0, 0)
    assert read.documented.times_fired("GPUMemoryIncrease") == 1


@pytest.mark.defect("slow leaks")
def test_compatible_misses_slow_leaks_in_overlapping_windows(profile: ProfileFolder) -> None:
    times = ticks(15)
    profile.system(times, {"gpu0": 90.0, "gpu0_memory": 10.0 + 70.0 * times / times[-1], "cpu0": 30.0})
    read = both(profile, MEMORY)
    assert read.compatible.counts("GPUMemoryIncrease")[0] == 0
    assert read.documented.times_fired("GPUMemoryIncrease") == 1


@pytest.mark.defect("a full history")
def test_compatible_restarts_patience_on_dropped_history(
    profile: ProfileFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_rules, "MAX_DATAPOINTS", 2 * A_MINUTE + 6)
    profile.system(ticks(10), {"gpu0": 40.0, "cpu0": 30.0})
    read = both(profile, {"LowGPUUtilization": {"window": 20, "patience": 3 * A_MINUTE}})
    assert read.compatible.counts("LowGPUUtilization") == (0, 0, (WINDOWS % 3 or 3) * A_MINUTE)
    assert read.documented.times_fired("LowGPUUtilization") == 1
    assert read.documented.datapoints("LowGPUUtilization") == 10 * A_MINUTE


def every_fourth(times: np.ndarray, value: float, otherwise: float) -> np.ndarray:
    return np.where(np.arange(times.size) % 4 == 0, value, otherwise)


BOTTLENECK = {"CPUBottleneck": {"threshold": 30, "patience": 0}}


@pytest.mark.defect("nodes of one clock")
def test_compatible_joins_waiting_and_computing_nodes(
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


@pytest.mark.defect("samplers 30 ms apart")
def test_compatible_misses_bottlenecks_of_samplers_30_ms_apart(
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


@pytest.mark.defect("one hot core")
def test_compatible_reports_a_bottleneck_for_one_gpu_of_eight(
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


@pytest.mark.defect("time at bottlenecks")
def test_compatible_adds_bottleneck_time_repeatedly(
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


@pytest.mark.defect("unlike nodes")
def test_compatible_averages_over_devices_a_node_lacks(
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


@pytest.mark.defect("a count of datapoints")
def test_compatible_shows_the_datapoints_of_a_late_gpu(
    profile: ProfileFolder,
) -> None:
    times = ticks(10)
    profile.system(times, {"gpu0": 90.0, "gpu1": np.where(times < 420.0, np.nan, 90.0), "cpu0": 30.0})
    read = both(profile)
    assert read.compatible.counts("LowGPUUtilization")[2] == 2 * A_MINUTE
    assert read.documented.datapoints("LowGPUUtilization") == 10 * A_MINUTE


LOW = {"LowGPUUtilization": {"window": 20, "patience": 20}}


@pytest.mark.defect("a quantile on its threshold")
def test_compatible_is_silent_on_a_quantile_at_its_threshold(
    profile: ProfileFolder,
) -> None:
    times = ticks(10)
    profile.system(times, {"gpu0": every_fourth(times, 0.0, 70.0), "cpu0": 30.0})
    read = both(profile, LOW)
    assert read.compatible.counts("LowGPUUtilization")[0] == 0
    assert read.documented.times_fired("LowGPUUtilization") == 1
    assert read.documented.details("LowGPUUtilization", "algo-1")["gpus"]["gpu0"]["kind"] == "fluctuating"


@pytest.mark.defect("GPUs without a process")
def test_compatible_calls_gpus_without_a_process_underutilised(
    profile: ProfileFolder,
) -> None:
    profile.system(ticks(10), {"gpu0": 95.0, "gpu1": 0.0, "cpu0": 30.0})
    read = both(profile, LOW)
    assert set(read.compatible.details("LowGPUUtilization")["algo-1"]) == {"gpu1"}
    assert read.documented.status("LowGPUUtilization") is Status.OK
    assert read.documented.details("LowGPUUtilization", "algo-1")["never_active"] == ["gpu1"]
