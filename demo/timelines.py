"""The objects of framework events: Chrome trace arrays, rotated as the hook rotates them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from demo.samples import MICROSECONDS, Phase, ProcessTimeline

CLOSE_INTERVAL_US = 60 * MICROSECONDS
MAX_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TimelineFile:
    """One object: the end of its last event (epoch µs, its name), what it holds, and when it was closed (epoch µs)."""

    last_end_us: int
    body: bytes
    closed_us: int


def timeline_files(
    process: ProcessTimeline, phases: Sequence[Phase], *, start: int, closed_us: int, max_bytes: int = MAX_BYTES
) -> Iterator[TimelineFile]:
    """Yield the files of a process, whose times count from ``start``, in the order in which they were closed.

    An event is written when it ends. A file is closed by the first event more than 60 s after the last closing, or
    after the file has grown over ``max_bytes``, the last one at ``closed_us``, microseconds since ``start``.
    """
    origin_us = start * MICROSECONDS
    opened_us = origin_us + process.opened_us
    trace = _Trace(base_us=opened_us, pid=process.pid)
    last_closed_us = opened_us
    last_end_us = 0
    events = zip(process.starts_us, process.durations_us, process.phases, process.steps, strict=True)
    for start_us, duration_us, phase, step in events:
        end_us = origin_us + int(start_us) + int(duration_us)
        if trace.events and (end_us - last_closed_us > CLOSE_INTERVAL_US or trace.size > max_bytes):
            yield TimelineFile(last_end_us, trace.close(), end_us)
            last_closed_us = end_us
        trace.add(phases[phase], origin_us + int(start_us), int(duration_us), int(step))
        last_end_us = end_us
    if trace.events:
        yield TimelineFile(last_end_us, trace.close(), origin_us + closed_us)


@dataclass(slots=True)
class _Trace:
    base_us: int
    pid: int
    events: int = 0
    size: int = 0
    _lines: list[str] = field(default_factory=list)
    _ids: dict[str, int] = field(default_factory=dict)
    _named: set[str] = field(default_factory=set)

    def add(self, phase: Phase, start_us: int, duration_us: int, step: int) -> None:
        if not self._lines:
            self._name(0, {"start_time_since_epoch_in_micros": self.base_us})
        phase_id = self._ids.setdefault(phase.phase, len(self._ids) + 1)
        if phase.phase not in self._named:
            self._named.add(phase.phase)
            self._name(phase_id, {"name": phase.phase})
        args = {"pid": self.pid, **phase.args} | ({"step_num": str(step)} if step >= 0 else {})
        timing = {"ts": start_us - self.base_us, "dur": duration_us}
        self._write({"name": phase.name, "pid": phase_id, "ph": "X", **timing, "args": args})
        self.events += 1

    def close(self) -> bytes:
        body = "[\n" + ",\n".join(self._lines) + "\n]\n"
        self._lines.clear()
        self._named.clear()
        self.events = self.size = 0
        return body.encode()

    def _name(self, phase_id: int, args: dict[str, Any]) -> None:
        self._write({"name": "process_name", "ph": "M", "pid": phase_id, "args": args})
        self._write({"name": "process_sort_index", "ph": "M", "pid": phase_id, "args": {"sort_index": phase_id}})

    def _write(self, event: dict[str, Any]) -> None:
        line = json.dumps(event)
        self.size += len(line) + 2
        self._lines.append(line)
