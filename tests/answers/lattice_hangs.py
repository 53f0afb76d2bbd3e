"""Small nodes and steps on the bounds of what HungJob takes for work, for waiting and for a standstill."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np

from tests.answers.lattice_nodes import JOB_START, NAN
from tests.answers.lattice_parts import part_view
from tests.support.node_snapshots import node_snapshots
from trainguard.formats.profile import snapshots as names
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.formats.profile.snapshots import DeviceSamples, DeviceSeries, FloatArray
from trainguard.rules.hung_job.state import ProcessProgress, ProgressState
from trainguard.rules.rule_inputs import NodeMinute

# Samples of a minute: one of them is a tenth, what may stray.
ROWS = 10

# Minutes at the end of a plan.
STANDSTILL = 14

WORK_W = 400.0
BYTES = (0.0, 10e6, 11e6)
FULL = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, NAN)
# Utilization, activity of memory, and power of a GPU.
LOOKS = {
    "work": ((10.0, 50.0, 89.0, 95.0), (40.0,), (WORK_W,)),
    "waits": ((90.0, 100.0), (0.0, 5.0), (110.0, 200.0)),
    "moves": ((90.0, 100.0), (6.0,), (110.0,)),
    "draws": ((100.0,), (0.0,), (201.0,)),
    "creeps": ((10.0, 50.0, 89.0), (0.0,), (110.0,)),
    "idle": ((0.0, 9.0), (0.0,), (70.0,)),
}

Columns = tuple[FloatArray, FloatArray, FloatArray]


# What a node's two GPUs do in each minute, and its host: bytes of disks and network, full cores.
Plan = list[tuple[list[str], tuple[float, float, float]]]


def plan_of(random: Random, count: int) -> Plan:
    """Return minutes in which GPUs work, then stand still and work by turns, and at last stand still."""
    plan: Plan = [(["work", "work"], (0.0, 0.0, 0.0))] * random.choice([4, 5, 5, 6])
    while len(plan) < count:
        both = random.choice(["work", "work", "waits", "waits", "waits", "idle", "idle", "moves", "draws", "creeps"])
        looks = [both, both if random.random() < 0.6 else random.choice(["idle", "waits"])]
        host = (0.0, 0.0, 0.0)
        if random.random() < 0.5:
            host = random.choice(BYTES), random.choice(BYTES), random.choice(FULL)
        plan += [(looks, host)] * random.choice([1, 2, 3, 8])
    calm = (0.0, 0.0, 0.0) if random.random() < 0.7 else (10e6, 10e6, 0.5)
    looks = random.choice([["waits", "waits"], ["idle", "idle"], ["waits", "idle"]])
    return [*plan[: count - STANDSTILL], *[(looks, calm)] * STANDSTILL]


def hang_minutes(random: Random, plan: Plan) -> Iterator[NodeMinute]:
    """Yield the minutes of a node of two GPUs that does what is planned, but for single readings and minutes."""
    for number, (planned, host) in enumerate(plan):
        looks = planned if random.random() < 0.98 else [random.choice(list(LOOKS)) for _ in planned]
        columns = [_gpu(random, look) for look in looks]
        times = JOB_START + 60.0 * number + 6.0 * np.arange(ROWS, dtype=np.float64)
        gpus = [f"gpu{each}" for each in range(2)]
        power = {gpu: DeviceSeries(times, each[2]) for gpu, each in zip(gpus, columns, strict=True)}
        if random.random() < 0.03:
            del power[random.choice(gpus)]
        disks = {
            metric: {names.NODE: DeviceSeries(times, np.full(ROWS, host[0]))}
            for metric in (names.DISK_READ, names.DISK_WRITE)
            if random.random() < 0.9
        }
        gpu = np.column_stack([each[0] for each in columns])
        shown = 0 if random.random() < 0.03 else ROWS
        yield NodeMinute(
            snapshots=node_snapshots(
                times[:shown],
                gpu[:shown],
                gpu_memory=np.column_stack([each[1] for each in columns])[:shown],
                cores_full=host[2],
                network=host[1] if random.random() < 0.9 else NAN,
            ),
            active=np.logical_or.reduce(gpu[:shown] >= 10.0, axis=1),
            started=np.full(shown, number > 0),
            fresh=shown,
            view=replace(
                part_view(random, at=float(times[-1]), gpus=gpus),
                ever_active=np.array([random.random() < 0.98 for _ in gpus]),
            ),
            devices=DeviceSamples({names.POWER: power, **disks} if random.random() < 0.97 else disks),
        )


def _gpu(random: Random, look: str) -> Columns:
    utilization, memory, power = (np.full(ROWS, random.choice(values)) for values in LOOKS[look])
    for strays in (utilization, power):
        for _ in range(random.choice([0] * 9 + [1, 1, 2])):
            strays[random.randrange(ROWS)] = 50.0 if strays is utilization else random.choice([WORK_W, 200.55])
    if random.random() < 0.1:
        utilization[random.randrange(ROWS)] = NAN
    return utilization, memory, power


def lattice_steps(random: Random, node: str, since: float) -> ProgressState:
    """Return what processes of a node may have written: steps that ended about the time since which nothing works."""
    found = {}
    for rank in range(random.choice([0, 1, 2])):
        end_s = since + random.choice([-60.0, 0.0, 30.0, 30.000_001, 31.0])
        number = str(500 - random.choice([0, 0, 1, 5]))
        found[f"{node}-rank{rank}"] = ProcessProgress(round(1e6 * end_s), number, 9, random.choice([0, 2_000, 50_000]))
    return ProgressState(found)


def lattice_batches(random: Random) -> FrameworkEvents:
    """Return the steps of one object, of processes that go on from where they were, or were before."""
    batches = []
    for process in ("algo-1-rank0", "algo-1-rank1", "algo-1-71"):
        count = random.choice([0, 1, 2, 3, 70])
        pace_us = random.choice([2_000, 5_000, 10_000, 10_001, 30_000_000])
        begin = 1_700_000_000_000_000 + random.choice([0, 1_000_000, 2_000_000])
        starts = begin + pace_us * np.arange(count, dtype=np.int64)
        first = random.choice([95, 100, 105, 106])
        numbers = tuple(str(first + each) for each in range(count))
        if random.random() < 0.1:
            numbers = tuple(random.choice(["?", "\u0663", "9" * 25]) for _ in numbers)
        mode = "TRAIN" if random.random() < 0.9 else "EVAL"
        batches.append(StepBatch(process, mode, starts, np.full(count, 1_000, dtype=np.int64), numbers))
    return FrameworkEvents(tuple(batches))


PACES_US = (0, 1_999, 2_000, 5_000, 10_000, 10_001, 60_000_000, 60_000_001)


def lattice_progress(random: Random) -> dict[str, ProcessProgress]:
    """Return how far some processes are: by as many steps behind as they may not have written, and one more."""
    found = {}
    for name in random.sample(["n-rank0", "n-rank1", "n-rank12", "n-71", "n-rank", "n-rank1x"], random.randint(1, 4)):
        number = str(5_000 - random.choice([0, 0, 1, 2, 5, 6, 1_200, 30_000]))
        number = number if random.random() < 0.97 else random.choice(["?", "\u0663", ""])
        mode = "TRAIN" if random.random() < 0.95 else "EVAL"
        found[name] = ProcessProgress(1, number, 1, random.choice(PACES_US), mode)
    return found
