"""Writes small profiles as folders on disk, in the layout and formats that training jobs upload."""

import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trainguard.core.layout import hour_folder

# A full minute, epoch seconds.
START = 1_700_276_760

TRAIN = "Step:ModeKeys.TRAIN"
EVAL = "Step:ModeKeys.EVAL"

Column = float | Sequence[float] | np.ndarray[Any, Any]


def ticks(minutes: float, *, every_s: float = 5.0, first_s: float = 1.0) -> np.ndarray[Any, Any]:
    """Return the seconds of a sampler's snapshots: float64[T], none of them on a full minute by default."""
    return np.arange(first_s, 60.0 * minutes, every_s)


def event(phase: str, name: str, start_s: float, duration_s: float, **args: Any) -> dict[str, Any]:
    """Return a complete event; times in seconds since START; `trace` turns ``phase`` into the file's own id."""
    return {
        "phase": phase,
        "name": name,
        "ph": "X",
        "ts": round(start_s * 1e6),
        "dur": round(duration_s * 1e6),
        "args": args,
    }


def step(number: int, start_s: float, duration_s: float, *, mode: str = TRAIN, pid: int = 100) -> dict[str, Any]:
    """Return a training step."""
    return event(mode, mode, start_s, duration_s, pid=pid, step_num=str(number))


@dataclass
class ProfileFolder:
    """A ``profiler-output`` folder under ``root``."""

    root: Path
    files: list[Path] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The folder."""
        return self.root / "job" / "profiler-output"

    def write(self, name: str, text: str | bytes) -> Path:
        """Write one file, ``name`` relative to the folder."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.files.append(file)
        return file

    def system(
        self, times: Sequence[float] | np.ndarray[Any, Any], columns: Mapping[str, Column], *, node: str = "algo-1"
    ) -> None:
        """Write a node's minutes.

        Parameters
        ----------
        times : float[T]
            Seconds since START of each snapshot.
        columns : mapping of str to float or float[T]
            By series: ``cpu0``, ``gpu0``, ``gpu0_memory``, ``cpu0_io``, ``memory``, ``network``; NaN is no sample. A
            name may end in ``@0.03`` to be sampled that many seconds later.
        node : str
        """
        instants = np.asarray(times, dtype=np.float64)
        values = {
            name: np.broadcast_to(np.asarray(column, dtype=np.float64), instants.shape)
            for name, column in columns.items()
        }
        minutes: dict[int, list[str]] = {}
        for index, instant in enumerate(instants.tolist()):
            for name, column in values.items():
                if np.isnan(column[index]):
                    continue
                series, _, later = name.partition("@")
                time = START + instant + float(later or 0.0)
                minutes.setdefault(int(time // 60) * 60, []).append(line(series, float(column[index]), time, node))
        for minute, lines in minutes.items():
            self.write(f"system/incremental/{hour_folder(minute)}/{minute}.{node}.json", "".join(lines))

    def timeline(
        self,
        events: Iterable[Mapping[str, Any]],
        *,
        pid: int | str = 100,
        node: str = "algo-1",
        kind: str = "pythontimeline",
        every_s: float = 60.0,
    ) -> None:
        """Write a process's events, a file for every ``every_s`` seconds of their ends."""
        files: dict[int, list[Mapping[str, Any]]] = {}
        for each in events:
            end = each["ts"] + each.get("dur", 0)
            files.setdefault(int(end // (every_s * 1e6)), []).append(each)
        for _, members in sorted(files.items()):
            end_us = START * 1_000_000 + max(each["ts"] + each.get("dur", 0) for each in members)
            folder = hour_folder(end_us // 1_000_000)
            self.write(f"framework/pevents/{folder}/{end_us}_{pid}-{node}_{kind}.json", trace(members))

    def tensorflow(
        self, events: Iterable[Mapping[str, Any]], span_s: tuple[float, float], *, node: str, metadata: bool = True
    ) -> None:
        """Write a node's trace of TensorFlow's profiler of one step, and the metadata that tells its span.

        Times of ``events`` are in seconds since the span's beginning.
        """
        folder = f"framework/tensorflow/detailed_profiling/{hour_folder(START)}/000000009"
        rows = [row for row in json.loads(trace(list(events))) if "start_time_since_epoch_in_micros" not in str(row)]
        body = gzip.compress(json.dumps({"traceEvents": rows}).encode())
        self.write(f"{folder}/plugins/profile/run/{node}.trace.json.gz", body)
        if metadata:
            begin, end = (START * 1_000_000 + round(at * 1e6) for at in span_s)
            self.write(f"{folder}/{node}_{begin}_{end}.metadata", b"")

    def change(self, name: str, edit: Callable[[str], str]) -> None:
        """Rewrite the files whose paths contain ``name``."""
        for file in self.files:
            if name in str(file.relative_to(self.path)):
                file.write_text(edit(file.read_text()))

    def lines(self, name: str) -> list[str]:
        """Return the lines of the files whose paths contain ``name``."""
        chosen = (file for file in self.files if name in str(file.relative_to(self.path)))
        return [each for file in chosen for each in file.read_text().splitlines()]

    def end(self) -> None:
        """Write the marks of the job's end."""
        self.write("system/training_job_end.ts", b"")
        self.write("framework/training_job_end.ts", b"")


def line(series: str, value: float, time: float, node: str) -> str:
    """Return one line of system metrics."""
    name, _, what = series.partition("_")
    kind, dimension = {
        ("cpu", ""): ("cpu", "CPUUtilization"),
        ("cpu", "io"): ("cpu", "I/OWaitPercentage"),
        ("gpu", ""): ("gpu", "GPUUtilization"),
        ("gpu", "memory"): ("gpu", "GPUMemoryUtilization"),
        ("mem", ""): ("memory", ""),
        ("net", ""): ("network", "Algorithm"),
    }[series[:3], what]
    if kind == "memory":
        name = "MemoryUsedPercent"
    if kind == "network":
        name = "ReceiveBytesPerSecond"
    fields = {"Type": kind, "Name": name, "Dimension": dimension, "Value": value, "NodeId": node, "Timestamp": time}
    return json.dumps(fields) + "\n"


def trace(events: Sequence[Mapping[str, Any]]) -> str:
    """Return a Chrome trace array whose times are relative to START."""
    phases: dict[str, int] = {}
    rows: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": START * 1_000_000}}
    ]
    for each in events:
        phase = each["phase"]
        if phase not in phases:
            phases[phase] = len(phases) + 1
            rows.append({"name": "process_name", "ph": "M", "pid": phases[phase], "args": {"name": phase}})
        rows.append({**{key: value for key, value in each.items() if key != "phase"}, "pid": phases[phase]})
    return "[" + ",\n".join(json.dumps(row) for row in rows) + "]"
