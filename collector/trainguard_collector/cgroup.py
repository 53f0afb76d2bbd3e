"""The limits of the container that the collector runs in: cgroup version 2, and version 1."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

_NO_LIMIT = 1 << 60
"""Version 1 writes a number of about this size where there is no limit."""


@dataclass(frozen=True)
class Limits:
    """``cpus`` in cores, ``memory`` in bytes, ``cores`` the numbers of the cores that may be used; None: no limit."""

    cpus: Optional[float] = None
    memory: Optional[int] = None
    cores: Optional[frozenset[int]] = None


class Cgroup:
    """Reads the limits once, and the memory in use on demand."""

    def __init__(self, root: str, procfs: str) -> None:
        self._root = Path(root)
        self._is_v2 = (self._root / "cgroup.controllers").exists()
        self._own = _own_paths(Path(procfs))
        self._limited = self._memory_limits()
        self.limits = self._limits()

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

    def _limits(self) -> Limits:
        if self._is_v2:
            cpus = [_v2_cpus(_text(folder / "cpu.max")) for folder in self._folders("cpu")]
            cores = [_text(folder / "cpuset.cpus.effective") for folder in self._folders("cpuset")]
        else:
            cpus = [_v1_cpus(folder) for folder in self._folders("cpu")]
            cores = [_text(folder / "cpuset.cpus") for folder in self._folders("cpuset")]
        quotas = [quota for quota in cpus if quota is not None]
        usable = next((text for text in cores if text), "")
        return Limits(
            min(quotas, default=None), self._limited[0][0] if self._limited else None, core_numbers(usable) or None
        )

    def _memory_limits(self) -> list[tuple[int, Path]]:
        """Return the limits in bytes with the groups that have them, the tightest first."""
        name = "memory.max" if self._is_v2 else "memory.limit_in_bytes"
        found = [(_number(folder / name), folder) for folder in self._folders("memory")]
        return sorted((limit, folder) for limit, folder in found if limit is not None and 0 < limit < _NO_LIMIT)

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


def _own_paths(procfs: Path) -> dict[str, str]:
    paths: dict[str, str] = {}
    for line in _text(procfs / "self" / "cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _v2_cpus(text: str) -> Optional[float]:
    quota, _, period = text.partition(" ")
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
