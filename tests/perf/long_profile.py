"""Profiles of many hours on disk, cheaply: a few distinct minutes, with new times for every minute of the job."""

import json
import os
import re
from itertools import islice
from pathlib import Path

import numpy as np

from demo.synthesis import minute_of_node
from trainguard.core.layout import hour_folder
from trainguard.formats.profile.keys import MINUTE_S

START = 1_795_248_000
CORES, GPUS, INTERVAL_MS = 96, 8, 500
_DISTINCT = 20
_TIME = re.compile(rb'"Timestamp":(\d{10})')
_DIGITS = 10
_STEP_US = 390_000
_PARTS = (("Forward", 0.35), ("Backward(post-forward)", 0.45))
_SUBMODULES = 7


def write_hours(folder: Path, hours: int) -> Path:
    """Write a profile of one node with 96 cores and 8 GPUs at 500 ms, and of one process's 1,500 events a minute."""
    root = folder / "job" / "profiler-output"
    minutes = [_Minute(minute_of_node(minute=START, seed=seed)) for seed in range(_DISTINCT)]
    for index in range(60 * hours):
        minute = START + MINUTE_S * index
        place = root / "system" / "incremental" / hour_folder(minute)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{minute}.algo-1.json").write_bytes(minutes[index % _DISTINCT].at(minute))
        end_us, body = _timeline(minute, index)
        place = root / "framework" / "pevents" / hour_folder(end_us // 1_000_000)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{end_us}_100-algo-1_pythontimeline.json").write_bytes(body)
    return root


def first_hours(root: Path, folder: Path, hours: int) -> Path:
    """Link the first hours of a profile into another folder."""
    shorter = folder / "job" / "profiler-output"
    for stream in ("system/incremental", "framework/pevents"):
        files = sorted((root / stream).rglob("*.json"), key=lambda file: file.name)
        for file in islice(files, 60 * hours):
            link = shorter / file.relative_to(root)
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, link)
    return shorter


class _Minute:
    """The bytes of a minute whose whole seconds can be replaced."""

    def __init__(self, body: bytes) -> None:
        found = list(_TIME.finditer(body))
        self._bytes = np.frombuffer(body, dtype=np.uint8).copy()
        self._places = np.array([match.start(1) for match in found])[:, None] + np.arange(_DIGITS)
        self._seconds = np.array([int(match[1]) for match in found]) - START

    def at(self, minute: int) -> bytes:
        powers = 10 ** np.arange(_DIGITS - 1, -1, -1)
        self._bytes[self._places] = (self._seconds + minute)[:, None] // powers % 10 + ord("0")
        return self._bytes.tobytes()


def _timeline(minute: int, index: int) -> tuple[int, bytes]:
    """Return the end of the last step of a minute, µs, and the object of its events."""
    phases = ["Step:ModeKeys.TRAIN", *(name for name, _ in _PARTS), "Forward-SubModuleInternal"]
    rows = [_meta("process_name", 0, {"start_time_since_epoch_in_micros": START * 1_000_000})]
    rows += [_meta("process_name", place, {"name": name}) for place, name in enumerate(phases, start=1)]
    rng = np.random.default_rng(index)
    begin, last = (minute - START) * 1_000_000 + 1_000, 0
    for step, took in enumerate(rng.normal(_STEP_US - 10_000, 5_000, MINUTE_S * 1_000_000 // _STEP_US - 1)):
        at, number = begin + step * _STEP_US, index * 1_000 + step
        last = at + round(took)
        rows.append(_event(phases[0], 1, at, took, number))
        offset = 0.0
        for place, (name, share) in enumerate(_PARTS, start=2):
            rows.append(_event(name, place, at + offset, took * share, number))
            offset += took * share
        width = took * _PARTS[0][1] / _SUBMODULES
        rows += [_event(f"layer{k}", 4, at + k * width, width, number) for k in range(_SUBMODULES)]
    return START * 1_000_000 + last, ("[\n" + ",\n".join(json.dumps(row) for row in rows) + "]\n").encode()


def _meta(name: str, pid: int, args: dict[str, object]) -> dict[str, object]:
    return {"name": name, "ph": "M", "pid": pid, "args": args}


def _event(name: str, pid: int, at: float, took: float, step: int) -> dict[str, object]:
    args = {"pid": 100, "step_num": str(step)}
    return {"name": name, "pid": pid, "ph": "X", "ts": round(at), "dur": round(took), "args": args}
