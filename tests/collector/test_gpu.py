"""GPUs by NVML: every metric fails alone, and a GPU that vanishes ends nothing."""

import math

import pytest

from tests.collector.nvml_stub import LOST, NO_FUNCTION, NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, Gpus, Nvml
from trainguard_collector.metrics import Sample

UTILIZATION = "nvmlDeviceGetUtilizationRates"


def values(samples: list[Sample]) -> dict[tuple[str, str], float]:
    return {(sample.name, sample.dimension): sample.value for sample in samples}


def test_gpu_series_have_the_managed_names() -> None:
    found = values(Gpus(Nvml(2)).read(1.0, with_slow=False))
    assert found["gpu1", "GPUUtilization"] == 41.0
    assert found["gpu1", "GPUMemoryUtilization"] == 20.0
    assert found["gpu1.MemoryUsedBytes", ""] == 7 << 30
    assert found["gpu1.PowerWatts", ""] == 412.345


def test_counters_of_slow_metrics_become_rates() -> None:
    nvml = Nvml(1)
    gpus = Gpus(nvml)
    gpus.read(1.0, with_slow=True)
    nvml.bytes = 5_000
    found = values(gpus.read(11.0, with_slow=True))
    assert found["gpu0.PCIeTransmittedBytesPerSecond", ""] == 500.0
    assert found["gpu0.ThrottleReasons", ""] == 0x40
    assert found["gpu0.ECCUncorrectedErrors", ""] == 1.0
    assert (found["gpu0.PCIeLinkWidth", ""], found["gpu0.PCIeLinkWidthMaximum", ""]) == (8.0, 16.0)
    assert (found["gpu0.PCIeLinkGeneration", ""], found["gpu0.PCIeLinkGenerationMaximum", ""]) == (1.0, 5.0)
    assert found["gpu0.NVLinkReceivedBytesPerSecond", ""] == 500.0 * 1024
    assert found["gpu0.PowerLimitWatts", ""] == 700.0
    assert found["gpu0.RemappedRows", ""] == 3.0


def test_counters_of_32_bits_give_no_rates() -> None:
    nvml = Nvml(1)
    nvml.value_type = 1
    gpus = Gpus(nvml)
    gpus.read(1.0, with_slow=True)
    nvml.bytes = 5_000
    found = values(gpus.read(11.0, with_slow=True))
    assert not [name for name, _ in found if name.endswith("BytesPerSecond")]
    assert "32 bits" in gpus.faults["gpu0.PCIe"]


def test_gpm_gives_means_between_reads_and_the_traffic() -> None:
    nvml = Nvml(2, gpm={2: 5.0, 3: 12.5, 5: 1.5, 10: 30.0, 20: 2.0, 21: 3.0, 60: 4.0, 61: 5.0})
    nvml.bytes = 1
    gpus = Gpus(nvml)
    assert "gpu0.SMActivityPercent" not in {name for name, _ in values(gpus.read(1.0, with_slow=True))}
    nvml.bytes = 77_777
    found = values(gpus.read(11.0, with_slow=True))
    names = ("SMActivity", "SMOccupancy", "TensorActivity", "DRAMActivity")
    assert [found[f"gpu1.{name}Percent", ""] for name in names] == [5.0, 12.5, 1.5, 30.0]
    traffic = ("PCIeTransmitted", "PCIeReceived", "NVLinkReceived", "NVLinkTransmitted")
    assert [found[f"gpu1.{name}BytesPerSecond", ""] / 2**20 for name in traffic] == [2.0, 3.0, 4.0, 5.0]


def test_metric_missing_in_gpm_leaves_others_and_counter_traffic() -> None:
    nvml = Nvml(1, gpm={2: 5.0, 3: math.nan})
    gpus = Gpus(nvml)
    for at in (1.0, 11.0, 21.0):
        nvml.bytes += 10_000
        found = values(gpus.read(at, with_slow=True))
    assert found["gpu0.SMActivityPercent", ""] == 5.0
    assert "gpu0.SMOccupancyPercent" not in {name for name, _ in found}
    assert found["gpu0.PCIeReceivedBytesPerSecond", ""] == 1_000.0
    assert {"gpu0.TensorActivityPercent", "gpu0.DRAMActivityPercent"} <= set(gpus.faults)
    assert "gpu0.SMOccupancyPercent" not in gpus.faults


def test_counters_give_the_traffic_if_gpm_is_denied() -> None:
    nvml = Nvml(1, gpm={20: 2.0})
    nvml.failing[0, "nvmlGpmSampleGet"] = NO_PERMISSION
    gpus = Gpus(nvml)
    for at in (1.0, 11.0):
        nvml.bytes += 10_000
        found = values(gpus.read(at, with_slow=True))
    assert found["gpu0.PCIeReceivedBytesPerSecond", ""] == 1_000.0
    assert "gpu0.GPM" in gpus.faults


def test_nothing_is_reported_absent_with_gpm_and_no_counters() -> None:
    nvml = Nvml(1, gpm=dict.fromkeys((2, 3, 5, 10, 20, 21, 60, 61), 7.0))
    nvml.failing[0, "nvmlDeviceGetFieldValues"] = NOT_SUPPORTED
    gpus = Gpus(nvml)
    for at in (1.0, 11.0):
        found = values(gpus.read(at, with_slow=True))
    assert found["gpu0.NVLinkReceivedBytesPerSecond", ""] == 7.0 * 2**20
    assert gpus.faults == {}


def test_mig_with_gpm_has_activity_by_instance_not_by_gpu() -> None:
    gpus = Gpus(Nvml(1, mig=frozenset({0}), gpm={2: 40.0}))
    gpus.read(1.0, with_slow=True)
    found = values(gpus.read(11.0, with_slow=True))
    assert (found["gpu0.mig0.SMActivityPercent", ""], found["gpu0.mig1.SMActivityPercent", ""]) == (40.0, 40.0)
    assert "gpu0.SMActivityPercent" not in {name for name, _ in found}


def test_gpu_lost_at_the_start_is_reported() -> None:
    nvml = Nvml(2)
    nvml.failing[1, "nvmlDeviceGetHandleByIndex"] = LOST
    found = values(Gpus(nvml).read(1.0, with_slow=True))
    assert (found["gpu0.Lost", ""], found["gpu1.Lost", ""]) == (0.0, 1.0)


def test_each_xid_of_a_lost_gpu_is_counted() -> None:
    nvml = Nvml(1)
    gpus = Gpus(nvml)
    gpus.read(1.0, with_slow=True)
    nvml.xids[0] = [79, 31, 31]
    nvml.failing[0, UTILIZATION] = LOST
    gpus.read(1.5, with_slow=False)
    found = values(gpus.read(11.0, with_slow=True))
    assert found == {
        ("gpu0.Lost", ""): 1.0,
        ("gpu0.XID", ""): 31.0,
        ("gpu0.XIDCount79", ""): 1.0,
        ("gpu0.XIDCount31", ""): 2.0,
    }


def test_snapshots_fetch_handles_once_and_never_list_processes() -> None:
    nvml = Nvml(4)
    gpus = Gpus(nvml)
    for second in range(10):
        gpus.read(float(second), with_slow=False)
    assert nvml.calls.count("nvmlDeviceGetHandleByIndex") == 4
    assert nvml.calls.count("nvmlDeviceGetTemperature") == 0
    assert not [call for call in nvml.calls if "Process" in call]


def test_metric_missing_on_one_gpu_is_queried_once() -> None:
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


def test_throttle_reasons_are_read_under_the_old_driver_name() -> None:
    nvml = Nvml(1)
    nvml.failing[0, "nvmlDeviceGetCurrentClocksEventReasons"] = NO_FUNCTION
    for at in (1.0, 2.0):
        found = values(Gpus(nvml).read(at, with_slow=True))
        assert found["gpu0.ThrottleReasons", ""] == 0x20


def test_metric_returns_after_a_transient_error() -> None:
    nvml = Nvml(1)
    gpus = Gpus(nvml)
    nvml.failing[0, UTILIZATION] = UNKNOWN
    assert ("gpu0", "GPUUtilization") not in values(gpus.read(1.0, with_slow=False))
    del nvml.failing[0, UTILIZATION]
    assert ("gpu0", "GPUUtilization") in values(gpus.read(2.0, with_slow=False))


def test_vanished_gpu_is_reported_and_others_go_on() -> None:
    nvml = Nvml(3)
    gpus = Gpus(nvml)
    nvml.failing[1, UTILIZATION] = LOST
    gpus.read(1.0, with_slow=True)
    found = values(gpus.read(2.0, with_slow=True))
    assert [found[f"gpu{number}.Lost", ""] for number in range(3)] == [0.0, 1.0, 0.0]
    assert ("gpu1.MemoryUsedBytes", "") not in found
    assert ("gpu2", "GPUUtilization") in found
    assert gpus.faults["gpu1"].startswith("lost")


def test_mig_has_series_by_instance_and_no_gpu_utilization() -> None:
    found = values(Gpus(Nvml(2, mig=frozenset({0}))).read(1.0, with_slow=False))
    assert ("gpu0", "GPUUtilization") not in found
    assert found["gpu0.mig1.MemoryUsedBytes", ""] == 7 << 30
    assert found["gpu1", "GPUUtilization"] == 41.0


def test_newest_xid_is_reported_until_the_next() -> None:
    nvml = Nvml(1)
    gpus = Gpus(nvml)
    assert values(gpus.read(1.0, with_slow=True))["gpu0.XID", ""] == 0.0
    nvml.xids[0] = [31, 79]
    assert values(gpus.read(2.0, with_slow=True))["gpu0.XID", ""] == 79.0
    assert values(gpus.read(3.0, with_slow=True))["gpu0.XID", ""] == 79.0


def test_missing_driver_gives_no_gpus_and_a_reason() -> None:
    nvml = Nvml(1)
    nvml.nvmlInit = lambda: (_ for _ in ()).throw(nvml.NVMLError(9))  # type: ignore[method-assign]
    gpus = Gpus(nvml)
    assert (gpus.read(1.0, with_slow=True), list(gpus.faults)) == ([], ["nvml"])


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (("2",), {"gpu0": 42.0}),
        (("GPU-1", "GPU-3"), {"gpu0": 41.0, "gpu1": 43.0}),
        (("GPU-7",), {}),
    ],
)
def test_gpus_of_the_job_alone_count(only: tuple[str, ...], found: dict[str, float]) -> None:
    read = values(Gpus(Nvml(4), *only).read(1.0, with_slow=False))
    assert {name: value for (name, dimension), value in read.items() if dimension == "GPUUtilization"} == found


def test_instances_of_the_job_alone_count() -> None:
    found = values(Gpus(Nvml(2, mig=frozenset({1})), "MIG-1-1").read(1.0, with_slow=False))
    assert {name for name, _ in found if "mig" in name and "Used" in name} == {"gpu0.mig1.MemoryUsedBytes"}


def test_lost_gpu_counts_as_the_one_that_is_missing() -> None:
    nvml = Nvml(3)
    nvml.failing[0, "nvmlDeviceGetHandleByIndex"] = LOST
    lost = {only: values(Gpus(nvml, *only).read(1.0, with_slow=True)) for only in (("GPU-1", "GPU-9"), ("GPU-1",))}
    assert [found.get(("gpu1.Lost", "")) for found in lost.values()] == [1.0, None]
