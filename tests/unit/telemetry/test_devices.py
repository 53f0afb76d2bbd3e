"""Further series of devices are read beside the managed ones, and never move them."""

import json

import numpy as np
import pytest

from trainguard.formats.profile.snapshots import DISK_WRITE, MOST_DEVICE_SERIES, POWER, device_name
from trainguard.formats.profile.system import Samples, read_system_object

MINUTE = 1_795_248_000


def line(name: str, value: float, *, dimension: str = "", second: float = 1.0) -> bytes:
    fields = {"Type": "gpu", "Name": name, "Dimension": dimension, "Value": value, "NodeId": "algo-1"}
    return json.dumps({**fields, "Timestamp": MINUTE + second}).encode() + b"\n"


def read(*lines: bytes) -> Samples:
    return read_system_object("the/key", b"".join(lines), node="algo-1", minute=MINUTE)


MANAGED = (
    line("gpu0", 90.0, dimension="GPUUtilization"),
    line("cpu1", 20.0, dimension="CPUUtilization"),
    line("MemoryUsedPercent", 30.0),
)


def test_further_series_are_per_device_in_order_of_time() -> None:
    lines = [line("gpu1.PowerWatts", 300.0, second=2.0), line("gpu1.PowerWatts", 280.5), line("gpu0.PowerWatts", 70.0)]
    power = read(*MANAGED, *lines).devices.of(POWER)
    assert list(power) == ["gpu0", "gpu1"]
    assert power["gpu1"].values.tolist() == [280.5, 300.0]
    assert (power["gpu1"].first, power["gpu1"].last, power["gpu1"].mean) == (280.5, 300.0, 290.25)


def test_managed_series_are_unchanged_by_further_ones() -> None:
    further = [line("gpu0.PowerWatts", 300.0), line("gpu0.Lost", 0.0), line(DISK_WRITE, 5.0)]
    alone, beside = read(*MANAGED), read(*further, *MANAGED)
    assert beside.table == alone.table
    for column in ("times", "values", "series"):
        assert np.array_equal(getattr(beside, column), getattr(alone, column))
    assert alone.devices.by_metric == {}
    assert beside.devices.of_node(DISK_WRITE) is not None
    assert beside.devices.devices == {"gpu0"}


def test_instances_and_xid_counts_are_separate_series() -> None:
    lines = [line("gpu0.mig2.MemoryUsedBytes", 5e9), line("gpu0.XIDCount79", 1.0), line("gpu3.XIDCount31", 4.0)]
    devices = read(*lines).devices
    assert devices.devices == {"gpu0.mig2", "gpu0", "gpu3"}
    assert {code: list(series) for code, series in devices.xids.items()} == {79: ["gpu0"], 31: ["gpu3"]}


@pytest.mark.parametrize("name", ["gpu0.Unknown", "gpu.PowerWatts", "gpu0.PowerWatts7", "gpu0.XIDCount", "", None])
def test_given_a_name_that_no_rule_reads_then_it_is_passed_over(name: str | None) -> None:
    assert device_name(name) is None
    assert read(*([line(name, 1.0)] if name is not None else [])).devices.by_metric == {}


@pytest.mark.parametrize(("name", "value"), [("gpu0.SMActivityPercent", 101.5), ("gpu0.PowerWatts", -1.0)])
def test_impossible_value_is_counted_and_left_out(name: str, value: float) -> None:
    samples = read(*MANAGED, line(name, value))
    assert samples.tally["values_out_of_range"] == 1
    assert samples.devices.by_metric == {}


def test_series_beyond_the_limit_of_a_node_are_counted() -> None:
    samples = read(*MANAGED, *(line(f"gpu{gpu}.PowerWatts", 1.0) for gpu in range(MOST_DEVICE_SERIES + 3)))
    assert samples.tally["too_many_series"] == 3
    assert len(samples.table) == 3
