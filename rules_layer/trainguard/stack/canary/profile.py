"""The canary's profile: four minutes of one node with a low GPU, the same bytes for the same time and run."""

import msgspec
import numpy as np

from trainguard.core.canary_name import canary_name
from trainguard.core.layout import ProfileRoot
from trainguard.formats.profile.keys import system_key
from trainguard.rules.low_gpu_utilization.rule import LOW_GPU

RULE = LOW_GPU.name

NODE = "algo-1"
MINUTES = 4
MINUTE_S = 60

SETTINGS = {
    "rule_to_invoke": RULE,
    f"{RULE}_window": 20,
    f"{RULE}_patience": 20,
    f"{RULE}_threshold_p95": 70,
    f"{RULE}_threshold_p5": 10,
    "evaluate": "on",
    "staged": "none",
    "muted": "none",
    "quiet-hours": "none",
}
"""Whatever the stack's default: one rule, a verdict within minutes, and an alert."""

_MEAN_PERCENT = 20.0
_SWING_PERCENT = 4.0
_CORE_PERCENT = 35.0
_MEMORY_PERCENT = 12.0


def canary_objects(at: float, run: str) -> list[tuple[str, bytes]]:
    """Return keys and bodies in the order of writing; the last minute ends before ``at``, epoch seconds."""
    root = ProfileRoot("", canary_name(at, run))
    last = int(at) // MINUTE_S * MINUTE_S - MINUTE_S
    minutes = range(last - (MINUTES - 1) * MINUTE_S, last + MINUTE_S, MINUTE_S)
    return [
        (root.job_file, _job_file(root.job, minutes[0])),
        *((system_key(root, NODE, minute), _lines(minute)) for minute in minutes),
        (f"{root.folder}profiler-output/system/training_job_end.ts", b""),
    ]


def _job_file(job: str, started_at: int) -> bytes:
    document = {
        "schema_version": 1,
        "name": job,
        "instance_count": 1,
        "started_at": started_at,
        "profiling_interval_ms": 1_000,
        "settings": SETTINGS,
    }
    return msgspec.json.encode(document)


def _lines(minute: int) -> bytes:
    """Return one minute as JSON lines, a snapshot a second."""
    seconds = np.arange(MINUTE_S)
    busy = np.rint(_MEAN_PERCENT + _SWING_PERCENT * np.sin(seconds / 5.0)).tolist()
    lines = [
        line
        for second, percent in zip(seconds.tolist(), busy, strict=True)
        for line in _snapshot(float(minute + second), percent)
    ]
    return msgspec.json.Encoder().encode_lines(lines)


def _snapshot(time: float, percent: float) -> list[dict[str, str | float]]:
    series = (
        ("gpu", "gpu0", "GPUUtilization", percent),
        ("gpu", "gpu0", "GPUMemoryUtilization", percent),
        ("cpu", "cpu0", "CPUUtilization", _CORE_PERCENT),
        ("cpu", "cpu0", "I/OWaitPercentage", 0.0),
        ("memory", "memory", "", _MEMORY_PERCENT),
    )
    return [
        {"Type": kind, "Name": name, "Dimension": dimension, "Value": value, "NodeId": NODE, "Timestamp": time}
        for kind, name, dimension, value in series
    ]
