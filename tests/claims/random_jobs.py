"""Jobs drawn at random: any number of nodes and GPUs, any sampling interval, and whatever may happen to them."""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.claims.raw import Floats

START = 1_780_272_017.0
MOST_SAMPLES = 720
# A longer job has fewer nodes: every minute of a node is evaluated.
MOST_NODE_MINUTES = 480.0

CORES = 4
STEP = "Step:ModeKeys.TRAIN"
LOADER, LOADER_SETUP = "DataLoaderIter", "DataLoaderIterInitialize"
MOST_STEPS = 1_500
Generator = np.random.Generator


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a job is: length and interval in seconds."""

    seed: int
    seconds: float
    interval_s: float
    nodes: int
    gpus: int
    irregular: bool
    told: bool
    steps: bool

    @property
    def name(self) -> str:
        """The folder's name."""
        return f"random-{self.seed}"


def drawn(seed: int) -> Drawn:
    """Return the job of a seed."""
    rng = np.random.default_rng([seed, 1])
    seconds = float(np.exp(rng.uniform(math.log(60.0), math.log(43_200.0))))
    samples = int(rng.integers(60, MOST_SAMPLES))
    interval_s = float(np.clip(seconds / samples, 0.1, 60.0))
    if rng.random() < 0.6:  # as a person would set it
        interval_s = float(
            min((0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0), key=lambda s: abs(math.log(s / interval_s)))
        )
    seconds = min(seconds, interval_s * MOST_SAMPLES)
    minutes = seconds / 60.0
    return Drawn(
        seed=seed,
        seconds=max(seconds, 60.0),
        interval_s=round(interval_s, 3),
        nodes=min(int(rng.choice([1, 1, 1, 2, 3, 4])), max(int(MOST_NODE_MINUTES / minutes), 1)),
        gpus=int(rng.choice([1, 1, 2, 4, 8])),
        irregular=bool(rng.random() < 0.3),
        told=bool(rng.random() < 0.8),
        steps=bool(rng.random() < 0.35),
    )


def write_random_job(job: Drawn, root: Path) -> Path:
    """Write the folder of a job as the managed service leaves it; return it."""
    folder = root / job.name
    rng = np.random.default_rng([job.seed, 2])
    shared = _levels(rng, job, _grid(job))
    gaps = _gaps(rng, job)
    for node in range(1, job.nodes + 1):
        _write_node(np.random.default_rng([job.seed, 3, node]), job, node, shared, gaps, folder)
    (folder / "profiler-output" / "system" / "training_job_end.ts").write_bytes(b"")
    if job.steps:
        _write_steps(np.random.default_rng([job.seed, 4]), job, folder)
    about: dict[str, Any] = {
        "schema_version": 1,
        "name": job.name,
        "status": "Completed",
        "instance_type": "ml.p4d.24xlarge",
        "instance_count": job.nodes,
        "started_at": START,
        "ended_at": START + job.seconds,
        "framework_metrics": job.steps,
    }
    if job.told:
        about["profiling_interval_ms"] = max(round(1_000 * job.interval_s), 1)
    (folder / "job.json").write_text(json.dumps(about))
    return folder


def _grid(job: Drawn) -> Floats:
    return np.arange(0.2 * job.interval_s, job.seconds, job.interval_s)


def _gaps(rng: Generator, job: Drawn) -> list[tuple[float, float]]:
    if rng.random() < 0.6:
        return []
    starts = rng.uniform(0.1, 0.9, int(rng.integers(1, 4))) * job.seconds
    return [(float(start), float(start + job.seconds * rng.uniform(0.01, 0.15))) for start in starts]


def _levels(rng: Generator, job: Drawn, at: Floats) -> Floats:
    """Return what the GPUs do together, percent: pieces of work, idle times, ramps, pauses and spikes."""
    level = np.zeros(at.size)
    edges = np.sort(rng.uniform(0.0, job.seconds, int(rng.integers(0, 5))))
    for begin, end in zip([0.0, *edges], [*edges, job.seconds], strict=True):
        rows = (at >= begin) & (at < end)
        what = rng.choice(["busy", "busy", "mid", "low", "idle", "ramp", "spikes", "waits"])
        if what in {"busy", "mid", "low"}:
            level[rows] = {"busy": rng.uniform(85, 99), "mid": rng.uniform(30, 75), "low": rng.uniform(1, 15)}[
                str(what)
            ]
        elif what == "ramp":
            level[rows] = np.linspace(float(rng.uniform(0, 100)), float(rng.uniform(0, 100)), int(rows.sum()))
        elif what == "spikes":
            level[rows] = np.where(rng.random(int(rows.sum())) < rng.uniform(0.02, 0.3), 95.0, rng.uniform(0, 3))
        elif what == "waits":
            level[rows] = np.where(rng.random(int(rows.sum())) < rng.uniform(0.3, 0.8), 96.0, rng.uniform(0, 8))
    if rng.random() < 0.35:  # pauses that come back
        period, length = job.seconds * rng.uniform(0.05, 0.3), rng.uniform(0.05, 0.4)
        level = np.where((at % period) < length * period, 0.0, level)
    if rng.random() < 0.6:  # start-up
        level[at < job.seconds * rng.uniform(0.0, 0.2)] = 0.0
    if rng.random() < 0.2:
        level[at > job.seconds * rng.uniform(0.6, 1.0)] = 0.0
    return level


def _write_node(
    rng: Generator, job: Drawn, node: int, shared: Floats, gaps: list[tuple[float, float]], folder: Path
) -> None:
    at = _grid(job)
    level = shared if rng.random() < 0.7 else _levels(rng, job, at)
    noise = float(rng.choice([0.0, 1.0, 4.0]))
    gpus = np.clip(level[:, None] + noise * rng.standard_normal((at.size, job.gpus)), 0.0, 100.0)
    gpus[level == 0.0] = 0.0
    for gpu in range(job.gpus):
        fate = rng.random()
        if fate < 0.08:
            gpus[:, gpu] = 0.0
        elif fate < 0.16:
            gpus[at > job.seconds * rng.uniform(0.1, 0.9), gpu] = 0.0
        elif fate < 0.24:
            gpus[:, gpu] *= rng.uniform(0.2, 0.9)
    starved = (gpus.mean(axis=1) < 60.0) & (rng.random() < 0.7)
    hot, stuck = rng.random() < 0.5, rng.random() < 0.4
    cores = np.clip(rng.uniform(5, 60) + 8.0 * rng.standard_normal((at.size, CORES)), 0.0, 100.0)
    cores[starved & hot] = rng.uniform(85, 100, (int((starved & hot).sum()), CORES))
    waits = np.clip(3.0 + 2.0 * rng.standard_normal((at.size, CORES)), 0.0, 100.0)
    waits[starved & stuck] = rng.uniform(20, 100, (int((starved & stuck).sum()), CORES))
    clock = START + at
    if job.irregular:
        clock = clock + rng.uniform(0.0, 0.4, at.size) * job.interval_s
    clock = clock + 0.003 * node
    kept = np.ones(at.size, dtype=np.bool_)
    for begin, end in gaps if rng.random() < 0.8 else []:
        kept &= ~((at >= begin) & (at < end))
    decimals = int(rng.choice([0, 0, 2]))
    minutes: dict[int, list[str]] = {}
    series = [("gpu", f"gpu{each}", "GPUUtilization", gpus[:, each]) for each in range(job.gpus)]
    series += [("gpu", f"gpu{each}", "GPUMemoryUtilization", 0.5 * gpus[:, each]) for each in range(job.gpus)]
    series += [("cpu", f"cpu{each}", "CPUUtilization", cores[:, each]) for each in range(CORES)]
    series += [("cpu", f"cpu{each}", "I/OWaitPercentage", waits[:, each]) for each in range(CORES)]
    for row in np.flatnonzero(kept).tolist():
        read_at = float(clock[row])
        lines = minutes.setdefault(int(read_at // 60) * 60, [])
        for kind, name, dimension, values in series:
            lines.append(
                f'{{"Type":"{kind}","Name":"{name}","Dimension":"{dimension}","Value":{values[row]:.{decimals}f},'
                f'"NodeId":"algo-{node}","Timestamp":{read_at:.6f}}}\n'
            )
    for minute, lines in minutes.items():
        file = folder / "profiler-output" / "system" / "incremental" / hour_of(minute) / f"{minute}.algo-{node}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(lines))


def hour_of(epoch_s: float) -> str:
    """Return the folder of an hour."""
    return time.strftime("%Y%m%d%H", time.gmtime(epoch_s))


def _write_steps(rng: Generator, job: Drawn, folder: Path) -> None:
    """Write the steps of one process on each node, its waits for batches, and now and then a long step."""
    pace = max(float(rng.uniform(0.2, 2.0)), job.seconds / MOST_STEPS)
    waiting, every = float(rng.choice([0.02, 0.1, 0.4, 0.7])), int(rng.integers(15, 200))
    long = float(rng.choice([1.0, 3.0, 12.0]))
    for node in range(1, job.nodes + 1):
        events: list[dict[str, Any]] = [
            _event(LOADER_SETUP, 1.0, 0.2, {"pid": 84, "num_workers": int(rng.integers(1, 9)), "pin_memory": True})
        ]
        at, number = job.seconds * 0.05, 0
        while at < job.seconds - 2.0 * pace:
            length = pace * (long if number % every == every - 1 else 1.0) * float(rng.uniform(0.95, 1.05))
            fetch = waiting * pace
            length = min(length, job.seconds - at - fetch - 0.01)
            if length <= 0.0:
                break
            events.append(_event(LOADER, at, fetch, {"pid": 84, "worker_id": number % 2}))
            events.append(_event(STEP, at + fetch, length, {"pid": 84, "step_num": str(number)}))
            at, number = at + fetch + length, number + 1
        _write_events(events, folder, node)


def _event(phase: str, at: float, seconds: float, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": phase,
        "ph": "X",
        "pid": {STEP: 1, LOADER: 2, LOADER_SETUP: 3}[phase],
        "tid": 0,
        "ts": round(1e6 * at),
        "dur": round(1e6 * seconds),
        "args": arguments,
    }


def _write_events(events: list[dict[str, Any]], folder: Path, node: int) -> None:
    origin = round(START * 1e6)
    heads: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": origin}},
        *(
            {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}
            for name, pid in ((STEP, 1), (LOADER, 2), (LOADER_SETUP, 3))
        ),
    ]
    files: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        files.setdefault((origin + event["ts"] + event["dur"]) // 60_000_000, []).append(event)
    for part in files.values():
        last = origin + max(event["ts"] + event["dur"] for event in part)
        place = folder / "profiler-output" / "framework" / "pevents" / hour_of(last / 1e6)
        place.mkdir(parents=True, exist_ok=True)
        rows = ",\n".join(map(json.dumps, [*heads, *part]))
        (place / f"{last}_84-algo-{node}_pythontimeline.json").write_text(f"[\n{rows}\n]")
