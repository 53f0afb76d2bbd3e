"""Writes a recorded run as the profile that SageMaker's sampler would have written, at the run's own times.

Power and memory in use have no place in that format; I/O wait was not recorded.
"""

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from tests.verdicts.real_runs.recording import Recording
from trainguard.core.layout import hour_folder

# A full minute, epoch seconds; the runs' own start times were not published.
START = 1_700_276_760

NODE = "algo-1"

# Type, name of the device without its number, and dimension of the lines, by the kind of column.
_KINDS = {
    "u": ("gpu", "gpu", "GPUUtilization"),
    "a": ("gpu", "gpu", "GPUMemoryUtilization"),
    "c": ("cpu", "cpu", "CPUUtilization"),
    "ram": ("memory", "MemoryUsedPercent", ""),
    "net": ("network", "ReceiveBytesPerSecond", "Algorithm"),
}

_COLUMN = re.compile(r"(?P<kind>[a-z]+)(?P<device>\d*)")
_STATUS = {None: None, 0: "Completed"}


def write_profile(recording: Recording, folder: Path) -> Path:
    """Write the run as ``<folder>/<run>/profiler-output`` and job.json beside it, and return the run's folder."""
    job = folder / recording.origin.name
    system = job / "profiler-output" / "system"
    for minute, lines in _minutes(recording).items():
        file = system / "incremental" / hour_folder(minute) / f"{minute}.{NODE}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(lines))
    (system / "training_job_end.ts").touch()
    (job / "job.json").write_text(json.dumps(_job_file(recording), indent=1) + "\n")
    return job


def _minutes(recording: Recording) -> dict[int, list[str]]:
    """Return the lines of each minute, by the minute's epoch seconds."""
    minutes: dict[int, list[str]] = defaultdict(list)
    for column, values in recording.columns.items():
        parts = _COLUMN.fullmatch(column)
        if parts is None or parts["kind"] not in _KINDS:
            continue
        kind, device, dimension = _KINDS[parts["kind"]]
        about = {"Type": kind, "Name": f"{device}{parts['device']}", "Dimension": dimension, "NodeId": NODE}
        for index in np.flatnonzero(~np.isnan(values)).tolist():
            time = START + float(recording.times[index])
            line = about | {"Value": float(values[index]), "Timestamp": time}
            minutes[int(time // 60) * 60].append(json.dumps(line) + "\n")
    return minutes


def _job_file(recording: Recording) -> dict[str, object]:
    """Return what job.json says; no status of a run whose end was not recorded."""
    origin = recording.origin
    about: dict[str, object] = {"schema_version": 1, "name": origin.name, "instance_count": 1, "started_at": START}
    status = _STATUS.get(origin.exit_code, "Failed")
    return about if status is None else about | {"status": status, "ended_at": START + origin.seconds}
