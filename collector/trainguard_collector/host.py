"""CPU, memory, disk and network of the node, within the limits of the container, of cgroup version 2 and 1."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Optional

import psutil

from trainguard_collector.metrics import Sample

# Version 1 writes a number of about this size where there is no limit.
_NO_LIMIT = 1 << 60


class Cgroup:
    """Reads the limits once, and the memory in use on demand.

    ``cpus`` in cores, ``memory`` in bytes, ``cores`` the numbers of the cores that may be used; None: no limit. The
    group is that of this process, or the first of ``paths`` below the root that is there; it ``is_awaited`` before.
    """

    def __init__(self, root: str, procfs: str, paths: Sequence[str] = ()) -> None:
        self._root, self._procfs, self._paths = Path(root), procfs, paths
        self._is_v2 = (self._root / "cgroup.controllers").exists()
        self._own: dict[str, str] = {}
        for line in () if paths else _text(Path(procfs, "self", "cgroup")).splitlines():
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            self._own.update(dict.fromkeys(controllers.split(","), path))
        above = self._root if self._is_v2 else self._root / "memory"
        group = next((path for path in paths if (above / path).is_dir()), None)
        self.is_awaited = bool(paths) and group is None
        if group is not None:
            self._own.update(dict.fromkeys(("", "memory", "cpu", "cpuset"), group))
        most = "memory.max" if self._is_v2 else "memory.limit_in_bytes"
        limits = [(_number(folder / most), folder) for folder in self._folders("memory")]
        self._limited = sorted((each, folder) for each, folder in limits if each is not None and 0 < each < _NO_LIMIT)
        self.memory = self._limited[0][0] if self._limited else None
        cpus = [_v2_cpus(folder) if self._is_v2 else _v1_cpus(folder) for folder in self._folders("cpu")]
        self.cpus = min((quota for quota in cpus if quota is not None), default=None)
        listed = "cpuset.cpus.effective" if self._is_v2 else "cpuset.cpus"
        cores = [_text(folder / listed) for folder in self._folders("cpuset")]
        self.cores = core_numbers(next((text for text in cores if text), "")) or None

    def looked_for(self) -> "Cgroup":
        """Return the group as it is now, where it was not there yet."""
        return Cgroup(str(self._root), self._procfs, self._paths) if self.is_awaited else self

    def memory_used(self) -> Optional[int]:
        """Return the bytes in use as the limit counts them, without the page cache that can be dropped."""
        if not self._limited:
            return None
        _, folder = self._limited[0]
        used = _number(folder / ("memory.current" if self._is_v2 else "memory.usage_in_bytes"))
        if used is None:
            return None
        field = "inactive_file " if self._is_v2 else "total_inactive_file "
        for line in _text(folder / "memory.stat").splitlines():
            if line.startswith(field):
                return max(used - int(line.split()[1]), 0)
        return used

    def _folders(self, controller: str) -> Iterator[Path]:
        """Yield the folders of the own group and of those above it, as far as they are mounted here."""
        root = self._root if self._is_v2 else self._root / controller
        path = self._own.get("" if self._is_v2 else controller, "/").strip("/")
        parts = path.split("/") if path else []
        for length in range(len(parts), -1, -1):
            folder = root.joinpath(*parts[:length])
            if ".." not in parts and folder.is_dir():
                yield folder


def core_numbers(text: str) -> frozenset[int]:
    """Return the numbers that a list such as ``0-3,8`` names."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def _v2_cpus(folder: Path) -> Optional[float]:
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.strip().isdecimal() and int(period) else None


def _v1_cpus(folder: Path) -> Optional[float]:
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _number(path: Path) -> Optional[int]:
    text = _text(path)
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


# Rates over less than a few ticks of the kernel's clock say nothing.
_SHORTEST_S = 0.04

_VIRTUAL_INTERFACES = ("lo", "veth", "docker", "br-", "cni", "cali", "flannel", "virbr", "tun", "tap")

_Network = tuple[int, int]
_Disk = tuple[int, int, int]


class Host:
    """Reads one snapshot after another; each group of series fails alone, and `faults` says why.

    ``network_of`` is a process in whose network the counters are read.
    """

    def __init__(self, cgroup: Cgroup, procfs: str = "/proc", network_of: Optional[int] = None) -> None:
        self._procfs, self._network_of = procfs, network_of
        if procfs != "/proc":
            psutil.PROCFS_PATH = procfs
        self._cgroup = cgroup
        self._at: Optional[float] = None
        self._cores: list[tuple[float, float, float]] = []
        self._network: Optional[_Network] = None
        self._disk: Optional[_Disk] = None
        self.faults: dict[str, str] = {}

    def read(self, at: float) -> list[Sample]:
        """Return the samples at ``at``, in seconds of a clock that never goes back; rates need an earlier reading."""
        elapsed = None if self._at is None else at - self._at
        if elapsed is not None and elapsed < _SHORTEST_S:
            return []
        self._at = at
        groups: Sequence[tuple[str, Callable[[Optional[float]], list[Sample]]]] = (
            ("cpu", self._read_cores),
            ("memory", self._read_memory),
            ("i/o", self._read_disk),
            ("network", self._read_network),
        )
        samples: list[Sample] = []
        for name, read in groups:
            try:
                samples += read(elapsed)
            except Exception as fault:
                self.faults[name] = f"{type(fault).__name__}: {fault}"[:200]
        return samples

    def read_limits(self) -> list[Sample]:
        self._cgroup = self._cgroup.looked_for()
        limits, total = self._cgroup, float(psutil.virtual_memory().total)
        most = total if limits.memory is None else min(total, float(limits.memory))
        samples = [Sample("memory", "MemoryTotalBytes", "", most)]
        if limits.cpus is not None:
            samples.append(Sample("cgroup", "CPULimitCores", "", limits.cpus))
        if limits.memory is not None:
            samples.append(Sample("cgroup", "MemoryLimitBytes", "", limits.memory))
        return samples

    def _read_cores(self, elapsed: Optional[float]) -> list[Sample]:
        before, self._cores = self._cores, [_core(times) for times in psutil.cpu_times(percpu=True)]
        if elapsed is None or len(before) != len(self._cores):
            return []
        usable = self._cgroup.cores
        samples: list[Sample] = []
        for number, (was, now) in enumerate(zip(before, self._cores)):
            passed = now[0] - was[0]
            if passed <= 0.0 or (usable is not None and number not in usable):
                continue
            busy, waiting = (100.0 * (now[field] - was[field]) / passed for field in (1, 2))
            samples.append(Sample("cpu", f"cpu{number}", "CPUUtilization", _percent(busy)))
            samples.append(Sample("cpu", f"cpu{number}", "I/OWaitPercentage", _percent(waiting)))
        return samples

    def _read_memory(self, _: Optional[float]) -> list[Sample]:
        memory = psutil.virtual_memory()
        limit, used = self._cgroup.memory, None
        if limit is not None and limit < memory.total:
            used = self._cgroup.memory_used()
        percent = float(memory.percent) if limit is None or used is None else 100.0 * used / limit
        return [Sample("memory", "MemoryUsedPercent", "", _percent(percent))]

    def _read_disk(self, elapsed: Optional[float]) -> list[Sample]:
        counters = psutil.disk_io_counters(nowrap=False)
        if counters is None:
            return []
        now = (counters.read_count + counters.write_count, counters.read_bytes, counters.write_bytes)
        was, self._disk = self._disk, now
        names = ("IOPS", "ReadThroughputInBytesPerSecond", "WriteThroughputInBytesPerSecond")
        return [Sample("i/o", name, "", rate) for name, rate in zip(names, _rates(was, now, elapsed))]

    def _read_network(self, elapsed: Optional[float]) -> list[Sample]:
        if self._network_of is not None:
            psutil.PROCFS_PATH = f"{self._procfs}/{self._network_of}"
        try:
            devices = psutil.net_io_counters(pernic=True, nowrap=False)
        finally:
            psutil.PROCFS_PATH = self._procfs
        used = [counters for name, counters in devices.items() if not name.startswith(_VIRTUAL_INTERFACES)]
        now = (sum(each.bytes_recv for each in used), sum(each.bytes_sent for each in used))
        was, self._network = self._network, now
        names = ("ReceiveBytesPerSecond", "TransmitBytesPerSecond")
        return [Sample("network", name, "Algorithm", rate) for name, rate in zip(names, _rates(was, now, elapsed))]


def _core(times: object) -> tuple[float, float, float]:
    """Return all seconds of a core so far, those that it was busy, and those that it waited for disks."""
    # The kernel counts the time of guests as time of users as well.
    guests = sum(float(getattr(times, name, 0.0)) for name in ("guest", "guest_nice"))
    total = float(sum(times)) - guests  # type: ignore[call-overload]
    waiting = float(getattr(times, "iowait", 0.0))
    return total, total - waiting - float(getattr(times, "idle", 0.0)), waiting


def _rates(was: Optional[tuple[int, ...]], now: tuple[int, ...], elapsed: Optional[float]) -> list[float]:
    """Return units a second; nothing when a counter went back, as it does when a device leaves."""
    if was is None or not elapsed or any(new < old for old, new in zip(was, now)):
        return []
    return [(new - old) / elapsed for old, new in zip(was, now)]


def _percent(value: float) -> float:
    return min(max(value, 0.0), 100.0)
