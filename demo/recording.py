"""Recorded training jobs, which expand to the same objects each time, in a few hundred kilobytes a job."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demo.samples import MICROSECONDS, MINUTE_S, Integers, NodeSamples, Phase, ProcessTimeline, columns
from demo.uploads import RecordedObject, end_marks, minute_files, process_files

_FORMAT = 1


class RecordingError(ValueError):
    """A recording that cannot be read or used: names it, the field and what would be right."""

    def __init__(self, recording: object, field: str, value: object, expected: str) -> None:
        super().__init__(f"recording {recording}: {field} is {value!r}, expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recorded job.

    ``start`` is the epoch second of the samplers' first minute, ``ended_us`` microseconds from there to the marks of
    the end. `ProcessTimeline.phases` points to ``phases``.
    """

    instance_type: str
    interval_ms: int
    start: int
    ended_us: int
    phases: tuple[Phase, ...]
    nodes: tuple[NodeSamples, ...]
    processes: tuple[ProcessTimeline, ...]

    @property
    def cores(self) -> int:
        return int(self.nodes[0].busy.shape[1])

    @property
    def gpus(self) -> int:
        return int(self.nodes[0].gpu.shape[1])

    @property
    def ended_s(self) -> float:
        return self.ended_us / MICROSECONDS

    @classmethod
    def load(cls, path: Path) -> "Recording":
        """Read a recording; raises RecordingError when the file has another format."""
        with np.load(path, allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].tobytes()) if "about" in arrays else {}
            if about.get("format") != _FORMAT:
                raise RecordingError(path, "format", about.get("format"), str(_FORMAT))
            return cls(
                **{name: about[name] for name in ("instance_type", "interval_ms", "start", "ended_us")},
                phases=tuple(Phase(**phase) for phase in about["phases"]),
                nodes=tuple(_load_node(arrays, index, about["interval_ms"]) for index in range(about["nodes"])),
                processes=tuple(
                    ProcessTimeline(**process, **_of(arrays, f"process{index}"))
                    for index, process in enumerate(about["processes"])
                ),
            )

    def save(self, path: Path) -> None:
        """Write the recording; equal recordings give equal bytes."""
        about = {
            "format": _FORMAT,
            "instance_type": self.instance_type,
            "interval_ms": self.interval_ms,
            "start": self.start,
            "ended_us": self.ended_us,
            "phases": [asdict(phase) for phase in self.phases],
            "nodes": len(self.nodes),
            "processes": [{name: getattr(p, name) for name in ("node", "pid", "opened_us")} for p in self.processes],
        }
        arrays: dict[str, Integers] = {"about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)}
        for index, node in enumerate(self.nodes):
            saved = columns(node)
            saved["ticks_us"] = _drift(node.ticks_us, self.interval_ms)
            arrays |= {f"node{index}.{name}": column for name, column in saved.items()}
        for index, process in enumerate(self.processes):
            arrays |= {f"process{index}.{name}": column for name, column in columns(process).items()}
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    def until(self, elapsed_s: float) -> "Recording":
        """Return the job as if it had been stopped ``elapsed_s`` seconds after the start; raises RecordingError.

        The open minute's object appears 1 s later, the marks of the end 3 s after it, as when a container is stopped.
        """
        stop_us = round(elapsed_s * MICROSECONDS)
        if not self.nodes[0].ticks_us[0] < stop_us < self.ended_us:
            raise RecordingError("of a job", "stop", f"{elapsed_s} s", f"a time within its {self.ended_s} s")
        return replace(
            self,
            ended_us=stop_us + 4 * MICROSECONDS,
            nodes=tuple(node.until(stop_us) for node in self.nodes),
            processes=tuple(process.until(stop_us) for process in self.processes),
        )

    def objects(self, job: str, *, prefix: str = "", start: int | None = None) -> Iterator[RecordedObject]:
        """Yield the objects of the job's profile in the order in which they appear in the bucket.

        ``prefix`` ends with a slash, or is empty. ``start`` is an epoch second on the minute, else RecordingError; by
        default the recording's own.
        """
        begin = self.start if start is None else start
        if begin % MINUTE_S:
            raise RecordingError(job, "start", begin, "an epoch second on the minute")
        root = f"{prefix}{job}/profiler-output"
        uploads = [
            *minute_files(self.nodes, root=root, start=begin),
            *process_files(self.processes, self.phases, root=root, start=begin, ended_us=self.ended_us),
            *end_marks(root=root, start=begin, ended_us=self.ended_us),
        ]
        for appears_at, key, make in sorted(uploads, key=lambda upload: upload[:2]):
            yield RecordedObject(key, make(), appears_at)


def _of(arrays: Mapping[str, Any], owner: str) -> dict[str, Any]:
    return {name.partition(".")[2]: arrays[name] for name in arrays if name.startswith(f"{owner}.")}


def _load_node(arrays: Mapping[str, Any], index: int, interval_ms: int) -> NodeSamples:
    saved = _of(arrays, f"node{index}")
    saved["ticks_us"] = np.cumsum(saved["ticks_us"].astype(np.int64) + interval_ms * 1_000)
    return NodeSamples(**saved)


def _drift(ticks_us: NDArray[np.int64], interval_ms: int) -> NDArray[np.int32]:
    """Return how far snapshots strayed from their period: small numbers, which compress well."""
    return (np.diff(ticks_us, prepend=0) - interval_ms * 1_000).astype(np.int32)
