"""Writes the framework events of a described job: Chrome trace arrays, a file for each minute of a process."""

import json
import time
from pathlib import Path
from typing import Any

from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.steps import Step, training_steps

STEP = "Step:ModeKeys.TRAIN"
LOADER = "DataLoaderIter"
LOADER_SETUP = "DataLoaderIterInitialize"
FORWARD = "Forward-SubModuleInternal"
_PHASES = {STEP: 1, LOADER: 2, LOADER_SETUP: 3, FORWARD: 4}
_PROCESS = 84
_FILE_US = 60_000_000

Event = dict[str, Any]


def write_timelines(job: Job, start: float, profile: Path) -> None:
    """Write the events of one process on each node, or of each rank; ``start`` is the job's, epoch seconds."""
    if job.steps is not None and job.steps.ranks:
        write_ranks(job, start, profile)
        return
    origin_us = round(start * 1e6)
    files: dict[int, list[Event]] = {}
    for event in _events(job):
        files.setdefault((origin_us + _end(event)) // _FILE_US, []).append(event)
    for node in range(1, job.nodes + 1):
        for events in files.values():
            last_us = origin_us + max(map(_end, events))
            hour = time.strftime("%Y%m%d%H", time.gmtime(last_us / 1e6))
            file = profile / "framework" / "pevents" / hour / f"{last_us}_{_PROCESS}-algo-{node}_pythontimeline.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("[\n" + ",\n".join(map(json.dumps, [*_heads(origin_us), *events])) + "\n]")


def _end(event: Event) -> int:
    return int(event["ts"]) + int(event["dur"])


def _heads(origin_us: int) -> list[Event]:
    rows: list[Event] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": origin_us}},
        {"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
    ]
    for phase, number in _PHASES.items():
        rows.append({"name": "process_name", "ph": "M", "pid": number, "args": {"name": phase}})
        rows.append({"name": "process_sort_index", "ph": "M", "pid": number, "args": {"sort_index": number}})
    return rows


def _events(job: Job) -> list[Event]:
    plan = job.steps
    if plan is None:
        return []
    events: list[Event] = []
    if plan.workers:
        args = {"pid": _PROCESS, "num_workers": plan.workers, "pin_memory": True}
        name = "_MultiProcessingDataLoaderIter.__init__"
        events.append(_event(LOADER_SETUP, name, 60.0 * plan.first_min - 1.0, 0.4, args))
    for step in training_steps(job):
        events.append(_event(STEP, STEP, step.start_s, step.duration_s, _step_args(step)))
        if plan.workers:
            args = {"pid": _PROCESS, "worker_id": step.number % plan.workers}
            ended = step.start_s + step.duration_s
            events.append(_event(LOADER, "DataLoaderIter::GetNext", ended, plan.fetch_s, args))
    return events


def _step_args(step: Step) -> dict[str, Any]:
    return {"pid": _PROCESS, "step_num": str(step.number)}


def _event(phase: str, name: str, start_s: float, duration_s: float, args: dict[str, Any]) -> Event:
    start, duration = round(start_s * 1e6), max(1, round(duration_s * 1e6))
    return {"name": name, "pid": _PHASES[phase], "ph": "X", "ts": start, "dur": duration, "args": args}


def write_ranks(job: Job, start: float, profile: Path) -> None:
    """Write the steps of each rank, with the forward pass that is its own work in a step."""
    origin_us = round(start * 1e6)
    heads = [json.dumps(each) for each in _heads(origin_us)]
    for rank in range(job.nodes * job.machine.gpus):
        node = rank // job.machine.gpus + 1
        files: dict[int, list[Event]] = {}
        for event in _events_of_rank(job, rank):
            files.setdefault((origin_us + _end(event)) // _FILE_US, []).append(event)
        for events in files.values():
            last_us = origin_us + max(map(_end, events))
            hour = time.strftime("%Y%m%d%H", time.gmtime(last_us / 1e6))
            file = profile / "framework" / "pevents" / hour / f"{last_us}_rank{rank}-algo-{node}_pythontimeline.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("[\n" + ",\n".join([*heads, *map(json.dumps, events)]) + "\n]")


def _events_of_rank(job: Job, rank: int) -> list[Event]:
    plan = job.steps
    if plan is None:
        return []
    events: list[Event] = []
    for step in training_steps(job):
        factors = [factor for each, factor, since in plan.slow_ranks if each == rank and step.start_s >= 60.0 * since]
        events.append(_event(FORWARD, "forward", step.start_s + 0.01, plan.forward_s * max(factors, default=1.0), {}))
        events.append(_event(STEP, STEP, step.start_s, step.duration_s, _step_args(step)))
    return events
