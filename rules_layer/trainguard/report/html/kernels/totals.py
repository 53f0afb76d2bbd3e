"""All ranks together: what their profiles add up to."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainguard.kernels.document import KernelEntry, MemoryEntry, RankProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTotal:
    """All runs of a kernel on several ranks; ``p99_ns`` is the largest of a rank, ``operator`` that of the first.

    ``std_ns`` is that of all runs; ``occupancy`` and ``blocks_per_sm`` are weighted with time.
    """

    name: str
    count: int
    total_ns: int
    min_ns: int
    max_ns: int
    p99_ns: int
    precision: str
    tensor_core: bool
    communication: bool
    operator: str
    launch_calls: int
    std_ns: int
    short_count: int
    occupancy: float | None
    blocks_per_sm: float | None

    @property
    def mean_ns(self) -> float:
        """The mean over all runs."""
        return self.total_ns / self.count if self.count else 0.0


def kernel_totals(ranks: Iterable[RankProfile]) -> list[KernelTotal]:
    """Return the kernels of all ranks, those with the most time first."""
    found: dict[tuple[str, str], list[KernelEntry]] = {}
    for rank in ranks:
        for kernel in rank.kernels:
            found.setdefault((kernel.name, kernel.precision), []).append(kernel)
    totals = [_total(entries) for entries in found.values()]
    return sorted(totals, key=lambda each: (-each.total_ns, each.name))


def _total(entries: Sequence[KernelEntry]) -> KernelTotal:
    return KernelTotal(
        name=entries[0].name,
        count=sum(each.count for each in entries),
        total_ns=sum(each.total_ns for each in entries),
        min_ns=min(each.min_ns for each in entries),
        max_ns=max(each.max_ns for each in entries),
        p99_ns=max(each.p99_ns for each in entries),
        precision=entries[0].precision,
        tensor_core=any(each.tensor_core for each in entries),
        communication=any(each.communication for each in entries),
        operator=entries[0].operator,
        launch_calls=sum(each.launch_calls for each in entries),
        std_ns=_deviation(entries),
        short_count=sum(each.short_count for each in entries),
        occupancy=_weighted((each.occupancy, each.total_ns) for each in entries),
        blocks_per_sm=_weighted((each.blocks_per_sm, each.total_ns) for each in entries),
    )


def _deviation(entries: Sequence[KernelEntry]) -> int:
    """Return the standard deviation of all runs, from those of each rank and their means."""
    if len(entries) == 1:
        return entries[0].std_ns
    runs = sum(each.count for each in entries)
    mean = sum(each.total_ns for each in entries) / max(runs, 1)
    squares = sum(each.count * (each.std_ns**2 + (each.total_ns / max(each.count, 1) - mean) ** 2) for each in entries)
    return round(math.sqrt(squares / max(runs, 1)))


def _weighted(values: Iterable[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight]
    total = sum(weight for _, weight in known)
    return round(sum(value * weight for value, weight in known) / total, 4) if total else None


def precision_totals(ranks: Iterable[RankProfile]) -> dict[str, int]:
    """Return nanoseconds by precision, most first."""
    return _most_first((name, part) for rank in ranks for name, part in rank.precision.items())


def memory_totals(ranks: Iterable[RankProfile]) -> list[MemoryEntry]:
    """Return the operations on memory by kind, most time first; bytes only where every rank says them."""
    found: dict[str, list[MemoryEntry]] = {}
    for rank in ranks:
        for entry in rank.memory_operations:
            found.setdefault(entry.name, []).append(entry)
    totals = []
    for name, entries in found.items():
        sizes = [each.bytes for each in entries if each.bytes is not None]
        totals.append(
            MemoryEntry(
                name=name,
                count=sum(each.count for each in entries),
                total_ns=sum(each.total_ns for each in entries),
                bytes=sum(sizes) if len(sizes) == len(entries) else None,
            )
        )
    return sorted(totals, key=lambda each: (-each.total_ns, each.name))


def _most_first(parts: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, part in parts:
        found[name] = found.get(name, 0) + part
    return dict(sorted(found.items(), key=lambda each: -each[1]))
