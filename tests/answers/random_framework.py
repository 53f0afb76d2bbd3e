"""Random jobs that write framework events: steps, operators, loaders and passes of a node or two, minute by minute."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from tests.support.framework_traces import SECOND, START_US, event, read, step
from tests.unit.rules.node_replay import NodeSeries, series
from trainguard.formats.profile.columns import FrameworkEvents

Random = np.random.Generator
Events = list[dict[str, Any]]

START = START_US / SECOND
MINUTE_S = 60.0
EVAL, OWN_MODE = "Step:ModeKeys.EVAL", "GlobalStep"
# Of a process in a minute; it does something else in what is left of the minute.
MOST_STEPS = 20


@dataclass(frozen=True)
class RandomJob:
    """A job: the objects of each minute by node, in the order in which they are applied, and the nodes' samples."""

    minutes: Sequence[Mapping[str, Sequence[FrameworkEvents]]]
    series: Mapping[str, NodeSeries]
    cores: Mapping[str, int]


@dataclass(frozen=True)
class _Process:
    """How a training process behaves; times in seconds, shares of a second in the loader."""

    name: str
    pid: int
    begins: int
    ends: int
    step_s: float
    gap_s: float
    slow_every: int
    factor: float
    culprit: str
    workers: int
    declared: int | None
    pinned: bool | None
    told_by: str
    wait_s: float
    late_wait_s: float
    eval_every: int


@cache
def random_job(seed: int) -> RandomJob:
    """Return a job of one or two nodes and up to fifty minutes."""
    random = np.random.default_rng(seed)
    minutes = int(random.choice([12, 16, 25, 50], p=[0.2, 0.4, 0.2, 0.2]))
    nodes = [f"algo-{number + 1}" for number in range(int(random.choice([1, 1, 2])))]
    processes = {node: [_process(random, node, number, minutes) for number in _some(random)] for node in nodes}
    tensorflow = seed % 5 == 2
    made = [
        {
            node: [
                each
                for process in processes[node]
                if process.begins <= minute < process.ends
                for each in _objects(random, process, minute, tensorflow)
            ]
            for node in nodes
        }
        for minute in range(minutes)
    ]
    return RandomJob(
        made,
        {node: _samples(random, minutes) for node in nodes},
        {node: int(random.choice([0, 2, 4, 8, 12], p=[0.1, 0.2, 0.3, 0.3, 0.1])) for node in nodes},
    )


def _some(random: Random) -> range:
    return range(int(random.choice([1, 1, 2, 3])))


def _process(random: Random, node: str, number: int, minutes: int) -> _Process:
    workers = int(random.choice([0, 1, 2, 3, 4, 9]))
    return _Process(
        name=f"{node}-{905 + number}",
        pid=905 + number,
        begins=int(random.choice([0, 0, 0, 2])),
        ends=int(random.choice([minutes, minutes, minutes, max(3, minutes - 11), 4])),
        step_s=float(random.choice([0.25, 0.5, 1.0])),
        gap_s=float(random.choice([0.0, 0.0, 0.25])),
        slow_every=int(random.choice([0, 7, 10, 20, 30])),
        factor=float(random.choice([1.5, 2.0, 3.0, 8.0])),
        culprit=str(random.choice(["", "DataLoaderIter", "aten::save", "Checkpoint"])),
        workers=workers,
        declared=None if random.random() < 0.5 else workers,
        pinned=[None, True, False][int(random.integers(3))],
        told_by=str(random.choice(["pid", "number", "nothing"])),
        wait_s=float(random.choice([0.0, 0.02, 0.1, 0.25])),
        late_wait_s=float(random.choice([0.02, 0.25, 0.5])),
        eval_every=int(random.choice([0, 0, 5, 9])),
    )


def _objects(random: Random, process: _Process, minute: int, tensorflow: bool) -> Iterator[FrameworkEvents]:
    """Yield what a process writes in a minute: its timeline, and now and then those of Horovod and of its workers."""
    events = [*_training(random, process, minute), *(_pipeline(minute) if tensorflow else _loading(process, minute))]
    if not tensorflow and minute == process.begins and (process.declared is not None or process.pinned is not None):
        given = {"num_workers": process.declared, "pin_memory": process.pinned, "pid": process.pid}
        events.insert(0, event("DataLoaderIterInitialize", "init", minute * MINUTE_S, 0.1, **given))
    yield read(events, process=process.name)
    at = minute * MINUTE_S
    if process.pid == 906:
        sums = [event(f"grad_{each}", "ALLREDUCE", at + each, 0.5) for each in range(3)]
        yield read([*sums, event("grad_0", "NEGOTIATE", at, 0.25)], process=process.name, kind="horovod_timeline")
    if process.pid == 907:
        sums = [event("all", "reduce", at + each, 0.25) for each in range(2)]
        yield read(sums, process=process.name, kind="smdataparallel_timeline")
    if process.workers == 2 and not tensorflow:
        fetches = [
            event("DataLoaderWorker", "DataLoaderWorker::Fetch", at + each, 0.125 * (1 + each % 3), pid=7001)
            for each in range(0, 40, 8)
        ]
        yield read(fetches, process=f"{process.name}w")


def _training(random: Random, process: _Process, minute: int) -> Iterator[dict[str, Any]]:
    """Yield a minute's steps with their operators; each few are slow, and something goes with it."""
    evaluates = process.eval_every and minute % process.eval_every == process.eval_every - 1
    at = minute * MINUTE_S
    for place in range(MOST_STEPS):
        number = minute * MOST_STEPS + place
        is_slow = process.slow_every and number % process.slow_every == process.slow_every - 1
        duration = process.step_s * (process.factor if is_slow else 1.0)
        duration += float(random.choice([0.0, 0.0, 0.0, 0.0078125]))
        if at + duration > (minute + 1) * MINUTE_S:
            return
        if evaluates:
            yield step(number, at, duration / 2.0, EVAL if process.eval_every == 5 else OWN_MODE)
        else:
            yield step(number, at, duration)
        yield event("cpu_functions", "aten::inner", at, duration / 8.0, tid=1)
        yield event("cpu_functions", "aten::mm", at, duration / 4.0, tid=1)
        yield event("gpu_functions-dev:0", f"kernel_{number % 3}", at + duration / 4.0, duration / 2.0, tid=0)
        if place == 0:
            yield event("Forward-SubModuleInternal", "fc", at, duration / 4.0)
            yield event("Backward-SubModuleInternal", "fc", at + duration / 4.0, duration / 2.0)
        if is_slow and process.culprit:
            phase = process.culprit if "::" not in process.culprit else "cpu_functions"
            named = f"{phase}::GetNext" if phase == "DataLoaderIter" else process.culprit
            yield event(phase, named, at + duration / 2.0, duration / 2.0 + 0.25, tid=2, pid=process.pid)
        at += duration + process.gap_s


def _loading(process: _Process, minute: int) -> Iterator[dict[str, Any]]:
    """Yield a minute's fetches: workers in turn, identified by process or by number, and waits of the process."""
    wait_s = process.wait_s if minute < 14 else process.late_wait_s
    for second in range(0, 60, 4):
        at = minute * MINUTE_S + second
        for worker in range(process.workers - (second == 8)):
            told = {"pid": 5000 + worker, "worker_id": worker} if process.told_by == "pid" else {"pid": process.pid}
            if process.told_by == "number":
                told["worker_id"] = worker
            yield event("DataLoaderIter", "DataLoaderIter::GetNext", at + 0.25, 0.015625, **told)
        if wait_s and minute != 2:
            fetch = {"pid": process.pid} if process.told_by != "nothing" else {}
            yield event("DataLoaderIter", "DataLoaderIter::GetNext", at + 0.5, 4.0 * wait_s, **fetch)
    if process.workers == 1:
        yield event("DataLoaderWorker", "DataLoaderWorker", minute * MINUTE_S, 59.0, pid=5000, worker_id=0)


def _pipeline(minute: int) -> Iterator[dict[str, Any]]:
    for second in range(0, 60, 10):
        yield event("DataIterator", "dataset::GetNext", minute * MINUTE_S + second, 0.25)
    if minute >= 20:
        yield event("Dataset", "ModelPrefetchDataset", minute * MINUTE_S, 0.125)


def _samples(random: Random, minutes: int) -> NodeSeries:
    """Return a sample a minute of one or two GPUs, which changes once, and of the second perhaps nothing."""
    levels = random.choice([97.0, 90.0, 85.0, 70.0, 50.0, 0.0], size=2)
    gpu = np.full((minutes + 1, int(random.integers(1, 3))), levels[0])
    gpu[(minutes + 1) // 2 :] = levels[1]
    gpu[:, 1:] *= float(random.choice([0.0, 0.5, 1.0]))
    return replace(series(gpu, interval_s=MINUTE_S), cpu_max=np.full(minutes + 1, 50.0))
