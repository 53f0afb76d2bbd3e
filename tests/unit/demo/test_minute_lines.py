"""The lines of system metrics are those of a real agent."""

import json
import re
from collections import Counter
from itertools import groupby, pairwise

import numpy as np
import pytest

from demo.minute_lines import MinuteWriter
from demo.sampler import sample_node
from demo.samples import GROUPS, NodeSamples
from demo.synthesis import minute_of_node
from demo.workloads import CPU_BOTTLENECK

START = 1_784_021_040
_TAIL = ',"NodeId":"algo-1","Timestamp":1784021049.734812}'
_TAIL_OF_2020 = ',"NodeId":"algo-1","Timestamp":1591748109.2321954}'
REAL_LINES = (
    '{"Type":"cpu","Name":"cpu5","Dimension":"CPUUtilization","Value":1.36' + _TAIL_OF_2020,
    '{"Type":"cpu","Name":"cpu0","Dimension":"I/OWaitPercentage","Value":0.0' + _TAIL,
    '{"Type":"gpu","Name":"gpu0","Dimension":"GPUUtilization","Value":72.0' + _TAIL,
    '{"Type":"gpu","Name":"gpu0","Dimension":"GPUMemoryUtilization","Value":23.0' + _TAIL,
    '{"Type":"memory","Name":"MemoryUsedPercent","Dimension":"","Value":22.48' + _TAIL,
    '{"Type":"i/o","Name":"IOPS","Dimension":"","Value":61.97' + _TAIL,
    '{"Type":"i/o","Name":"ReadThroughputInBytesPerSecond","Dimension":"","Value":8187.01' + _TAIL,
    '{"Type":"i/o","Name":"WriteThroughputInBytesPerSecond","Dimension":"","Value":409350.52' + _TAIL,
    '{"Type":"network","Name":"ReceiveBytesPerSecond","Dimension":"Algorithm","Value":0.0' + _TAIL,
    '{"Type":"network","Name":"TransmitBytesPerSecond","Dimension":"Algorithm","Value":0.0' + _TAIL,
    '{"Type":"network","Name":"ReceiveBytesPerSecond","Dimension":"Platform","Value":1831203.9' + _TAIL,
    '{"Type":"network","Name":"TransmitBytesPerSecond","Dimension":"Platform","Value":52271.4' + _TAIL,
)


def shape(line: str) -> str:
    """Return the line with its device number, value and time replaced by what they look like."""
    line = re.sub(r'"(cpu|gpu)\d+"', r'"\1#"', line)
    line = re.sub(r'"Value":\d+\.\d{1,2},', '"Value":#,', line)
    return re.sub(r'"Timestamp":\d{10}\.\d{1,7}}', '"Timestamp":#}', line)


@pytest.fixture(scope="module")
def samples() -> NodeSamples:
    return sample_node(CPU_BOTTLENECK, 0, np.random.default_rng(7))


@pytest.fixture(scope="module")
def minutes(samples: NodeSamples) -> list[bytes]:
    writer = MinuteWriter(node="algo-1", cores=8, gpus=1)
    return [writer.body(samples, samples.rows(minute), start=START) for minute in samples.minutes]


def snapshots_of(body: bytes) -> list[list[dict[str, object]]]:
    """Cut a minute into snapshots: lines that are less than half a period apart."""
    lines = [json.loads(line) for line in body.splitlines()]
    cuts = [0, *(at for at, (a, b) in enumerate(pairwise(lines), 1) if b["Timestamp"] - a["Timestamp"] > 0.25)]
    return [lines[a:b] for a, b in pairwise([*cuts, len(lines)])]


def test_lines_of_a_minute_have_the_shapes_of_real_ones(minutes: list[bytes]) -> None:
    shapes = {shape(line) for line in minutes[3].decode().splitlines()}

    assert shapes == {shape(line) for line in REAL_LINES}


def test_every_line_of_a_minute_ends_in_one_line_feed(minutes: list[bytes]) -> None:
    assert minutes[3].endswith(b"}\n")
    assert b"\n\n" not in minutes[3]
    assert b"\r" not in minutes[3]


def test_lines_carry_the_percentages_of_recorded_counts(samples: NodeSamples, minutes: list[bytes]) -> None:
    row = samples.rows(3).start + 5
    snapshot = {(line["Name"], line["Dimension"]): line["Value"] for line in snapshots_of(minutes[3])[5]}

    for core in range(8):
        expected = 100 * int(samples.busy[row, core]) / int(samples.jiffies[row])
        assert snapshot[f"cpu{core}", "CPUUtilization"] == pytest.approx(expected, abs=0.005)
    assert snapshot["gpu0", "GPUUtilization"] == float(samples.gpu[row, 0])
    assert snapshot["gpu0", "GPUMemoryUtilization"] == float(samples.gpu_memory[row, 0])
    assert snapshot["MemoryUsedPercent", ""] == int(samples.host_memory[row]) / 100


def test_rates_of_recorded_counts_are_per_second(samples: NodeSamples, minutes: list[bytes]) -> None:
    row = samples.rows(3).start + 5
    elapsed_s = float(samples.ticks_us[row] - samples.ticks_us[row - 1]) / 1e6
    snapshot = {(line["Name"], line["Dimension"]): line["Value"] for line in snapshots_of(minutes[3])[5]}

    written = snapshot["WriteThroughputInBytesPerSecond", ""]
    received = snapshot["ReceiveBytesPerSecond", "Platform"]

    assert written == pytest.approx(int(samples.disk[row, 2]) * 4_096 / elapsed_s, abs=0.01)
    assert received == pytest.approx(int(samples.network[row, 0]) * 1_024 / elapsed_s, abs=0.01)


def test_first_minute_starts_late_with_only_gpu_and_memory(
    minutes: list[bytes],
) -> None:
    first, second, *_ = snapshots_of(minutes[0])

    assert float(str(first[0]["Timestamp"])) - START == pytest.approx(9.23, abs=0.1)
    assert {line["Type"] for line in first} == {"gpu", "memory"}
    assert {line["Type"] for line in second} == set(GROUPS)


def test_snapshot_groups_share_a_time_and_network_is_last(
    minutes: list[bytes],
) -> None:
    for snapshot in snapshots_of(minutes[3]):
        groups = [(kind, {line["Timestamp"] for line in lines}) for kind, lines in groupby(snapshot, _kind)]
        times = [float(str(line["Timestamp"])) for line in snapshot]

        assert Counter(kind for kind, _ in groups) == Counter(GROUPS)
        assert all(len(group_times) == 1 for _, group_times in groups)
        assert groups[-1][0] == "network"
        assert times == sorted(times)
        assert times[-1] - times[0] <= 0.0251


def test_order_of_groups_and_devices_varies_over_snapshots(minutes: list[bytes]) -> None:
    snapshots = snapshots_of(minutes[3])

    assert len({tuple(kind for kind, _ in groupby(snapshot, _kind)) for snapshot in snapshots}) > 5
    assert len({tuple(line["Name"] for line in snapshot if line["Type"] == "cpu") for snapshot in snapshots}) > 5


def test_default_minute_is_that_of_a_large_node() -> None:
    body = minute_of_node()

    assert body.count(b"\n") == 25_320
    assert 3.0e6 < len(body) < 3.2e6


@pytest.mark.parametrize(
    ("interval_ms", "snapshots"), [(100, 600), (200, 300), (500, 120), (1_000, 60), (5_000, 12), (60_000, 1)]
)
def test_minute_of_any_sampling_period_is_full(interval_ms: int, snapshots: int) -> None:
    minute = START + 600
    body = minute_of_node(cores=2, gpus=1, interval_ms=interval_ms, minute=minute, every_counter=True)
    times = [json.loads(line)["Timestamp"] for line in body.splitlines()]

    assert len(times) == snapshots * (2 * 2 + 2 + 8)
    assert minute <= min(times)
    assert max(times) < minute + 60.1


def test_minute_is_reproduced_by_its_seed_alone() -> None:
    body = minute_of_node(cores=4, gpus=1, seed=3)

    assert minute_of_node(cores=4, gpus=1, seed=3) == body
    assert minute_of_node(cores=4, gpus=1, seed=4) != body


def _kind(line: dict[str, object]) -> object:
    return line["Type"]
