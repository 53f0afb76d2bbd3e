"""Jobs of a few minutes and points, whose rules fire within them: small enough for thousands of trials."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from trainguard.core.layout import hour_folder
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus, StreamKey
from trainguard.engine.family import Families
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.family import ProfilerFamily
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.rules.step_outlier.rule import StepOutlier

BUCKET = "profiles"
JOB = "trial"
START = 1_795_248_000
INTERVAL_S = 3
SECOND_US = 1_000_000
# An object appears in S3 so long after the last time in it.
UPLOAD_S = 0.5

TAGS = {
    "trainguard:LowGPUUtilization_window": "20",
    "trainguard:LowGPUUtilization_patience": "20",
    "trainguard:StepOutlier_n_outliers": "1",
    "trainguard:stop-on-fire": "allowed",
}
POISON = (b"", b"\x1f\x8b\x08 broken", b'[{"ph":', b"\xff\xfe{}\n", b'{"Type":"GPU"}\n' * 3)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job writes: what must lead to the same end, however it is delivered.

    Attributes
    ----------
    kind : str
        ``one`` and ``grid``: one or two nodes with system metrics; ``lanes``: one node with two processes beside them.
    minutes : int
    skew_s : tuple of int
        How far the clock of each node is ahead of S3's, in seconds.
    poison : tuple of (int, int)
        Objects, by their index, that cannot be read, and the index in POISON of what they hold.
    """

    kind: str
    minutes: int = 6
    skew_s: tuple[int, int] = (0, 0)
    poison: tuple[tuple[int, int], ...] = ()

    @property
    def streams(self) -> tuple[StreamKey, ...]:
        """Return the streams that the job has at its end."""
        first = StreamKey(JOB, "algo-1", "system")
        others = {"grid": ("algo-2", "system"), "lanes": ("algo-1", "framework")}
        return (first, StreamKey(JOB, *others[self.kind])) if self.kind in others else (first,)


@dataclass(frozen=True, slots=True)
class Written:
    """An object and when it appears in S3, epoch seconds on S3's clock."""

    at: float
    key: str
    body: bytes
    stream: StreamKey


@cache
def written(shape: Shape) -> tuple[Written, ...]:
    """Return the objects of a job, in the order in which they appear."""
    objects = _system(1, shape, low=True)
    if shape.kind == "grid":
        objects += _system(2, shape, low=False)
    elif shape.kind == "lanes":
        objects += _framework(shape)
    objects.sort(key=lambda each: (each.at, each.key))
    for index, body in shape.poison:
        bad = objects[index % len(objects)]
        objects[index % len(objects)] = Written(bad.at, bad.key, POISON[body], bad.stream)
    return tuple(objects)


def end_of(shape: Shape) -> float:
    """Return when the job ends, on S3's clock."""
    return START + 60.0 * shape.minutes + 5.0


def describe(shape: Shape, status: JobStatus = JobStatus.IN_PROGRESS, **other: Any) -> TrainingJobDescription:
    """Return the job as SageMaker describes it; its owner allows stops."""
    known: dict[str, Any] = {
        "job": JOB,
        "arn": f"arn:aws:sagemaker:eu-west-1:111122223333:training-job/{JOB}",
        "status": status,
        "secondary_status": "Training",
        "instance_type": "ml.g5.12xlarge",
        "instance_count": 2 if shape.kind == "grid" else 1,
        "created_at": START - 60.0,
        "started_at": float(START),
        "ended_at": end_of(shape) if status.is_final else None,
        "profiling_interval_ms": INTERVAL_S * 1_000,
        "framework_profiling": shape.kind == "lanes",
        "tags": TAGS,
        "profile_uri": f"s3://{BUCKET}",
    }
    return TrainingJobDescription(**{**known, **other})


def _system(node: int, shape: Shape, *, low: bool) -> list[Written]:
    stream, skew = StreamKey(JOB, f"algo-{node}", "system"), shape.skew_s[node - 1] // 60 * 60
    result = []
    for index in range(shape.minutes):
        minute = START + 60 * index + skew
        lines = []
        for tick in range(60 // INTERVAL_S):
            busy = 20 + 7 * (tick % 3) if low else 90 + tick % 8
            time = minute + tick * INTERVAL_S + 0.01 * node
            fields = {"Type": "gpu", "Name": "gpu0", "Dimension": "GPUUtilization", "Value": float(busy)}
            lines.append(json.dumps({**fields, "NodeId": f"algo-{node}", "Timestamp": time}) + "\n")
        key = f"{JOB}/profiler-output/system/incremental/{hour_folder(minute)}/{minute}.algo-{node}.json"
        result.append(Written(minute - skew + 60.0 + UPLOAD_S, key, "".join(lines).encode(), stream))
    return result


def _framework(shape: Shape) -> list[Written]:
    result = []
    for process, offset in ((70, 31), (71, 38)):
        at, number, end = (START + offset) * SECOND_US, 0, (START + 60 * shape.minutes - 4) * SECOND_US
        rotation, events = at + 60 * SECOND_US, []
        while at < end:
            duration = (900_000 + 10_000 * (number % 7)) * (12 if process == 70 and number % 40 == 39 else 1)
            events.append((at, duration, number))
            at, number = at + duration + 50_000, number + 1
            if at > rotation:
                result.append(_timeline(process, events, shape))
                rotation, events = at + 60 * SECOND_US, []
        if events:
            result.append(_timeline(process, events, shape))
    return result


def _timeline(process: int, events: Sequence[tuple[int, int, int]], shape: Shape) -> Written:
    skew = shape.skew_s[0] // 60 * 60
    trace: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 0}}
    ]
    for at, duration, number in events:
        args = {"pid": process, "step_num": str(number)}
        step = {"name": "Step:ModeKeys.TRAIN", "pid": 1, "ph": "X", "ts": at + skew * SECOND_US, "dur": duration}
        trace.append({**step, "args": args})
    end = events[-1][0] + events[-1][1] + skew * SECOND_US
    folder = hour_folder(end // SECOND_US)
    key = f"{JOB}/profiler-output/framework/pevents/{folder}/{end}_{process}-algo-1_pythontimeline.json"
    stream = StreamKey(JOB, "algo-1", "framework")
    return Written(end / SECOND_US - skew + UPLOAD_S, key, json.dumps(trace).encode(), stream)


class _TwoRules(ProfilerFamily):
    """The profiler's family with one rule a stream."""

    rules = (LowGPUUtilization(), StepOutlier())


class PlannedOnce(Families):
    """Families that resolve equal settings once: trials of one job have them in common."""

    _plans: ClassVar[dict[str, RulePlan]] = {}

    def plan(self, job: JobRecord, **other: Any) -> RulePlan:
        """Resolve a job's settings."""
        name = repr((sorted(job.rule_settings.items()), sorted(job.episodes.items()), sorted(other)))
        if name not in self._plans:
            self._plans[name] = super().plan(job, **other)
        return self._plans[name]


FAMILIES = PlannedOnce(_TwoRules())
