"""Random nodes whose values lie on a coarse lattice, which holds the thresholds of the rules and a step to both sides.

Nodes of a real job meet a threshold by chance alone. Here what a rule compares is exactly at its bound again and again:
utilization, cores, power, clocks, and what the engine knows of idle time and pauses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np

from tests.support.node_snapshots import node_snapshots
from trainguard.formats.profile import snapshots as names
from trainguard.formats.profile.snapshots import BoolArray, DeviceSamples, DeviceSeries, FloatArray, IntArray
from trainguard.rules.rule_inputs import IdleTime, NodeMinute, NodeView

JOB_START = 1_700_000_040.0
INTERVALS_S = (10.0, 20.0, 30.0, 60.0)
NAN = float("nan")
LONG_OBJECTS = 4

UTILIZATION = (0.0, 0.0, 4.0, 5.0, 9.0, 10.0, 50.0, 69.0, 70.0, 79.0, 80.0, 89.0, 90.0, 95.0, 100.0)
MEMORY_ACTIVITY = (0.0, 5.0, 6.0, 40.0)
CORES = {
    "cpu_max": (40.0, 89.0, 90.0, 91.0, 100.0, NAN),
    "cpu_mean": (20.0, 79.0, 80.0, 81.0),
    "cores_full": (0.0, 0.5, 1.0, 1.5, 2.0, 3.0),
    "io_wait_max": (0.0, 49.0, 50.0, 51.0, 60.0, NAN),
    "io_wait_mean": (0.0, 14.0, 15.0, 16.0),
    "host_memory": (20.0, 70.0, NAN),
    "network": (0.0, 1e6, 10e6, 11e6, NAN),
}
READINGS = {
    names.POWER: (70.0, 110.0, 149.0, 150.0, 225.0, 240.0, 300.0, 400.0),
    names.POWER_LIMIT: (250.0, 400.0),
    names.MEMORY_USED: (1e9, 2e9, 3e9, 4e9, 8e9, 18e9),
    names.MEMORY_TOTAL: (20e9, 40e9, 80e9),
    names.SM_ACTIVITY: (0.0, 0.5, 1.0, 4.0, 5.0, 19.0, 20.0, 40.0, 80.0, 90.0),
    names.TENSOR_ACTIVITY: (0.0, 4.0, 5.0, 40.0),
    names.DRAM_ACTIVITY: (0.0, 4.0, 5.0, 40.0),
    names.SM_CLOCK: (1_000.0, 1_200.0, 1_350.0, 1_500.0),
    names.SM_CLOCK_MAXIMUM: (1_500.0, 1_980.0),
    names.THROTTLE_REASONS: (0.0, 1.0, 4.0, 8.0, 32.0, 64.0, 128.0, 36.0),
    names.LINK_WIDTH: (8.0, 16.0),
}
# What most GPUs have at 0 throughout.
FAULTS = {
    names.REMAPPING_FAILED: (0.0, 1.0),
    names.ECC_UNCORRECTED: (0.0, 1.0, 3.0),
    names.XID: (0.0, 13.0, 48.0, 79.0, 94.0, 999.0),
    f"{names.XID_COUNT}74": (0.0, 1.0, 2.0),
    names.LOST: (0.0, 1.0),
    names.UNANSWERED: (0.0, 1.0),
}

DISKS = (0.0, 1e6, 10e6, 11e6)


@cache
def lattice_minutes(seed: int) -> tuple[NodeMinute, ...]:
    """Return the minutes of a node, as they are for all rules."""
    return tuple(_minutes(seed, 50))


def _minutes(seed: int, minutes: int) -> Iterator[NodeMinute]:
    """Yield the minutes of a node of one to three GPUs, the last of them, in most nodes, of a stream that has ended.

    The objects of each sixth node hold five minutes.
    """
    random = Random(seed)
    interval_s = INTERVALS_S[seed % len(INTERVALS_S)]
    gpus, rows = random.randint(1, 3), round((300.0 if seed % 6 == LONG_OBJECTS else 60.0) / interval_s)
    minutes = minutes // 2 if seed % 6 == LONG_OBJECTS else minutes
    columns = {name: _column(random, values, minutes * rows, rows) for name, values in CORES.items()}
    gpu = np.column_stack([_column(random, UTILIZATION, minutes * rows, rows, missing=0.02) for _ in range(gpus)])
    memory = np.column_stack([_column(random, MEMORY_ACTIVITY, minutes * rows, rows) for _ in range(gpus)])
    if random.random() < 0.6:
        begin = random.randrange(minutes * rows // 2)
        gpu[begin : begin + random.randint(15, 26) * rows] = random.choice([0.0, 4.0, 9.0])
    times = JOB_START + interval_s * np.arange(minutes * rows, dtype=np.float64)
    settled, metrics, before = random.randint(0, 4), _chosen(random), 0
    steady: dict[tuple[str, str], float] = {}
    for number in range(minutes):
        part, end = slice(number * rows, (number + 1) * rows), (number + 1) * rows
        view = _view(random, times[:end], gpu[:end], memory[:end], interval_s, started=number >= settled)
        view = replace(view, closed=number == minutes - 1 and seed % 4 > 0)
        snapshots = node_snapshots(
            times[part],
            gpu[part],
            gpu_memory=memory[part],
            cpu_mean=columns["cpu_mean"][part],
            cpu_max=columns["cpu_max"][part],
            cores_full=columns["cores_full"][part],
            io_wait_mean=columns["io_wait_mean"][part],
            io_wait_max=columns["io_wait_max"][part],
            host_memory=columns["host_memory"][part],
            network=columns["network"][part],
        )
        active: BoolArray = np.logical_or.reduce(gpu[part] >= 10.0, axis=1)
        first = int((gpu[:end] >= 10.0).any(axis=1).argmax()) if view.ever_active.any() else end
        yield NodeMinute(
            snapshots=snapshots,
            active=active,
            started=np.arange(end)[part] >= first,
            fresh=view.kept_total - before,
            view=view,
            restarted=number == settled and random.random() < 0.3,
            devices=_devices(random, metrics, view.gpu_names, times[part], steady),
        )
        before = view.kept_total


def _column(random: Random, values: Sequence[float], length: int, rows: int, missing: float = 0.0) -> FloatArray:
    """Return a series in phases of minutes: each at a value, with others of the lattice among it."""
    column = np.empty(length)
    begin = 0
    while begin < length:
        end = begin + rows * random.randint(1, 15)
        level, stray = random.choice(values), random.choice([0.0, 0.1, 0.5])
        for row in range(begin, min(end, length)):
            column[row] = random.choice(values) if random.random() < stray else level
            column[row] = NAN if random.random() < missing else column[row]
        begin = end
    return column


def _chosen(random: Random) -> list[str]:
    """Return the metrics that are collected of a node."""
    share = random.choice([0.3, 0.7, 1.0])
    return [metric for metric in (*READINGS, *FAULTS) if random.random() < share]


def _devices(
    random: Random, metrics: Sequence[str], gpus: Sequence[str], times: FloatArray, steady: dict[tuple[str, str], float]
) -> DeviceSamples:
    """Return a minute's readings, most of them as in the minute before; some GPUs lack some."""
    found: dict[str, dict[str, DeviceSeries]] = {}
    for metric in metrics:
        for gpu in gpus:
            if (metric, gpu) not in steady:
                steady[metric, gpu] = 0.0 if metric in FAULTS else random.choice(READINGS[metric])
            lattice = FAULTS.get(metric) or READINGS[metric]
            if random.random() < (0.01 if metric in FAULTS else 0.1):
                steady[metric, gpu] = random.choice(lattice)
            if random.random() < 0.03:
                continue
            values = np.full(times.size, steady[metric, gpu])
            if metric not in FAULTS and random.random() < 0.1:
                values[random.randrange(times.size)] = random.choice(lattice)
            found.setdefault(metric, {})[gpu] = DeviceSeries(times, values)
    for metric in (names.DISK_READ, names.DISK_WRITE):
        if random.random() < 0.9:
            found[metric] = {names.NODE: DeviceSeries(times, np.full(times.size, random.choice(DISKS)))}
    return DeviceSamples(found)


def lattice_idle_time(random: Random, kept: int, watermark_s: float) -> IdleTime:
    """Return what may be known of a node's idle time, on the bounds of what is said about it."""
    period_s = random.choice([119.0, 120.0, 300.0, 400.0])
    starts = [watermark_s - random.choice([0.0, 2.0 * period_s, 2.0 * period_s + 1.0])]
    for _ in range(random.choice([1, 2, 3, 4, 7, 10])):
        starts.insert(0, starts[0] - period_s * random.choice([1.0, 1.0, 1.0, 1.25, 0.75, 1.3]))
    lengths = [random.choice([0.15 * period_s, 0.5 * period_s, 10.0]) for _ in starts]
    breaks = tuple(zip(starts, lengths, strict=True)) if random.random() < 0.5 else ()
    return IdleTime(
        samples=random.choice([0, 5, kept]),
        paused=random.choice([0, 1, kept // 4]),
        breaks_s=sum(lengths) if breaks else 0.0,
        breaks=breaks,
        quiet_s=random.choice([0.0, 0.0, 1_140.0, 1_170.0, 1_180.0, 1_190.0, 1_500.0, 1_875.0]),
        highest_mean=random.choice([0.0, 4.0, 5.0]),
        newest_mean=random.choice([0.0, 4.0, 5.0, 50.0]),
        run_mean=random.choice([0.0, 0.5, 1.0, 4.0, 5.0, 9.0]),
    )


def _view(
    random: Random, times: FloatArray, gpu: FloatArray, memory: FloatArray, interval_s: float, *, started: bool
) -> NodeView:
    """Return what the engine knows after some rows: kept is what lies between the first and the last active row."""
    active = (gpu >= 10.0).any(axis=1)
    rows = np.flatnonzero(active)
    begin, end = (int(rows[0]), int(rows[-1]) + 1) if rows.size and started else (0, 0)
    idle_from = (int(rows[-1]) + 1) if rows.size else 0
    idle_run_s = float(times[-1] - times[idle_from]) if idle_from < len(times) else 0.0
    kept = end - begin
    histogram = [_counts(gpu[begin:end, column]) for column in range(gpu.shape[1])]
    return NodeView(
        node="algo-1",
        watermark_s=float(times[-1]),
        first_sample_at=float(times[0]),
        first_active_at=float(times[begin]) if kept else None,
        interval_s=interval_s,
        gpu_names=tuple(f"gpu{column}" for column in range(gpu.shape[1])),
        ever_active=np.logical_or.reduce(gpu >= 10.0, axis=0),
        kept_total=kept,
        kept_times=times[begin:end],
        kept_gpu_utilization=gpu[begin:end],
        kept_gpu_memory=memory[begin:end],
        kept_cpu_mean=np.full(kept, 20.0),
        idle_run_s=idle_run_s if random.random() < 0.7 else random.choice([0.0, 1_200.0 - interval_s]),
        gpu_histogram=np.array(histogram),
        closed=False,
        idle_time=lattice_idle_time(random, kept, float(times[-1])) if random.random() < 0.4 else IdleTime(),
    )


def _counts(values: FloatArray) -> IntArray:
    return np.bincount(values[~np.isnan(values)].astype(np.int64), minlength=101)
