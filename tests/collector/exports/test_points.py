"""Samples as points of OpenTelemetry's conventions."""

from typing import Any

import pytest

from tests.collector.nvml_stub import Nvml
from trainguard_collector.exports.points import Newest, Point, points
from trainguard_collector.gpu import find_nvidia
from trainguard_collector.metrics import Sample

ABOUT = {"gpu0": {"hw.id": "GPU-1", "hw.vendor": "NVIDIA", "hw.model": "NVIDIA H100"}}
GPU0 = {**ABOUT["gpu0"], "hw.type": "gpu", "hw.name": "gpu0"}


def one(*samples: Sample) -> list[Point]:
    return points({(kind, name, dimension): (value, 5.0) for kind, name, dimension, value in samples}, {}, ABOUT)


@pytest.mark.parametrize(
    ("sample", "name", "unit", "value", "attributes"),
    [
        (Sample("gpu", "gpu0", "GPUUtilization", 40.0), "hw.gpu.utilization", "1", 0.4, {"hw.gpu.task": "general"}),
        (Sample("gpu", "gpu0.MemoryUsedBytes", "", 7.0), "hw.gpu.memory.usage", "By", 7.0, {}),
        (Sample("gpu", "gpu0.MemoryTotalBytes", "", 8.0), "hw.gpu.memory.limit", "By", 8.0, {}),
        (Sample("gpu", "gpu0.PowerWatts", "", 412.0), "hw.power", "W", 412.0, {}),
        (
            Sample("gpu", "gpu0.TemperatureCelsius", "", 61.0),
            *("hw.temperature", "Cel", 61.0, {"hw.sensor_location": "GPU"}),
        ),
        (
            Sample("gpu", "gpu0.ECCUncorrectedErrors", "", 2.0),
            *("hw.errors", "{error}", 2.0, {"error.type": "uncorrected"}),
        ),
        (Sample("gpu", "gpu0.XIDCount79", "", 1.0), "hw.errors", "{error}", 1.0, {"error.type": "xid_79"}),
        (Sample("gpu", "gpu0.SMActivityPercent", "", 9.0), "trainguard.gpu.sm.activity", "1", 0.09, {}),
        (
            Sample("cpu", "cpu11", "CPUUtilization", 50.0),
            "system.cpu.utilization",
            "1",
            0.5,
            {"cpu.logical_number": 11},
        ),
        (
            Sample("memory", "MemoryUsedPercent", "", 25.0),
            *("system.memory.utilization", "1", 0.25, {"system.memory.state": "used"}),
        ),
        (Sample("memory", "MemoryTotalBytes", "", 64.0), "system.memory.limit", "By", 64.0, {}),
    ],
)
def test_series_is_the_metric_of_the_convention(
    sample: Sample, name: str, unit: str, value: float, attributes: dict[str, Any]
) -> None:
    (point,) = one(sample)
    of_device = GPU0 if sample.type == "gpu" else {}
    assert (point.metric.name, point.metric.unit, point.at) == (name, unit, 5.0)
    assert point.value == pytest.approx(value)
    assert point.attributes == {**of_device, **attributes}


@pytest.mark.parametrize(
    "sample",
    [
        # The share of time that memory was read or written is no share of memory in use.
        Sample("gpu", "gpu0", "GPUMemoryUtilization", 20.0),
        Sample("gpu", "gpu0.ThrottleReasons", "", 64.0),
        Sample("gpu", "gpu0.XID", "", 79.0),
        Sample("cpu", "cpu0", "I/OWaitPercentage", 3.0),
        Sample("network", "ReceiveBytesPerSecond", "Algorithm", 3.0),
    ],
)
def test_series_without_a_convention_is_no_point(sample: Sample) -> None:
    assert one(sample) == []


def test_an_instance_has_its_gpu_as_parent_and_its_share() -> None:
    used, share, limit = one(
        Sample("gpu", "gpu0.mig1.MemoryUsedBytes", "", 2.0), Sample("gpu", "gpu0.mig1.MemoryTotalBytes", "", 8.0)
    )
    assert [each.metric.name for each in (used, share, limit)] == [
        f"hw.gpu.memory.{name}" for name in ("usage", "utilization", "limit")
    ]
    assert share.value == 0.25
    assert used.attributes == {**GPU0, "hw.id": "GPU-1.mig1", "hw.name": "gpu0.mig1", "hw.parent": "GPU-1"}


@pytest.mark.parametrize(("lost", "unanswered", "failed"), [(0, 0, 0), (1, 0, 1), (0, 1, 1)])
def test_status_of_a_gpu(lost: float, unanswered: float, failed: float) -> None:
    found = one(Sample("gpu", "gpu0.Lost", "", lost), Sample("gpu", "gpu0.Unanswered", "", unanswered))
    assert {str(each.attributes["hw.state"]): each.value for each in found} == {"ok": 1 - failed, "failed": failed}


def test_traffic_is_a_counter_of_the_rates_so_far() -> None:
    newest = Newest(60.0, lambda: 0.0)
    for steady, rate in ((100.0, 5.0), (110.0, 3.0), (130.0, 2.0)):
        newest.take([Sample("gpu", "gpu0.NVLinkReceivedBytesPerSecond", "", rate)], 1_000.0 + steady, steady, ABOUT)
    (point,) = newest.points()
    assert (point.metric.name, point.value, point.since, point.at) == ("hw.gpu.io", 70.0, 1_100.0, 1_130.0)
    assert point.attributes == {**GPU0, "network.io.direction": "receive", "trainguard.link": "nvlink"}


def test_old_samples_are_no_points_and_no_number_neither() -> None:
    now = [0.0]
    newest = Newest(30.0, lambda: now[0])
    newest.take([Sample("gpu", "gpu0.PowerWatts", "", 1.0), Sample("cpu", "cpu0", "CPUUtilization", 1.0)], 0.0, 0.0, {})
    newest.take([Sample("cpu", "cpu0", "CPUUtilization", float("nan"))], 20.0, 20.0, {})
    now[0] = 30.0
    assert len(newest.points()) == 2
    now[0] = 30.1
    assert newest.points() == []


def test_nvidia_gpus_have_uuid_and_vendor() -> None:
    (device,) = find_nvidia({}, Nvml(1))
    assert device.about == {"hw.vendor": "NVIDIA", "hw.id": "GPU-0", "hw.model": "NVIDIA H100"}
