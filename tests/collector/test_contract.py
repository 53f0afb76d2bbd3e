"""What the collector writes is what TrainGuard reads: keys, lines, and whole profiles at every interval."""

from pathlib import Path

import pytest

from tests.collector.nvml_stub import Gpus, Nvml
from trainguard.core.layout import EndKey, ProfileRoot, parse_job_file_key
from trainguard.formats.profile.assemble import assemble, estimate_interval_s
from trainguard.formats.profile.keys import SystemKey, parse_key
from trainguard.formats.profile.keys import system_key as engines_key
from trainguard.formats.profile.system import read_system_object
from trainguard.local.api import analyze
from trainguard_collector import layout
from trainguard_collector.metrics import Sample, encode
from trainguard_collector.names import job_name, node_name
from trainguard_collector.settings import INTERVALS_MS

MINUTE = 1_800_000_000


def test_keys_read_by_the_engine_name_what_was_meant() -> None:
    root = ProfileRoot("", "run-1")
    key = layout.system_key("run-1", "ip-10-0-0-7.ec2", MINUTE)
    assert key == engines_key(root, "ip-10-0-0-7.ec2", MINUTE)
    assert parse_key(key) == SystemKey(root, "ip-10-0-0-7.ec2", MINUTE)
    assert parse_key(layout.end_key("run-1")) == EndKey(root, "system")
    assert parse_job_file_key(layout.job_file_key("run-1")) == root
    assert parse_job_file_key(layout.status_key("run-1", "job")) is None


@pytest.mark.parametrize("name", ["a", "..", "9a-b:0", "Über/lauf 7", "x" * 90, "-a-", "a.b_c", "", "a--b"])
def test_any_job_and_node_name_makes_a_valid_key(name: str) -> None:
    assert isinstance(parse_key(layout.system_key(job_name(name), node_name(name), MINUTE)), SystemKey)


@pytest.mark.parametrize("interval_ms", INTERVALS_MS)
def test_engine_uses_every_line_at_any_interval(interval_ms: int, tmp_path: Path) -> None:
    nvml = Nvml(2, gpm=dict.fromkeys((2, 3, 5, 10, 20, 21, 60, 61), 12.5))
    nvml.xids[1] = [79]
    gpus = Gpus(nvml)
    count = max(240_000 // interval_ms, 1)
    minutes: dict[int, bytes] = {}
    for number in range(count):
        at = MINUTE + number * interval_ms / 1_000 + 0.003
        samples = gpus.read(at, with_slow=number % max(10_000 // interval_ms, 1) == 0)
        for core in range(2):
            samples.append(Sample("cpu", f"cpu{core}", "CPUUtilization", 12.345))
            samples.append(Sample("cpu", f"cpu{core}", "I/OWaitPercentage", 0.5))
        samples.append(Sample("memory", "MemoryUsedPercent", "", 33.3))
        samples.append(Sample("i/o", "WriteThroughputInBytesPerSecond", "", 7e8))
        samples.append(Sample("network", "ReceiveBytesPerSecond", "Algorithm", 1.5e9))
        minute = int(at // 60) * 60
        minutes[minute] = minutes.get(minute, b"") + encode(samples, "node-1", at)
    interval_s, last = None, None
    for minute, body in minutes.items():
        path = tmp_path / layout.system_key("run-1", "node-1", minute)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        read = read_system_object(path.name, body, node="node-1", minute=minute)
        assert dict(read.tally) == {"lines": body.count(b"\n")}
        interval_s, last = estimate_interval_s(read, interval_s, last), float(read.times[-1])
        snapshots, _ = assemble(read, None, gpu_names=("gpu0", "gpu1"), interval_s=interval_ms / 1_000)
        assert len(snapshots.times) == max(60_000 // interval_ms, 1) - 1
    assert interval_s == interval_ms / 1_000
    (tmp_path / layout.end_key("run-1")).write_bytes(b"")
    report = analyze(tmp_path / "run-1", time_lines=False)
    assert report.notes == ()
    assert "ERROR" not in report.rules["status"]


def test_non_numeric_values_have_no_line() -> None:
    samples = [Sample("cpu", "cpu0", "CPUUtilization", value) for value in (float("nan"), float("inf"), 5.0)]
    assert encode(samples, "a", 1.0) == (
        b'{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":5.00,"NodeId":"a","Timestamp":1.000000}\n'
    )
