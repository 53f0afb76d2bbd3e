"""Jobs drawn at random whose processes tell much of their steps: passes, loaders, operators, what makes some slow."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.claims.random_jobs import (
    LOADER,
    LOADER_SETUP,
    START,
    STEP,
    Drawn,
    Generator,
    drawn,
    hour_of,
    write_random_job,
)

FORWARD, BACKWARD, OPTIMIZER = "Forward-SubModuleInternal", "Backward-SubModuleInternal", "Optimizer"
WORKER, ON_GPU, ON_CPU = "DataLoaderWorker", "GPUEvents", "CPUFunctions"
SLOW = ("Checkpoint", "Evaluation", "Compilation")
# Phases beside the steps: with the others more than a minute's largest.
BESIDE = ("Log", "Prepare", "Decode", "Upload", "Sample", "Shuffle", "Metric", "Copy", "Wait")

PEER_WAIT = "peer_wait"
PHASES = (STEP, LOADER, LOADER_SETUP, FORWARD, BACKWARD, OPTIMIZER, WORKER, ON_GPU, ON_CPU, *SLOW, *BESIDE, PEER_WAIT)
SHORTEST_S, LONGEST_S, MOST_STEPS = 1_500.0, 5_400.0, 700
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """How the processes of a job step: seconds, and shares of a step; ``file_s`` is how long a file is written.

    Without ``loads`` there are no events of loaders.
    """

    pace: float
    file_s: float
    forward: float
    wait: float
    every: int
    slow: float
    kind: str
    operators: bool
    minutely: bool
    workers: int
    loads: bool


def steps_job(seed: int) -> Drawn:
    """Return the job of a seed: long enough that each rule over steps judges it."""
    job = drawn(seed)
    rng = np.random.default_rng([seed, 5])
    seconds = float(rng.uniform(SHORTEST_S, LONGEST_S))
    return replace(job, seconds=seconds, interval_s=round(max(seconds / 600.0, job.interval_s / 10.0), 3), steps=False)


def write_steps_job(seed: int, root: Path, *, tells_waits: bool = False) -> Path:
    """Write the folder of a job with the events of all its processes; return it.

    With ``tells_waits`` each tells how long it waits for its peers: a slow one hardly, the others in most of their
    backward passes.
    """
    job = steps_job(seed)
    folder = write_random_job(job, root)
    about = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps({**about, "framework_metrics": True}))
    rng = np.random.default_rng([seed, 6])
    plan = _plan(rng, job)
    ranks = [(node, rank) for node in range(1, job.nodes + 1) for rank in range(int(rng.choice([1, 2, 4])))]
    slow = _slow_ranks(rng, ranks)
    for place, (node, rank) in enumerate(ranks):
        own = np.random.default_rng([seed, 7, place])
        factor, by_waits = slow.get((node, rank), (1.0, False))
        rows = _rows(own, job, plan, factor, by_waits=by_waits)
        if tells_waits:
            rows = _with_waits(rows, np.random.default_rng([seed, 8, place]), 0.03 if factor > 1.0 else 0.9)
        _write(rows, folder, f"rank{place}", node, plan.file_s)
        if plan.workers:
            _write(_fetches(own, job, plan), folder, f"rank{place}w", node, plan.file_s)
    return folder


def _plan(rng: Generator, job: Drawn) -> Plan:
    loads = bool(rng.random() < 0.8)
    return Plan(
        loads=loads,
        pace=max(float(rng.uniform(0.5, 4.0)), job.seconds / MOST_STEPS),
        file_s=float(rng.choice([20.0, 60.0, 60.0, 250.0])),
        forward=float(rng.uniform(0.15, 0.5)),
        wait=float(rng.choice([0.02, 0.1, 0.5])),
        every=int(rng.integers(10, 60)),
        slow=float(rng.choice([1.0, 3.0, 12.0])),
        kind=str(rng.choice([*SLOW, BACKWARD, LOADER] if loads else SLOW)),
        operators=bool(rng.random() < 0.4),
        minutely=bool(rng.random() < 0.6),
        workers=int(rng.choice([0, 1, 4])) if loads else 0,
    )


def _slow_ranks(rng: Generator, ranks: list[tuple[int, int]]) -> dict[tuple[int, int], tuple[float, bool]]:
    """Draw which ranks have more work of their own: none, one, a few, or those of a node; and whether they wait."""
    how = rng.choice(["none", "one", "few", "node"])
    number = {"none": 0, "one": 1, "few": 2}.get(str(how), 0)
    chosen = [ranks[place] for place in rng.permutation(len(ranks))[:number]]
    if how == "node":
        chosen = [each for each in ranks if each[0] == ranks[-1][0]]
    by_waits = bool(rng.random() < 0.4)
    return {each: (float(rng.uniform(1.6, 2.5)), by_waits) for each in chosen}


def _rows(rng: Generator, job: Drawn, plan: Plan, factor: float, *, by_waits: bool) -> Iterator[Row]:
    """Yield the events of a training process, steps of which every so many are slow."""
    pid = int(rng.integers(100, 999))
    if plan.loads:
        yield _row(LOADER_SETUP, 1.0, 0.2, {"pid": pid, "num_workers": plan.workers, "pin_memory": rng.random() < 0.5})
    at, number = 0.04 * job.seconds, 0
    while at < job.seconds - 20.0 * plan.pace:
        wait = plan.pace * plan.wait * (factor if by_waits else 1.0) * float(rng.uniform(0.9, 1.1))
        if plan.loads:
            yield _row(LOADER, at, wait, {"pid": pid, "worker_id": number % max(plan.workers, 1)})
        length = plan.pace * float(rng.uniform(0.95, 1.05))
        start, more = at + wait, 0.0
        if number % plan.every == plan.every - 1:
            more = plan.pace * (plan.slow - 1.0)
        forward = min(length * plan.forward * (1.0 if by_waits else factor), 0.9 * length)
        for row in _passes(rng, plan, start, forward, length, more):
            yield row
        yield _row(STEP, start, length + more, {"pid": pid, "step_num": str(number)})
        for row in _beside(rng, plan, start, length, int((START + start) // 60.0)):
            yield row
        at, number = start + length + more + 0.01 * plan.pace, number + 1


def _with_waits(rows: Iterator[Row], rng: Generator, share: float) -> Iterator[Row]:
    """Yield events, and waits for peers at the ends of backward passes."""
    for row in rows:
        yield row
        if row["name"] == BACKWARD:
            length = share * float(rng.uniform(0.8, 1.0)) * row["dur"] / 1e6
            yield _row(PEER_WAIT, (row["ts"] + row["dur"]) / 1e6 - length, length)


def _passes(rng: Generator, plan: Plan, start: float, forward: float, length: float, more: float) -> Iterator[Row]:
    """Yield the passes of a step, with what is nested in them, and what makes it slow."""
    yield _row(FORWARD, start + 0.001, forward)
    yield _row(FORWARD, start + 0.001 + 0.2 * forward, 0.3 * forward, {}, "layer1")
    yield _row(ON_GPU, start + 0.002, min(forward * float(rng.uniform(0.8, 1.2)), 0.9 * length), {}, "forward")
    if plan.operators:
        for each in range(3):
            yield _row(ON_CPU, start + 0.002 + 0.3 * each * forward, 0.25 * forward, {}, f"aten::op{each}")
            yield _row(ON_CPU, start + 0.003 + 0.3 * each * forward, 0.1 * forward, {}, "aten::copy_")
    rest = max(0.99 * length - forward - 0.002, 0.01 * length)
    yield _row(BACKWARD, start + 0.002 + forward, 0.6 * rest)
    yield _row(OPTIMIZER, start + 0.002 + forward + 0.6 * rest, 0.2 * rest)
    if more > 0.0:
        yield _row(plan.kind, start + length, 0.95 * more, {"pid": 1} if plan.kind == LOADER else {})


def _beside(rng: Generator, plan: Plan, start: float, length: float, minute: int) -> Iterator[Row]:
    """Yield what runs on threads of its own: in some minutes much, in others little of it."""
    shares = np.random.default_rng(minute // 7 if plan.minutely else 0).dirichlet(np.full(len(BESIDE), 0.25))
    for thread, (phase, share) in enumerate(zip(BESIDE, shares.tolist(), strict=True), 10):
        if share > 0.02 and rng.random() < 0.7:
            yield _row(phase, start + 0.01 * length, share * length, {}, phase, thread)


def _fetches(rng: Generator, job: Drawn, plan: Plan) -> Iterator[Row]:
    at = 0.04 * job.seconds
    while at < job.seconds - 20.0 * plan.pace:
        length = plan.pace * float(rng.lognormal(-1.0, 0.4))
        worker = int(rng.integers(0, plan.workers))
        yield _row(WORKER, at, length, {"pid": 5_000 + worker, "worker_id": worker}, "DataLoaderWorker::Fetch", worker)
        at += plan.pace


def _row(
    phase: str, at: float, seconds: float, arguments: Row | None = None, name: str | None = None, thread: int = 0
) -> Row:
    return {
        "name": name or phase,
        "ph": "X",
        "pid": PHASES.index(phase) + 1,
        "tid": thread,
        "ts": round(1e6 * at),
        "dur": max(round(1e6 * seconds), 1),
        "args": arguments or {},
    }


def _write(rows: Iterator[Row], folder: Path, process: str, node: int, file_s: float) -> None:
    """Write the files of a process; an event is in that of the time in which it ends."""
    origin = round(START * 1e6)
    heads: list[Row] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": origin}},
        *({"name": "process_name", "ph": "M", "pid": at, "args": {"name": name}} for at, name in enumerate(PHASES, 1)),
    ]
    files: dict[int, list[Row]] = {}
    for row in sorted(rows, key=_end):
        files.setdefault((origin + _end(row)) // round(1e6 * file_s), []).append(row)
    for part in files.values():
        last = origin + _end(part[-1])
        place = folder / "profiler-output" / "framework" / "pevents" / hour_of(last / 1e6)
        place.mkdir(parents=True, exist_ok=True)
        text = ",\n".join(map(json.dumps, [*heads, *part]))
        (place / f"{last}_{process}-algo-{node}_pythontimeline.json").write_text(f"[\n{text}\n]")


def _end(row: Row) -> int:
    return int(row["ts"]) + int(row["dur"])
