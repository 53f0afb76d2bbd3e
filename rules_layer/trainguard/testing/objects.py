"""The objects of a synthetic job, in the layout and the formats in which training jobs write them."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainguard.core.layout import ProfileRoot, hour_folder
from trainguard.formats.profile.keys import system_key
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.testing.job import HEALTHY, Event, SeriesName, SyntheticJob, chosen_values

__all__ = ["JobObject", "job_file", "objects_of", "write_profile"]

MINUTE_S = 60
SECOND_US = 1_000_000
_UPLOAD_S = 1.0
# Of each series: type and name, which a device's number follows, and dimension of its lines.
_DIMENSIONS: dict[SeriesName, tuple[str, str, str]] = {
    "gpu_utilization": ("gpu", "gpu", "GPUUtilization"),
    "gpu_memory": ("gpu", "gpu", "GPUMemoryUtilization"),
    "cpu": ("cpu", "cpu", "CPUUtilization"),
    "io_wait": ("cpu", "cpu", "I/OWaitPercentage"),
    "host_memory": ("memory", "MemoryUsedPercent", ""),
    "network": ("network", "ReceiveBytesPerSecond", "Algorithm"),
}


@dataclass(frozen=True, slots=True)
class JobObject:
    """An object, and when it appears in the bucket (epoch seconds)."""

    at: float
    key: str
    body: bytes


def write_profile(job: SyntheticJob, folder: Path | str) -> Path:
    """Write a job's profile as files for ``trainguard analyze``; return its folder, whose name is the job's."""
    target = Path(folder).resolve()
    for item in objects_of(job, target.name):
        file = target.parent / item.key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(item.body)
    (target / "job.json").write_bytes(job_file(job, target.name))
    return target


def objects_of(job: SyntheticJob, name: str) -> tuple[JobObject, ...]:
    """Return the objects of a job in the order in which they appear; the mark of the end is the last."""
    root = ProfileRoot("", name)
    written = [*_metrics(job, root), *_timelines(job, root)]
    end = JobObject(
        job.start + job.duration_s + 2 * _UPLOAD_S, f"{name}/profiler-output/system/training_job_end.ts", b""
    )
    return (*sorted(written, key=lambda each: (each.at, each.key)), end)


def job_file(job: SyntheticJob, name: str) -> bytes:
    """Return the job.json that describes a job as SageMaker would."""
    about = {
        "schema_version": 1,
        "name": name,
        "status": "Completed",
        "instance_type": job.instance_type,
        "instance_count": job.nodes,
        "started_at": job.start,
        "ended_at": job.start + job.duration_s,
        "profiling_interval_ms": round(job.interval_s * 1_000),
    }
    return json.dumps(about, indent=2).encode() + b"\n"


def _metrics(job: SyntheticJob, root: ProfileRoot) -> Iterator[JobObject]:
    for node in job.node_names:
        columns = dict(_columns(job, node))
        for minute in range(job.minutes):
            times = job.times_s
            rows = np.flatnonzero((times >= MINUTE_S * minute) & (times < MINUTE_S * (minute + 1)))
            rows = rows[~_missing(job, node, times[rows])]
            if rows.size == 0:
                continue
            body = "".join(line for row in rows.tolist() for line in _lines(job, node, columns, row))
            begin = job.start + MINUTE_S * minute
            yield JobObject(begin + MINUTE_S + _UPLOAD_S, system_key(root, node, begin), body.encode())


def _columns(job: SyntheticJob, node: str) -> Iterator[tuple[tuple[SeriesName, int | None], FloatArray]]:
    for series, healthy in HEALTHY.items():
        devices = job.devices(series)
        if devices == 0 and series in {"gpu_utilization", "gpu_memory"}:
            continue
        for device in range(devices) if devices else (None,):
            values = np.full(job.snapshots, healthy)
            for change in job.changes:
                if change.series == series and change.node in (None, node) and change.device in (None, device):
                    chosen, given = chosen_values(change, job.times_s)
                    values[chosen] = given
            yield (series, device), values


def _lines(
    job: SyntheticJob, node: str, columns: dict[tuple[SeriesName, int | None], FloatArray], row: int
) -> Iterator[str]:
    time = job.start + job.interval_s * row
    for (series, device), values in columns.items():
        if np.isnan(values[row]):
            continue
        kind, name, dimension = _DIMENSIONS[series]
        fields = {"Type": kind, "Name": name if device is None else f"{name}{device}", "Dimension": dimension}
        yield json.dumps({**fields, "Value": float(values[row]), "NodeId": node, "Timestamp": time}) + "\n"


def _missing(job: SyntheticJob, node: str, times_s: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    outages = [each for each in job.outages if each.node == node]
    missing = np.zeros(times_s.size, dtype=np.bool_)
    for outage in outages:
        missing |= (times_s >= outage.start_s) & (times_s < outage.end_s)
    return missing


def _timelines(job: SyntheticJob, root: ProfileRoot) -> Iterator[JobObject]:
    """Write a file for each minute in which events of a process end, as the hooks rotate theirs."""
    files: defaultdict[tuple[str, int, str, int], list[Event]] = defaultdict(list)
    for event in job.events:
        if not _missing(job, event.node, np.array([event.end_s])).any():
            files[event.node, event.process, event.kind, int(event.end_s // MINUTE_S)].append(event)
    for (node, process, kind, _), events in sorted(files.items()):
        ordered = sorted(events, key=lambda each: each.end_s)
        end_us = job.start * SECOND_US + round(ordered[-1].end_s * SECOND_US)
        folder = hour_folder(end_us // SECOND_US)
        key = f"{root.framework}{folder}/{end_us}_{process}-{node}_{kind}.json"
        yield JobObject(end_us / SECOND_US + _UPLOAD_S, key, _trace(ordered, job.start * SECOND_US))


def _trace(events: Sequence[Event], start_us: int) -> bytes:
    """Return a Chrome trace, metadata first, one event on a line; times are relative to the job's start."""
    lines: list[dict[str, object]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": start_us}}
    ]
    phases = {phase: number for number, phase in enumerate(dict.fromkeys(each.phase for each in events), 1)}
    lines += [{"name": "process_name", "ph": "M", "pid": pid, "args": {"name": phase}} for phase, pid in phases.items()]
    for event in events:
        begin, took = round(event.start_s * SECOND_US), round(event.duration_s * SECOND_US)
        place = {"name": event.name, "ph": "X", "pid": phases[event.phase], "ts": begin, "dur": took}
        lines.append({**place, "args": dict(event.args)})
    return ("[\n" + ",\n".join(json.dumps(line) for line in lines) + "\n]").encode()
