"""A small job whose rules fire within minutes, as objects: what the whole-engine tests deliver in every order."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from trainguard.core.layout import hour_folder
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobStatus

BUCKET = "profiles"
JOB = "small-job"
START = 1_795_248_000
MINUTES = 14
INTERVAL_S = 5
SECOND_US = 1_000_000
SETTINGS = {
    "trainguard:LowGPUUtilization_window": "20",
    "trainguard:LowGPUUtilization_patience": "20",
    "trainguard:CPUBottleneck_patience": "1000",
    "trainguard:BatchSize_patience": "1000",
    "trainguard:LoadBalancing_patience": "1000",
    "trainguard:StepOutlier_n_outliers": "3",
}


@dataclass(frozen=True, slots=True)
class Upload:
    """An object, and when it appears in S3 (epoch seconds)."""

    at: float
    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """How the job's processes write.

    Attributes
    ----------
    early : mapping
        (node, process) to the times, in seconds after START, at which its file is closed for its size.
    restart : tuple of int, optional
        The minutes at which the job is interrupted, and at which it starts again with new processes.
    """

    early: Mapping[tuple[int, int], Sequence[float]] = field(default_factory=dict)
    restart: tuple[int, int] | None = None

    def runs(self) -> list[tuple[int, int]]:
        """Return (first minute, end minute) of the times in which the job runs."""
        return [(0, MINUTES)] if self.restart is None else [(0, self.restart[0]), (self.restart[1], MINUTES)]


STEADY = Shape()


def describe(tags: dict[str, str] | None = None, status: JobStatus = JobStatus.IN_PROGRESS) -> TrainingJobDescription:
    """Return the job as SageMaker would describe it."""
    return TrainingJobDescription(
        job=JOB,
        arn=f"arn:aws:sagemaker:eu-west-1:111122223333:training-job/{JOB}",
        status=status,
        secondary_status="Training",
        instance_type="ml.g5.12xlarge",
        instance_count=2,
        created_at=START - 60.0,
        started_at=float(START),
        ended_at=None,
        profiling_interval_ms=INTERVAL_S * 1_000,
        framework_profiling=True,
        tags=SETTINGS if tags is None else tags,
        profile_uri=f"s3://{BUCKET}",
    )


def uploads(*, low: bool = True, seed: int = 0, shape: Shape = STEADY) -> list[Upload]:
    """Return the objects of two nodes with two GPUs and two processes each, in upload order, end marker last."""
    return list(_steady(low, seed)) if shape is STEADY else _uploads(low, seed, shape)


@cache
def _steady(low: bool, seed: int) -> tuple[Upload, ...]:
    return tuple(_uploads(low, seed, STEADY))


def _uploads(low: bool, seed: int, shape: Shape) -> list[Upload]:
    rng = np.random.default_rng(seed)
    objects = [each for node in (1, 2) for each in (*_system(node, low, rng, shape), *_framework(node, rng, shape))]
    end = START + 60.0 * MINUTES + 90.0
    objects.append(Upload(end, f"{JOB}/profiler-output/system/training_job_end.ts", b""))
    return sorted(objects, key=lambda each: (each.at, each.key))


def _system(node: int, low: bool, rng: np.random.Generator, shape: Shape) -> list[Upload]:
    result = []
    for index in (minute for first, end in shape.runs() for minute in range(first, end)):
        minute = START + 60 * index
        lines = []
        for tick in range(60 // INTERVAL_S):
            time = minute + tick * INTERVAL_S + 0.01 * node
            busy = 0 if index == 0 else int(rng.integers(15, 40) if low and node == 1 else rng.integers(85, 99))
            for gpu in range(2):
                lines.append(_line("GPUUtilization", f"gpu{gpu}", busy + gpu, node, time + 0.002))
                lines.append(_line("GPUMemoryUtilization", f"gpu{gpu}", 20 + gpu, node, time + 0.002))
            cores = enumerate(rng.uniform(20, 60, 2).tolist())
            lines += [_line("CPUUtilization", f"cpu{core}", round(value, 2), node, time) for core, value in cores]
        rng.shuffle(lines)
        key = f"{JOB}/profiler-output/system/incremental/{hour_folder(minute)}/{minute}.algo-{node}.json"
        result.append(Upload(minute + 60.5, key, "".join(lines).encode()))
    return result


def _line(dimension: str, name: str, value: float, node: int, time: float) -> str:
    fields = {"Type": name[:3], "Name": name, "Dimension": dimension, "Value": float(value), "NodeId": f"algo-{node}"}
    return json.dumps({**fields, "Timestamp": time}) + "\n"


def _framework(node: int, rng: np.random.Generator, shape: Shape) -> list[Upload]:
    result = []
    for run, (first, end) in enumerate(shape.runs()):
        for pid in (70 + 2 * run, 71 + 2 * run):
            result += _process(node, pid, START + 60 * first + 30 + 7 * (pid % 2), START + 60 * end, rng, shape)
    return result


def _process(node: int, pid: int, start_s: int, end_s: int, rng: np.random.Generator, shape: Shape) -> list[Upload]:
    """Return the files of one process: closed a minute after the last one, or early, for their size."""
    result = []
    early = sorted((START + cut) * SECOND_US for cut in shape.early.get((node, pid), ()))
    at = start_s * SECOND_US
    rotation, events, number = at + 60 * SECOND_US, [], 0
    while at < end_s * SECOND_US:
        duration = int(rng.normal(900_000, 20_000)) * (12 if node == 2 and pid == 70 and number % 60 == 59 else 1)
        events.append((at, duration, number))
        at, number = at + duration + 50_000, number + 1
        if at > rotation or (early and at > early[0]):
            early = [cut for cut in early if cut >= at]
            result.append(_timeline(node, pid, events))
            rotation, events = at + 60 * SECOND_US, []
    if events:
        result.append(_timeline(node, pid, events))
    return result


def _timeline(node: int, pid: int, events: list[tuple[int, int, int]]) -> Upload:
    name = "Step:ModeKeys.TRAIN"
    trace = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 0}}]
    trace += [
        {"name": name, "pid": 1, "ph": "X", "ts": at, "dur": duration, "args": {"pid": pid, "step_num": str(number)}}
        for at, duration, number in events
    ]
    end = events[-1][0] + events[-1][1]
    folder = hour_folder(end // SECOND_US)
    key = f"{JOB}/profiler-output/framework/pevents/{folder}/{end}_{pid}-algo-{node}_pythontimeline.json"
    return Upload(end / SECOND_US + 1.0, key, json.dumps(trace).encode())
