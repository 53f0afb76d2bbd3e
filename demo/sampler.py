"""What the sampling agent of a node sees while a workload runs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from demo.samples import GROUPS, MICROSECONDS, MINUTE_US, Integers, NodeSamples
from demo.workload import Activity, Level, Starvation, Workload

JIFFY_US = 10_000
_NODES_APART_S = 1.37
_DRIFT_US = 40
_GROUP_LAG_US = 5_000
_MAX_LAG_US = 25_000
_LATE_FIRST_OBJECT_US = MICROSECONDS
_OPEN_OBJECT_US = MICROSECONDS
_GPU_MEMORY_PER_UTILIZATION = 0.24
_PAGES_PER_MIB = 256
_PAGES_PER_OPERATION = 32
_KIB_PER_MIB = 1_024

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Grid:
    """The snapshots of a node: when each was (µs since the start), how long after the one before, and what ran then."""

    ticks_us: NDArray[np.int64]
    elapsed_us: NDArray[np.int64]
    stretch: NDArray[np.int64]
    activities: tuple[Activity, ...]

    def __len__(self) -> int:
        return len(self.ticks_us)

    def of_activity(self, name: str) -> Floats:
        figures = np.array([getattr(activity, name) for activity in self.activities], dtype=np.float64)
        return np.asarray(figures[self.stretch], dtype=np.float64)

    def amounts(self, name: str, rng: np.random.Generator) -> Floats:
        """Return MiB since the last snapshot, for a rate of the activities that varies by a tenth."""
        rates = self.of_activity(name) * rng.normal(1, 0.1, len(self)).clip(0.5, 1.5)
        return np.asarray(rates * (self.elapsed_us / MICROSECONDS), dtype=np.float64)

    def noisy(self, levels: list[Level], width: int, rng: np.random.Generator) -> Floats:
        """Return (N, width) values around the level of each snapshot's activity."""
        figures = np.array([(level.mean, level.deviation, level.low, level.high) for level in levels])
        mean, deviation, low, high = figures[self.stretch].T[:, :, None]
        values: Floats = mean + deviation * rng.normal(0, 1, (len(self), width))
        return np.asarray(values.clip(low, high), dtype=np.float64)


def sample_node(workload: Workload, node: int, rng: np.random.Generator) -> NodeSamples:
    """Return what the sampler of node number ``node``, from 0, saw."""
    grid = _grid(workload, node, rng)
    jiffies = _jiffies(grid, rng)
    core_percent = grid.noisy([activity.core for activity in grid.activities], workload.cores, rng)
    gpu_percent = grid.noisy([activity.gpu for activity in grid.activities], workload.gpus, rng)
    for stretch, activity in enumerate(grid.activities):
        if activity.starvation:
            _starve(activity.starvation, grid.stretch == stretch, core_percent, gpu_percent, rng)
    busy = _counts(core_percent, jiffies)
    waits = rng.poisson(grid.of_activity("io_wait_percent")[:, None] * jiffies[:, None] / 100, core_percent.shape)
    memory_percent = gpu_percent * _GPU_MEMORY_PER_UTILIZATION + rng.normal(0, 0.5, gpu_percent.shape)
    return NodeSamples(
        ticks_us=grid.ticks_us,
        lags_us=_lags(len(grid), rng),
        jiffies=jiffies,
        busy=busy,
        io_wait=np.minimum(waits, jiffies[:, None] - busy).astype(busy.dtype),
        gpu=np.rint(gpu_percent).astype(np.uint8),
        gpu_memory=np.rint(memory_percent).clip(0, 100).astype(np.uint8),
        host_memory=_host_memory(grid, rng),
        disk=_disk(grid, rng),
        network=_network(grid, rng),
        uploads_us=_uploads(grid, workload, rng),
    )


def _grid(workload: Workload, node: int, rng: np.random.Generator) -> _Grid:
    interval_us = workload.interval_ms * 1_000
    first_us = round((workload.first_snapshot_s + node * _NODES_APART_S) * MICROSECONDS)
    count = (round(workload.ends_s * MICROSECONDS) - first_us) // (interval_us + _DRIFT_US) + 1
    # A sampler sleeps for its period after each snapshot, so its grid slips by the time that its own loop takes.
    drift_us = np.cumsum(rng.integers(0, 2 * _DRIFT_US, count))
    ticks_us = first_us + np.arange(count) * interval_us + drift_us + rng.integers(0, 3 * _DRIFT_US, count)
    begins_us = [stretch.begins_s * MICROSECONDS for stretch in workload.stretches]
    return _Grid(
        ticks_us,
        np.diff(ticks_us, prepend=ticks_us[0] - interval_us),
        np.searchsorted(begins_us, ticks_us, side="right") - 1,
        tuple(stretch.activity for stretch in workload.stretches),
    )


def _lags(count: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return by how much each group is read after the tick: the network last, at most 25 ms."""
    apart_us = rng.exponential(_GROUP_LAG_US, (count, len(GROUPS))).cumsum(axis=1)
    apart_us *= np.minimum(1, _MAX_LAG_US / apart_us[:, -1:])
    order = rng.permuted(np.tile(np.arange(len(GROUPS) - 1), (count, 1)), axis=1)
    return np.column_stack([np.take_along_axis(apart_us, order, axis=1), apart_us[:, -1]]).astype(np.int32)


def _jiffies(grid: _Grid, rng: np.random.Generator) -> Integers:
    """Return as many clock ticks as fit between two snapshots, give or take two where the reading was late."""
    exact = grid.elapsed_us / JIFFY_US
    strays = rng.choice([-2, -1, 0, 1, 2], len(grid), p=[0.1, 0.2, 0.4, 0.2, 0.1])
    dtype = np.uint8 if exact.max() < 250 else np.uint16
    return np.asarray(np.maximum(np.rint(exact) + strays, 1), dtype=dtype)


def _counts(percent: Floats, jiffies: Integers) -> Integers:
    counts: Integers = np.rint(percent * jiffies[:, None] / 100).astype(jiffies.dtype)
    return counts


def _starve(
    starvation: Starvation, stretch: NDArray[np.bool_], cores: Floats, gpus: Floats, rng: np.random.Generator
) -> None:
    """Overwrite a share of the stretch's snapshots: a few cores at their limit, the GPUs waiting."""
    rows = np.flatnonzero(stretch & (rng.random(len(stretch)) < starvation.share))
    cores[rows, : starvation.hot_cores] = _drawn(starvation.core, (len(rows), starvation.hot_cores), rng)
    gpus[rows] = _drawn(starvation.gpu, (len(rows), gpus.shape[1]), rng)


def _drawn(level: Level, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    return rng.normal(level.mean, level.deviation, shape).clip(level.low, level.high)


def _host_memory(grid: _Grid, rng: np.random.Generator) -> NDArray[np.uint16]:
    percent = grid.of_activity("host_memory_percent") + np.cumsum(rng.normal(0, 0.006, len(grid)))
    return np.asarray(np.rint(percent.clip(0, 100) * 100), dtype=np.uint16)


def _disk(grid: _Grid, rng: np.random.Generator) -> NDArray[np.int32]:
    read, written = (np.rint(_PAGES_PER_MIB * grid.amounts(way, rng)) for way in ("disk_read", "disk_write"))
    operations = np.ceil((read + written) / _PAGES_PER_OPERATION)
    return np.column_stack([operations, read, written]).astype(np.int32)


def _network(grid: _Grid, rng: np.random.Generator) -> NDArray[np.int32]:
    mib = np.column_stack([grid.amounts(way, rng) for way in ("received", "sent")])
    return np.rint(mib * _KIB_PER_MIB).astype(np.int32)


def _uploads(grid: _Grid, workload: Workload, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return when each minute's object appears: within a second of the minute's end.

    The first comes a second after the second one, as in every listing of a real job; the last when the sampler stops.
    """
    first, last = (int(tick // MINUTE_US) for tick in grid.ticks_us[[0, -1]])
    count = last - first + 1
    uploads_us = (np.arange(first, last + 1) + 1) * MINUTE_US + rng.integers(150_000, 950_000, count)
    if count > 1:
        uploads_us[0] = uploads_us[1] + _LATE_FIRST_OBJECT_US
    closed_us = round(workload.ends_s * MICROSECONDS) + _OPEN_OBJECT_US + rng.integers(0, 400_000)
    return np.asarray(np.minimum(uploads_us, closed_us), dtype=np.int64)
