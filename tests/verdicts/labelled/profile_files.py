"""Writes a described job as the folder that the managed service would leave."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.verdicts.labelled.activity import NodeCounters, node_counters
from tests.verdicts.labelled.collected import further_series
from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.noise import Generator
from tests.verdicts.labelled.timeline_files import write_timelines

# 17 s after a full ten minutes of the clock, epoch seconds: a job starts so many minutes later as it says.
START = 1_780_272_017.0

CHUNK = 4096
# One snapshot's groups are read one after another.
_GROUP_DELAYS_S = {"gpu": 0.0, "cpu": 0.004, "memory": 0.006, "i/o": 0.009, "network": 0.021}

Series = tuple[str, str]
Lines = tuple[str, np.ndarray]


def start_of(job: Job) -> float:
    """Return when a job starts, epoch seconds."""
    return START + 60.0 * job.start_min


def write_job(job: Job, root: Path) -> Path:
    """Write the job's folder under ``root``; return it."""
    folder = root / job.name
    profile = folder / "profiler-output"
    for node in range(1, job.nodes + 1):
        _write_system(job, node, profile)
    if job.steps is not None:
        write_timelines(job, start_of(job), profile)
        _mark_end(profile / "framework")
    _mark_end(profile / "system")
    (folder / "job.json").write_text(json.dumps(_job_file(job)))
    return folder


def _mark_end(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "training_job_end.ts").write_bytes(b"")


def _job_file(job: Job) -> dict[str, object]:
    return {
        "schema_version": 1,
        "name": job.name,
        "status": "Completed",
        "instance_type": job.machine.instance_type,
        "instance_count": job.nodes,
        "started_at": start_of(job),
        "ended_at": start_of(job) + 60.0 * job.minutes,
        "profiling_interval_ms": round(1000 * job.interval_s),
        "framework_metrics": job.steps is not None,
    }


def _write_system(job: Job, node: int, profile: Path) -> None:
    counters = node_counters(job, node)
    rng = np.random.default_rng([job.seed, node, 6])
    clock = start_of(job) + counters.at_s + 0.0131 * (node - 1) + rng.uniform(0.0, 0.002, counters.at_s.size)
    if job.flaws.clock_jump is not None:
        minute, jump_s = job.flaws.clock_jump
        clock = np.where(counters.at_s >= 60.0 * minute, clock + jump_s, clock)
    has_utilization = job.collected is None or not job.collected.mig
    groups = _groups(counters, f"algo-{node}", rng, has_utilization=has_utilization)
    minutes: dict[int, list[str]] = {}
    for begin in range(0, clock.size, CHUNK):
        part = slice(begin, begin + CHUNK)
        _append_lines(clock[part], {name: (text, rows[part]) for name, (text, rows) in groups.items()}, minutes)
    _append_further(job, node, counters, clock, minutes)
    for minute, lines in minutes.items():
        file = profile / "system" / "incremental" / hour_of(minute) / f"{minute}.algo-{node}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(lines))
    _damage(job, sorted(profile.glob(f"system/incremental/*/*.algo-{node}.json")))


def _damage(job: Job, files: Sequence[Path]) -> None:
    """Cut the newest of a node's files, or put garbage in the place of one."""
    if job.flaws.cut:
        files[-1].write_bytes(files[-1].read_bytes()[:-30])
    if job.flaws.damaged_min is not None:
        files[job.flaws.damaged_min].write_bytes(b"\x00" * 4096)


def hour_of(epoch_s: float) -> str:
    """Return the name of the UTC hour's folder."""
    return time.strftime("%Y%m%d%H", time.gmtime(epoch_s))


def _append_lines(clock: np.ndarray, groups: dict[str, Lines], minutes: dict[int, list[str]]) -> None:
    rows = {name: values.tolist() for name, (_, values) in groups.items()}
    for index, instant in enumerate(clock.tolist()):
        for name, (text, _) in groups.items():
            read_at = instant + _GROUP_DELAYS_S[name]
            lines = minutes.setdefault(int(read_at // 60) * 60, [])
            lines.append((text % tuple(rows[name][index])).replace("@", f"{read_at:.6f}"))


def _append_further(
    job: Job, node: int, counters: NodeCounters, clock: np.ndarray, minutes: dict[int, list[str]]
) -> None:
    """Add the further series, each after all that was read of the minute before it."""
    for name, rows, values in further_series(job, node, counters):
        text = _text("gpu", [(name, "")], f"algo-{node}")
        for read_at, value in zip(clock[rows].tolist(), values.tolist(), strict=True):
            lines = minutes.setdefault(int(read_at // 60) * 60, [])
            lines.append((text % value).replace("@", f"{read_at:.6f}"))


def _groups(counters: NodeCounters, node: str, rng: Generator, *, has_utilization: bool) -> dict[str, Lines]:
    """Return each group's lines, with places for values and an @ for the time, and its values float64[T, series]."""
    cores, gpus = counters.cores.shape[1], counters.gpus.shape[1]
    size = counters.at_s.size
    noise = np.abs(1.0 + 0.05 * rng.standard_normal((size, 4)))
    traffic = counters.received[:, None] * noise
    disk = np.stack([counters.read / 65_536.0, counters.read, 0.1 * counters.read], axis=1)
    names = [f"cpu{core}" for core in rng.permutation(cores)]
    order = [int(name[3:]) for name in names]
    devices = [f"gpu{gpu}" for gpu in range(gpus)]
    found = {
        "cpu": (
            _text("cpu", [(name, "CPUUtilization") for name in names], node)
            + _text("cpu", [(name, "I/OWaitPercentage") for name in names], node),
            np.concatenate([counters.cores[:, order], counters.io_wait[:, order]], axis=1),
        ),
        "memory": (_text("memory", [("MemoryUsedPercent", "")], node), counters.host[:, None]),
        "i/o": (_text("i/o", [(name, "") for name in _DISK], node), disk),
        "network": (_text("network", _NETWORK, node), traffic),
    }
    if gpus and has_utilization:
        lines = [(name, "GPUUtilization") for name in devices] + [(name, "GPUMemoryUtilization") for name in devices]
        found["gpu"] = (_text("gpu", lines, node), np.concatenate([counters.gpus, counters.memory], axis=1))
    return found


_DISK = ("IOPS", "ReadThroughputInBytesPerSecond", "WriteThroughputInBytesPerSecond")
_NETWORK = [
    (name, source)
    for source in ("Algorithm", "Platform")
    for name in ("ReceiveBytesPerSecond", "TransmitBytesPerSecond")
]


def _text(kind: str, series: Sequence[Series], node: str) -> str:
    return "".join(
        f'{{"Type":"{kind}","Name":"{name}","Dimension":"{dimension}","Value":%.2f,"NodeId":"{node}","Timestamp":@}}\n'
        for name, dimension in series
    )
