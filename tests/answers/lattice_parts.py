"""Small inputs for parts of the rules over a node: views and minutes whose values lie on thresholds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from tests.answers.lattice_nodes import JOB_START, NAN, lattice_idle_time
from tests.support.node_snapshots import node_snapshots
from trainguard.formats.profile import snapshots as names
from trainguard.formats.profile.snapshots import DeviceSamples, DeviceSeries
from trainguard.rules.rule_inputs import IdleTime, NodeMinute, NodeView

GPUS = ("gpu0", "gpu1", "gpu10")
NO_COLUMNS = np.empty((0, 3))
UTILIZATION = (0.0, 4.0, 5.0, 9.0, 10.0, 69.0, 70.0, 71.0, 95.0, 100.0, NAN)
IDLE = (0.0, 0.0, 0.0, 4.0, 5.0, 9.0, 10.0, NAN)
LOAD = (0.0, 49.0, 50.0, 95.0, 95.0, 95.0, NAN)


def part_view(
    random: Random,
    *,
    at: float = JOB_START + 6_000.0,
    gpus: Sequence[str] = GPUS,
    instances: Sequence[str] = (),
    idle_time: IdleTime | None = None,
) -> NodeView:
    """Return what an engine may know of a node at a time; its kept points are not held."""
    interval_s = random.choice([10.0, 30.0, 60.0])
    kept = random.choice([0, 20, 100, 400])
    return NodeView(
        node="algo-1",
        watermark_s=at,
        first_sample_at=random.choice([JOB_START, at - interval_s, at]),
        first_active_at=random.choice([None, JOB_START + 60.0, JOB_START + 60.0]),
        interval_s=interval_s,
        gpu_names=tuple(gpus),
        ever_active=np.array([random.random() < 0.7 for _ in gpus], dtype=np.bool_),
        kept_total=kept,
        kept_times=np.empty(0),
        kept_gpu_utilization=NO_COLUMNS,
        kept_gpu_memory=NO_COLUMNS,
        kept_cpu_mean=np.empty(0),
        idle_run_s=random.choice([0.0, 0.0, 600.0, 1_199.0 - interval_s, 1_200.0 - interval_s, 1_500.0, 7_200.0]),
        gpu_histogram=np.zeros((len(gpus), 101), dtype=np.int64),
        closed=random.random() < 0.3,
        idle_time=lattice_idle_time(random, kept, at) if idle_time is None else idle_time,
        mig_names=tuple(instances),
    )


def part_minutes(
    random: Random,
    lattice: Mapping[str, Sequence[float]],
    count: int,
    devices: Sequence[str] = GPUS,
    utilization: Sequence[float] = UTILIZATION,
) -> Iterator[NodeMinute]:
    """Yield minutes of two snapshots each: phases of utilization, and readings of ``lattice`` of which some lack.

    A GPU's readings, once chosen, mostly stay.
    """
    held: dict[tuple[str, str], float] = {}
    levels = [random.choice(utilization) for _ in GPUS]
    metrics = [metric for metric in lattice if random.random() < 0.8]
    instances = [device for device in devices if ".mig" in device]
    at = JOB_START
    for _ in range(count):
        at += 60.0 if random.random() < 0.9 else random.choice([120.0, 210.0, 211.0, 240.0])
        times = at + np.array([0.0, 30.0])
        levels = [level if random.random() < 0.85 else random.choice(utilization) for level in levels]
        gpu = np.array([levels, [level if random.random() < 0.9 else random.choice(utilization) for level in levels]])
        found: dict[str, dict[str, DeviceSeries]] = {}
        for metric in metrics:
            for device in devices:
                if (metric, device) not in held or random.random() < 0.12:
                    held[metric, device] = random.choice(lattice[metric])
                second = random.choice(lattice[metric]) if random.random() < 0.15 else held[metric, device]
                if random.random() < 0.95:
                    found.setdefault(metric, {})[device] = DeviceSeries(times, np.array([held[metric, device], second]))
        view = part_view(random, at=float(times[-1]), instances=instances)
        shown = 0 if random.random() < 0.03 else 2
        yield NodeMinute(
            snapshots=node_snapshots(
                times[:shown], gpu[:shown], gpu_names=GPUS, gpu_memory=np.where(gpu[:shown] >= 90.0, 5.0, 0.0)
            ),
            active=np.logical_or.reduce(gpu[:shown] >= 10.0, axis=1),
            started=np.full(shown, random.random() < 0.95),
            fresh=shown,
            view=view,
            devices=DeviceSamples(found),
        )


ACTIVITY: Mapping[str, Sequence[float]] = {
    names.SM_ACTIVITY: (0.0, 0.5, 1.0, 4.0, 5.0, 19.0, 20.0, 80.0, 90.0),
    names.TENSOR_ACTIVITY: (0.0, 4.0, 5.0, 6.0),
    names.DRAM_ACTIVITY: (0.0, 4.0, 5.0, 6.0),
    names.POWER: (100.0, 149.0, 150.0, 200.0, 240.0),
    names.POWER_LIMIT: (250.0, 400.0),
}
TENSORS: Mapping[str, Sequence[float]] = {
    metric: values for metric, values in ACTIVITY.items() if metric != names.SM_ACTIVITY
}
HELD: Mapping[str, Sequence[float]] = {
    names.MEMORY_USED: (1e9, 2e9, 4e9, 8e9, 8e9, 18e9),
    names.MEMORY_TOTAL: (20e9, 40e9, 80e9),
}
SIGNS: Mapping[str, Sequence[float]] = {
    names.POWER: (100.0, 112.5, 149.0, 150.0, 200.0, 225.0, 300.0),
    names.SM_ACTIVITY: (0.0, 4.0, 5.0, 6.0),
}
HEALTH: Mapping[str, Sequence[float]] = {
    names.SM_CLOCK: (1_000.0, 1_274.0, 1_275.0, 1_350.0, 1_351.0, 1_500.0, 1_500.0),
    names.SM_CLOCK_MAXIMUM: (1_500.0, 1_980.0),
    names.THROTTLE_REASONS: (0.0, 4.0, 8.0, 32.0, 64.0, 128.0, 36.0, 132.0),
    names.LINK_WIDTH: (8.0, 16.0, 16.0),
}
FAULTY: Mapping[str, Sequence[float]] = {
    names.REMAPPING_FAILED: (0.0, 0.0, 1.0),
    names.ECC_UNCORRECTED: (0.0, 1.0, 3.0),
    names.XID: (0.0, 0.0, 13.0, 48.0, 79.0, 94.0, 999.0),
    f"{names.XID_COUNT}74": (0.0, 1.0, 2.0),
    f"{names.XID_COUNT}48": (0.0, 1.0, 2.0),
    names.LOST: (0.0, 0.0, 1.0),
    names.UNANSWERED: (0.0, 1.0),
}


def plain_view(view: NodeView) -> Mapping[str, Any]:
    """Return what of a view a reader needs beside an answer."""
    idle = view.idle_time
    return {
        "idle": view.idle_run_s,
        "quiet": idle.quiet_s,
        "means": [idle.highest_mean, idle.newest_mean, idle.run_mean],
        "interval": view.interval_s,
        "closed": view.closed,
    }


def randoms(count: int) -> Iterable[Random]:
    """Return so many sources of randomness, each with its own seed."""
    return (Random(seed) for seed in range(count))
