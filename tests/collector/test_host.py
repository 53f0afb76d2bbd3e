"""CPU, memory, disk and network, from the files of a kernel that are written here."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from trainguard_collector.host import Cgroup, Host, core_numbers

FIELDS = ("Total", "Free", "Available")
MORE = ("Buffers", "Cached", "Active", "Inactive", "Shmem")
MEMINFO = "".join(
    [f"Mem{name}: {kb} kB\n" for name, kb in zip(FIELDS, (1_000, 400, 600), strict=True)]
    + [f"{name}: 0 kB\n" for name in MORE]
)


class Kernel:
    """A folder that looks like /proc, and one that looks like /sys/fs/cgroup."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroup = folder / "proc", folder / "cgroup"
        self.write(self.proc / "meminfo", MEMINFO)
        self.write(self.proc / "self/cgroup", "0::/pod/one\n")
        self.cores([(0, 0, 0), (0, 0, 0)])
        self.network(0, 0)

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cores(self, ticks: list[tuple[int, int, int]]) -> None:
        """Write ticks of 10 ms that each core was busy, idle and waiting."""
        lines = [f"cpu{n} {busy} 0 0 {idle} {waiting} 0 0 0 0 0" for n, (busy, idle, waiting) in enumerate(ticks)]
        self.write(self.proc / "stat", "\n".join(["cpu 0 0 0 0 0 0 0 0 0 0", *lines, ""]))

    def network(self, received: int, sent: int) -> None:
        head = "Inter-| Receive | Transmit\n face |bytes packets\n"
        rows = [f"{name}: {received} 0 0 0 0 0 0 0 {sent} 0 0 0 0 0 0 0\n" for name in ("lo", "eth0", "veth12")]
        self.write(self.proc / "net/dev", head + "".join(rows))

    def limit(self, group: str, **files: str) -> None:
        self.write(self.cgroup / "cgroup.controllers", "cpu memory cpuset")
        for name, text in files.items():
            self.write(self.cgroup / group / name.replace("_", "."), text)

    def host(self, *groups: str, network_of: int | None = None) -> Host:
        return Host(Cgroup(str(self.cgroup), str(self.proc), groups), str(self.proc), network_of)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    before = psutil.PROCFS_PATH
    yield Kernel(tmp_path)
    psutil.PROCFS_PATH = before


def read(host: Host, at: float) -> dict[tuple[str, str], float]:
    return {(sample.name, sample.dimension): sample.value for sample in host.read(at)}


def test_cores_have_their_share_between_two_readings(kernel: Kernel) -> None:
    host = kernel.host()
    read(host, 10.0)
    kernel.cores([(30, 60, 10), (0, 100, 0)])
    found = read(host, 11.0)
    assert found["cpu0", "CPUUtilization"] == pytest.approx(30.0)
    assert found["cpu0", "I/OWaitPercentage"] == pytest.approx(10.0)
    assert found["cpu1", "CPUUtilization"] == 0.0


def test_network_rates_leave_out_virtual_devices(kernel: Kernel) -> None:
    host = kernel.host()
    read(host, 10.0)
    kernel.network(3_000, 500)
    found = read(host, 12.0)
    assert found["ReceiveBytesPerSecond", "Algorithm"] == 1_500.0
    assert found["TransmitBytesPerSecond", "Algorithm"] == 250.0


def test_decreased_counter_gives_no_rate(kernel: Kernel) -> None:
    host = kernel.host()
    kernel.network(3_000, 500)
    read(host, 10.0)
    kernel.network(10, 500)
    assert ("ReceiveBytesPerSecond", "Algorithm") not in read(host, 12.0)


def test_container_has_its_own_memory_limit_and_cores(kernel: Kernel) -> None:
    kernel.limit("pod", memory_max="512000", cpu_max="150000 100000")
    kernel.limit(
        "pod/one",
        memory_max="max",
        memory_current="1000",
        cpuset_cpus_effective="1",
    )
    kernel.write(kernel.cgroup / "pod/memory.current", "256000")
    kernel.write(kernel.cgroup / "pod/memory.stat", "anon 1\ninactive_file 128000\n")
    host = kernel.host()
    read(host, 10.0)
    kernel.cores([(50, 50, 0), (50, 50, 0)])
    found = read(host, 11.0)
    assert found["MemoryUsedPercent", ""] == pytest.approx(25.0)
    assert ("cpu0", "CPUUtilization") not in found
    assert found["cpu1", "CPUUtilization"] == pytest.approx(50.0)
    limits = {sample.name: sample.value for sample in host.read_limits()}
    assert limits == {"CPULimitCores": 1.5, "MemoryLimitBytes": 512_000.0, "MemoryTotalBytes": 512_000.0}


def test_limits_are_found_in_cgroups_v1(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.write(kernel.proc / "self/cgroup", "4:memory:/\n3:cpu,cpuacct:/\n")
    kernel.write(kernel.cgroup / "memory/memory.limit_in_bytes", "700000")
    kernel.write(kernel.cgroup / "cpu/cpu.cfs_quota_us", "200000")
    kernel.write(kernel.cgroup / "cpu/cpu.cfs_period_us", "100000")
    limits = Cgroup(str(kernel.cgroup), str(kernel.proc))
    assert (limits.cpus, limits.memory, limits.cores) == (2.0, 700_000, None)


def test_unreadable_file_leaves_the_other_groups(kernel: Kernel) -> None:
    host = kernel.host()
    read(host, 10.0)
    (kernel.proc / "meminfo").write_text("rubbish\n")
    kernel.cores([(50, 50, 0), (50, 50, 0)])
    found = read(host, 11.0)
    assert ("cpu0", "CPUUtilization") in found
    assert ("MemoryUsedPercent", "") not in found
    assert "memory" in host.faults


@pytest.mark.parametrize(("text", "expected"), [("0-2,5", {0, 1, 2, 5}), ("", set()), ("7\n", {7}), ("x-3", set())])
def test_given_a_list_of_cores_when_read_then_its_numbers(text: str, expected: set[int]) -> None:
    assert core_numbers(text) == expected


def test_group_of_another_is_found_when_it_appears(kernel: Kernel) -> None:
    kernel.limit("", memory_max="900000")
    host = kernel.host("job_7", "other/job_7")
    before = {sample.name: sample.value for sample in host.read_limits()}
    kernel.limit("other/job_7", memory_max="512000", memory_current="256000", cpuset_cpus_effective="1")
    after = {sample.name: sample.value for sample in host.read_limits()}
    assert (before["MemoryLimitBytes"], after["MemoryLimitBytes"]) == (900_000.0, 512_000.0)
    read(host, 10.0)
    kernel.cores([(50, 50, 0), (50, 50, 0)])
    found = read(host, 11.0)
    assert found["MemoryUsedPercent", ""] == pytest.approx(50.0)
    assert ("cpu0", "CPUUtilization") not in found


def test_network_is_that_of_a_process_and_the_rest_is_not(kernel: Kernel) -> None:
    host = kernel.host(network_of=17)
    kernel.network(0, 0)
    (kernel.proc / "17").mkdir()
    (kernel.proc / "net").rename(kernel.proc / "17/net")
    read(host, 10.0)
    text = (kernel.proc / "17/net/dev").read_text().replace("eth0: 0", "eth0: 4000")
    kernel.write(kernel.proc / "17/net/dev", text)
    found = read(host, 12.0)
    assert (found["ReceiveBytesPerSecond", "Algorithm"], found["MemoryUsedPercent", ""]) == (2_000.0, 40.0)
