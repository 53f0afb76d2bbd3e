"""The sampler with NVML's real bindings, on a compiled stand-in for the library, and with 96 cores."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.collector.native.node import GPUS, REPOSITORY, Procfs, environment_with_gpus
from trainguard.formats.profile.system import read_system_object

READ = """
import json, time
from trainguard_collector.gpu import find_nvidia
faults = {}
gpus = find_nvidia(faults)
began = time.monotonic()
for _ in range(3):
    at = time.monotonic() - began
    samples = [sample for gpu in gpus for sample in gpu.read(at, with_slow=True)]
    time.sleep(0.2)
print(json.dumps([{f"{s.name}/{s.dimension}": s.value for s in samples}, faults]))
"""


@pytest.fixture(scope="module")
def with_gpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "collector")])
    return {**os.environ, "PYTHONPATH": path, **environment_with_gpus(tmp_path_factory.mktemp("nvml"))}


def read_gpus(environment: dict[str, str]) -> tuple[dict[str, float], dict[str, str]]:
    done = subprocess.run([sys.executable, "-c", READ], env=environment, capture_output=True, check=True)
    values, faults = json.loads(done.stdout)
    return values, faults


def is_compiled(environment: dict[str, str]) -> bool:
    return "libnvidia-ml" in str(list(Path(environment.get("LD_LIBRARY_PATH", "/none").split(":")[0]).glob("*")))


def test_real_bindings_give_every_series_a_value(with_gpus: dict[str, str]) -> None:
    if not is_compiled(with_gpus):
        found, _ = read_gpus(with_gpus)
        assert found["gpu7.SMActivityPercent/"] == 2.0
        return
    found, faults = read_gpus(with_gpus)
    expected = {
        "GPUUtilization": 97.0,
        "GPUMemoryUtilization": 40.0,
        "MemoryUsedBytes": 60.0 * 2**30,
        "MemoryTotalBytes": 80.0 * 2**30,
        "PowerWatts": 412.345,
        "PowerLimitWatts": 700.0,
        "TemperatureCelsius": 61.0,
        "SMClockMHz": 1_755.0,
        "SMClockMaximumMHz": 1_980.0,
        "ThrottleReasons": 4.0,
        "PCIeLinkWidth": 16.0,
        "PCIeLinkWidthMaximum": 16.0,
        "PCIeLinkGeneration": 5.0,
        "PCIeLinkGenerationMaximum": 5.0,
        "SMActivityPercent": 2.0,
        "SMOccupancyPercent": 3.0,
        "TensorActivityPercent": 5.0,
        "DRAMActivityPercent": 10.0,
        "PCIeTransmittedBytesPerSecond": 20.0 * 2**20,
        "PCIeReceivedBytesPerSecond": 21.0 * 2**20,
        "NVLinkTransmittedBytesPerSecond": pytest.approx(2**30, rel=0.2),
        "NVLinkReceivedBytesPerSecond": pytest.approx(2**30, rel=0.2),
        "ECCCorrectedErrors": 0.0,
        "ECCUncorrectedErrors": 0.0,
        "RemappedRows": 1.0,
        "RemappedRowsPending": 0.0,
        "RemappedRowsFailed": 0.0,
        "XID": 0.0,
        "Lost": 0.0,
    }
    managed = ("GPUUtilization", "GPUMemoryUtilization")
    assert {name: value for name, value in found.items() if name.startswith("gpu7")} == {
        (f"gpu7/{name}" if name in managed else f"gpu7.{name}/"): value for name, value in expected.items()
    }
    assert faults == {}


def test_bindings_report_a_lost_gpu_and_an_xid(with_gpus: dict[str, str], tmp_path: Path) -> None:
    if not is_compiled(with_gpus):
        pytest.skip("no C compiler: the Python module that stands in loses no GPU")
    (tmp_path / "lost.3").touch()
    (tmp_path / "xid.1").write_text("79")
    found, faults = read_gpus({**with_gpus, "NVML_STUB": str(tmp_path)})
    assert [found[f"gpu{n}.Lost/"] for n in range(GPUS)] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert (found["gpu1.XID/"], found["gpu1.XIDCount79/"], found["gpu0.XID/"]) == (79.0, 1.0, 0.0)
    assert "gpu3/GPUUtilization" not in found
    assert "lost" in faults["gpu3"].lower()


@pytest.mark.parametrize("stuck", [False, True], ids=["answering", "stuck"])
def test_stuck_driver_on_a_large_node_costs_only_the_gpus(
    with_gpus: dict[str, str], tmp_path: Path, stuck: bool
) -> None:
    if stuck and not is_compiled(with_gpus):
        pytest.skip("no C compiler: the Python module that stands in is never stuck")
    (tmp_path / "broken").mkdir()
    if stuck:
        (tmp_path / "broken/hang.2").touch()
    procfs, over = Procfs(tmp_path / "proc"), threading.Event()

    def work() -> None:
        while not over.wait(0.1):
            procfs.advance()

    kernel = threading.Thread(target=work)
    kernel.start()
    environment = {
        **with_gpus,
        "NVML_STUB": str(tmp_path / "broken"),
        "TRAINGUARD_OUTPUT": str(tmp_path / "output"),
        "TRAINGUARD_SPOOL": str(tmp_path / "spool"),
        "TRAINGUARD_PROCFS": str(procfs.folder),
        "TRAINGUARD_CGROUP": str(tmp_path / "no-cgroup"),
        "TRAINGUARD_INTERVAL_MS": "200",
        "TRAINGUARD_JOB": "run-1",
        "TRAINGUARD_NODE": "node-1",
        "TRAINGUARD_AUTOSTART": "0",
    }
    enough = f"until grep -qs 'cpu95.*OWait' {tmp_path}/spool/*/*.part; do sleep 0.1; done; sleep 2; exit 3"
    command = [sys.executable, "-m", "trainguard_collector", "--", "bash", "-c", enough]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    finally:
        over.set()
        kernel.join()
    assert (done.returncode, done.stderr) == (3, b"")
    counts: Counter[str] = Counter()
    devices: dict[str, set[str]] = defaultdict(set)
    for path in (tmp_path / "output/run-1/profiler-output").rglob("*.json"):
        body = path.read_bytes()
        read = read_system_object(path.name, body, node="node-1", minute=int(path.name.split(".")[0]))
        counts.update(read.tally)
        for series in read.table:
            devices[series.kind].add(series.name)
    assert set(counts) == {"gzip_objects", "lines"}
    assert len(devices["cpu"]) == 96
    assert len(devices["gpu"]) == (0 if stuck else GPUS)
    status = json.loads((tmp_path / "output/run-1/collector/node-1.status.json").read_bytes())
    assert (status["outcome"], status["errors"]) == ("Failed", {})
