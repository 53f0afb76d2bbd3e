"""The collectives of a rank: how long, how much of it under computation, and how fast where sizes are recorded."""

import re

import numpy as np
from msgspec.structs import asdict

from trainguard.kernels.columns import Bools, Ints, Kind
from trainguard.kernels.durations import exact_sum
from trainguard.kernels.entries import Collective, CollectiveEntry, CollectiveStepsEntry
from trainguard.kernels.metrics import RankMetrics

_ALL_REDUCE = re.compile(r"all_?reduce", re.IGNORECASE)
_SHARED = re.compile(r"gather|scatter|all_?to_?all", re.IGNORECASE)


def bus_factor(name: str, ranks: int) -> float:
    """Return what the links carry for a byte of a collective among so many ranks, as NVIDIA's nccl-tests count it."""
    if _ALL_REDUCE.search(name):
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if _SHARED.search(name) else 1.0


def collectives_of(metrics: RankMetrics) -> list[CollectiveEntry]:
    """Return the collectives in the window, most time first."""
    chosen = np.flatnonzero(metrics.in_window & (metrics.trace.gpu.kind == Kind.COMMUNICATION))
    sorts, size = _sorts(metrics, chosen)
    found = [_entry(metrics, what, chosen[mine], size[mine]) for what, mine in sorts]
    return sorted(found, key=lambda entry: (-entry.total_ns, entry.name, entry.group))


def collective_steps_of(metrics: RankMetrics, most: int, most_steps: int) -> list[CollectiveStepsEntry]:
    """Return the ``most`` collectives with most time by step, of the first steps; none without steps."""
    trace, window = metrics.trace, metrics.window
    chosen = np.flatnonzero((trace.gpu.kind == Kind.COMMUNICATION) & (window.step >= 0) & (window.step < most_steps))
    sorts, size = _sorts(metrics, chosen)
    lasted, step = (trace.gpu.rows.end - trace.gpu.rows.start)[chosen], window.step[chosen]
    found = []
    for what, mine in sorts:
        places = np.unique(step[mine])
        found.append(
            CollectiveStepsEntry(
                **asdict(what),
                steps=window.steps.number[places].tolist(),
                counts=[int((step[mine] == place).sum()) for place in places],
                total_ns=[exact_sum(lasted[mine & (step == place)]) for place in places],
                bytes=[_whole(size[mine & (step == place)]) for place in places],
            )
        )
    return sorted(found, key=lambda entry: (-sum(entry.total_ns), entry.name, entry.group))[:most]


def _whole(sizes: Ints) -> int:
    """Return the sum of sizes; -1 where one is not known."""
    return exact_sum(sizes) if (sizes >= 0).all() else -1


def _sorts(metrics: RankMetrics, chosen: Ints) -> tuple[list[tuple[Collective, Bools]], Ints]:
    trace = metrics.trace
    sort, size = _called(metrics, chosen)
    # Kernels of no known collective are distinguished by their name; these numbers are negative.
    key = np.where(sort >= 0, sort, -1 - trace.gpu.rows.name[chosen])
    found = np.unique(key).tolist()
    whats = [trace.collectives[each] if each >= 0 else Collective(trace.names[-1 - each]) for each in found]
    return [(what, key == each) for what, each in zip(whats, found, strict=True)], size


def _called(metrics: RankMetrics, chosen: Ints) -> tuple[Ints, Ints]:
    """Return of each row the collective and its bytes: as the kernel names it, else as its operator does."""
    trace = metrics.trace
    sort, size = trace.gpu.collective[chosen].copy(), trace.gpu.size[chosen].copy()
    if not trace.operator_collectives:
        return sort, size
    unknown = np.flatnonzero(sort < 0)
    callers = metrics.operator_id[chosen[unknown]]
    ids, runs = np.unique(callers, return_counts=True)
    for caller, count in zip(ids.tolist(), runs.tolist(), strict=True):
        if caller in trace.operator_collectives:
            number, whole = trace.operator_collectives[caller]
            mine = unknown[callers == caller]
            sort[mine] = number
            size[mine] = whole if count == 1 else -1  # several kernels share its bytes, and nothing says how
    return sort, size


def _entry(metrics: RankMetrics, what: Collective, rows: Ints, size: Ints) -> CollectiveEntry:
    start, end = metrics.trace.gpu.rows.start[rows], metrics.trace.gpu.rows.end[rows]
    lasted = end - start
    device = metrics.trace.gpu.device[rows]
    on = [(gpu.compute, device == gpu.number) for gpu in metrics.gpus]
    overlap = sum(exact_sum(compute.within(start[mine], end[mine])) for compute, mine in on)
    sized = (size >= 0) & (lasted > 0)
    total, moved, time = exact_sum(lasted), exact_sum(size[sized]), exact_sum(lasted[sized])
    rate = moved / time if time else None
    return CollectiveEntry(
        **asdict(what),
        count=len(rows),
        total_ns=total,
        min_ns=int(lasted.min()),
        median_ns=round(float(np.median(lasted))),
        max_ns=int(lasted.max()),
        overlap_ns=overlap,
        exposed_ns=total - overlap,
        sized_count=int(sized.sum()),
        bytes=moved if sized.any() else None,
        algorithm_gb_per_s=None if rate is None else round(rate, 3),
        bus_gb_per_s=round(rate * bus_factor(what.name, what.group_size), 3)
        if rate is not None and what.group_size
        else None,
    )
