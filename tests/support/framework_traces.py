"""Builds framework objects as their writers do, and reads them."""

import json
from collections.abc import Iterable
from typing import Any

from trainguard.formats.profile.columns import FrameworkEvents, read_framework_object

# A full minute, epoch microseconds: what the times of these traces are relative to.
START_US = 1_795_248_000_000_000

SECOND = 1_000_000
TRAIN = "Step:ModeKeys.TRAIN"


def event(phase: str, name: str, start_s: float, duration_s: float, **args: Any) -> dict[str, Any]:
    """Return a complete event of a phase; seconds since START_US."""
    times = {"ts": round(start_s * SECOND), "dur": round(duration_s * SECOND)}
    return {"phase": phase, "name": name, "ph": "X", **times, **({"args": args} if args else {})}


def step(number: int, start_s: float, duration_s: float, mode: str = TRAIN) -> dict[str, Any]:
    """Return a training step of process 905."""
    return event(mode, mode, start_s, duration_s, pid=905, step_num=str(number))


def timeline(events: Iterable[dict[str, Any]], *, closed: bool = True) -> bytes:
    """Return the body of an object: metadata first, one event on a line; ``phase`` becomes the file's own id."""
    lines: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": START_US}}
    ]
    phases: dict[str, int] = {}
    for each in events:
        phase = each.get("phase", "")
        if phase not in phases:
            phases[phase] = len(phases) + 1
            lines.append({"name": "process_name", "ph": "M", "pid": phases[phase], "args": {"name": phase}})
        lines.append({**{key: value for key, value in each.items() if key != "phase"}, "pid": phases[phase]})
    return ("[\n" + ",\n".join(json.dumps(line) for line in lines) + ("\n]" if closed else ",\n")).encode()


def read(
    events: Iterable[dict[str, Any]], *, process: str = "algo-1-905", kind: str = "pythontimeline"
) -> FrameworkEvents:
    """Read events as one object of a process."""
    return read_framework_object(
        "the/key", timeline(events), process=process, end_us=START_US + 100_000 * SECOND, kind=kind
    )
