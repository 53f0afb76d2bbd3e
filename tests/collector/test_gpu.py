"""GPUs by NVML: every metric fails alone, and a GPU that vanishes ends nothing."""

from tests.collector.nvml_stub import LOST, NOT_SUPPORTED, UNKNOWN, Nvml
from trainguard_collector.gpu import Gpus
from trainguard_collector.lines import Sample

UTILIZATION = "nvmlDeviceGetUtilizationRates"


def values(samples: list[Sample]) -> dict[tuple[str, str], float]:
    return {(sample.name, sample.dimension): sample.value for sample in samples}


def test_given_gpus_when_read_then_the_managed_series_have_the_managed_names() -> None:
    found = values(Gpus(Nvml(2)).read(1.0, with_slow=False))
    assert found["gpu1", "GPUUtilization"] == 41.0
    assert found["gpu1", "GPUMemoryUtilization"] == 20.0
    assert found["gpu1.MemoryUsedBytes", ""] == 7 << 30
    assert found["gpu1.PowerWatts", ""] == 412.345


def test_given_slow_metrics_when_read_twice_then_counters_become_rates() -> None:
    nvml = Nvml(1)
    gpus = Gpus(nvml)
    gpus.read(1.0, with_slow=True)
    nvml.bytes = 5_000
    found = values(gpus.read(11.0, with_slow=True))
    assert found["gpu0.PCIeTransmittedBytesPerSecond", ""] == 500.0
    assert found["gpu0.ThrottleReasons", ""] == 0x40
    assert found["gpu0.ECCUncorrectedErrors", ""] == 1.0
    assert (found["gpu0.PCIeLinkWidth", ""], found["gpu0.PCIeLinkWidthMaximum", ""]) == (8.0, 16.0)
    assert found["gpu0.RemappedRows", ""] == 3.0


def test_given_snapshots_when_read_then_handles_are_fetched_once_and_processes_never_listed() -> None:
    nvml = Nvml(4)
    gpus = Gpus(nvml)
    for second in range(10):
        gpus.read(float(second), with_slow=False)
    assert nvml.calls.count("nvmlDeviceGetHandleByIndex") == 4
    assert nvml.calls.count("nvmlDeviceGetTemperature") == 0
    assert not [call for call in nvml.calls if "Process" in call]


def test_given_a_metric_that_one_gpu_lacks_when_read_then_it_is_asked_once_and_all_else_is_there() -> None:
    nvml = Nvml(2)
    nvml.failing[0, "nvmlDeviceGetPowerUsage"] = NOT_SUPPORTED
    gpus = Gpus(nvml)
    for second in range(3):
        found = values(gpus.read(float(second), with_slow=False))
    assert ("gpu0.PowerWatts", "") not in found
    assert ("gpu0", "GPUUtilization") in found
    assert ("gpu1.PowerWatts", "") in found
    assert nvml.calls.count("nvmlDeviceGetPowerUsage") == 1 + 3
    assert "gpu0.Power" in gpus.faults


def test_given_an_error_that_passes_when_read_then_the_metric_comes_back() -> None:
    nvml = Nvml(1)
    gpus = Gpus(nvml)
    nvml.failing[0, UTILIZATION] = UNKNOWN
    assert ("gpu0", "GPUUtilization") not in values(gpus.read(1.0, with_slow=False))
    del nvml.failing[0, UTILIZATION]
    assert ("gpu0", "GPUUtilization") in values(gpus.read(2.0, with_slow=False))


def test_given_a_gpu_that_vanishes_when_read_then_it_is_reported_and_the_others_go_on() -> None:
    nvml = Nvml(3)
    gpus = Gpus(nvml)
    nvml.failing[1, UTILIZATION] = LOST
    gpus.read(1.0, with_slow=True)
    found = values(gpus.read(2.0, with_slow=True))
    assert [found[f"gpu{number}.Lost", ""] for number in range(3)] == [0.0, 1.0, 0.0]
    assert ("gpu1.MemoryUsedBytes", "") not in found
    assert ("gpu2", "GPUUtilization") in found
    assert gpus.faults["gpu1"].startswith("lost")


def test_given_mig_when_read_then_utilization_is_absent_and_instances_have_their_own_series() -> None:
    found = values(Gpus(Nvml(2, mig=frozenset({0}))).read(1.0, with_slow=False))
    assert ("gpu0", "GPUUtilization") not in found
    assert found["gpu0.mig1.MemoryUsedBytes", ""] == 7 << 30
    assert found["gpu1", "GPUUtilization"] == 41.0


def test_given_an_xid_when_read_then_the_newest_is_reported_from_then_on() -> None:
    nvml = Nvml(1)
    gpus = Gpus(nvml)
    assert values(gpus.read(1.0, with_slow=True))["gpu0.XID", ""] == 0.0
    nvml.xids[0] = [31, 79]
    assert values(gpus.read(2.0, with_slow=True))["gpu0.XID", ""] == 79.0
    assert values(gpus.read(3.0, with_slow=True))["gpu0.XID", ""] == 79.0


def test_given_no_driver_when_read_then_there_are_no_gpus_and_the_reason_is_kept() -> None:
    nvml = Nvml(1)
    nvml.nvmlInit = lambda: (_ for _ in ()).throw(nvml.NVMLError(9))  # type: ignore[method-assign]
    gpus = Gpus(nvml)
    assert (gpus.read(1.0, with_slow=True), list(gpus.faults)) == ([], ["nvml"])
