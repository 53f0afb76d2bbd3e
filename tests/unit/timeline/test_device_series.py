"""Further series of GPUs over time: units, both directions, finer parts, and room on the page."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.timeline.samples import START, axis
from trainguard.formats.profile.snapshots import DeviceSamples, DeviceSeries
from trainguard.formats.profile.system import MetricSeries, Samples
from trainguard.report.html.timelines import timelines_island
from trainguard.report.timeline import shown as device_series
from trainguard.report.timeline.build import build_timelines
from trainguard.report.timeline.digest import NodeDigest, decode_digest
from trainguard.report.timeline.series import TimeAxis, Timelines

GB = 1e9


def minute(begin: float, gpus: int = 2, **metrics: float) -> Samples:
    """Return an object with utilization of the GPUs, and a value of each metric in six buckets of ten seconds."""
    times = np.array([START + begin + 10.0 * number + 1.0 for number in range(6)])
    one = {f"gpu{number}": DeviceSeries(times, np.ones(6)) for number in range(gpus)}
    further = {
        metric: {gpu: DeviceSeries(times, held.values * value) for gpu, held in one.items()}
        for metric, value in metrics.items()
    }
    table = tuple(MetricSeries("gpu", gpu) for gpu in one)
    every = np.repeat(np.arange(gpus), 6)
    return Samples(np.tile(times, gpus), np.full(6 * gpus, 50.0), every, table, devices=DeviceSamples(further))


def built(*objects: Samples, on: TimeAxis | None = None) -> Timelines:
    digest = NodeDigest("algo-1", axis(12) if on is None else on)
    for each in objects:
        digest.add_samples(each)
    return build_timelines([decode_digest(digest.encode())], episodes=[], started_at=None, ended_at=None)


ALL = {
    "SMActivityPercent": 41.25,
    "TensorActivityPercent": 12.5,
    "DRAMActivityPercent": 30.0,
    "SMOccupancyPercent": 22.0,
    "MemoryUsedBytes": 20 * GB,
    "MemoryTotalBytes": 80 * GB,
    "PowerWatts": 412.34,
    "TemperatureCelsius": 61.0,
    "SMClockMHz": 1_530.0,
    "NVLinkTransmittedBytesPerSecond": 3e9,
    "NVLinkReceivedBytesPerSecond": 1e9,
    "PCIeTransmittedBytesPerSecond": 5e6,
}


def test_each_gpu_has_its_further_series_in_their_units() -> None:
    [node] = built(minute(0, 2, **ALL)).nodes
    shown = {(each.kind, each.gpu): set(each.band.mean) for each in node.devices}
    assert {gpu for _, gpu in shown} == {"gpu0", "gpu1"}
    assert {kind: values for (kind, gpu), values in shown.items() if gpu == "gpu1"} == {
        "sm_activity": {41.2},
        "memory_used": {25.0},
        "tensor_activity": {12.5},
        "dram_activity": {30.0},
        "sm_occupancy": {22.0},
        "power": {412.3},
        "sm_clock": {1_530.0},
        "temperature": {61.0},
        "nvlink": {4_000_000_000},
        "pcie": {5_000_000},
    }


def test_instances_of_a_partitioned_gpu_have_their_own_series() -> None:
    times = np.array([START + 1.0, START + 11.0])
    further = {
        metric: {f"gpu0.mig{number}": DeviceSeries(times, np.full(2, value)) for number in (0, 1)}
        for metric, value in ALL.items()
        if metric.startswith(("SM", "Memory"))
    }
    samples = Samples(times, np.full(2, 50.0), np.zeros(2, dtype=np.int64), (MetricSeries("cpu", "cpu0"),))
    [node] = built(replace(samples, devices=DeviceSamples(further))).nodes
    shown = {(each.kind, each.gpu) for each in node.devices}
    assert {("sm_activity", "gpu0.mig0"), ("memory_used", "gpu0.mig1")} <= shown


def test_given_a_managed_profile_when_built_then_there_is_none() -> None:
    assert built(minute(0)).nodes[0].devices == []


def test_share_of_memory_of_unknown_size_is_left_out() -> None:
    assert built(minute(0, MemoryUsedBytes=20 * GB)).nodes[0].devices == []


def test_merged_digest_does_not_depend_on_the_object_order() -> None:
    parts = [minute(0, PowerWatts=100.0), minute(60, PowerWatts=300.0)]
    one, other = NodeDigest("algo-1", axis(12)), NodeDigest("algo-1", axis(12))
    for each in parts:
        one.add_samples(each)
    for each in reversed(parts):
        part = NodeDigest("algo-1", axis(12))
        part.add_samples(each)
        other.merge(part)
    assert one.encode() == other.encode()
    [power, _] = built(*parts).nodes[0].devices
    assert power.band.mean == [100.0] * 6 + [300.0] * 6


def test_little_room_averages_a_kind_per_node_and_then_omits_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = minute(0, SMActivityPercent=40.0, PowerWatts=300.0)
    monkeypatch.setattr(device_series, "ROOM_BYTES", 6 * 4 / 3 + device_series.NAME_BYTES)
    found = built(full)
    assert [(each.kind, each.gpu, each.band.mean[0]) for each in found.nodes[0].devices] == [
        ("sm_activity", None, 40.0)
    ]
    assert found.left_out == [
        "SM activity is shown as the mean of each node's GPUs.",
        "GPU power is left out: a report of so many nodes has no room for it.",
    ]
    monkeypatch.setattr(device_series, "ROOM_BYTES", 0)
    assert built(full).nodes[0].devices == []


def test_further_series_are_finer_on_zoom_with_a_finer_digest() -> None:
    long = [minute(60.0 * number, PowerWatts=100.0 + number) for number in range(600)]
    found = built(*long, on=TimeAxis(start=float(START), bucket_s=10.0, buckets=3_600))
    [detail] = found.detail
    assert detail.axis.bucket_s < found.axis.bucket_s
    assert [(each.kind, each.gpu) for each in detail.nodes[0].devices] == [("power", "gpu0"), ("power", "gpu1")]
    assert len(detail.nodes[0].devices[0].band.mean) == detail.axis.buckets


def test_page_data_takes_one_byte_for_percent_and_four_otherwise() -> None:
    text = timelines_island(built(minute(0, SMActivityPercent=40.0, PowerWatts=300.0)))
    assert '{"kind":"sm_activity","name":"gpu0","band":{"mean":"UFBQUFBQ"}}' in text
    assert '{"kind":"power","name":"gpu0","band":{"mean":"' in text
