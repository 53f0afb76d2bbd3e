"""The events of a training process: kept as tuples in a step, and written as lines at its end."""

import json
import os
import re
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Callable, Optional

from trainguard_collector.objects import TimelineFile
from trainguard_collector.recorder.harmless import Faults

STEP = "Step:ModeKeys"
MODES = ("TRAIN", "EVAL", "PREDICT", "GLOBAL")
# Steps of this length and longer are each written as they end, so that a process that hangs has written its newest
# one: `trainguard.rules.hung_job.state` relies on it. Shorter ones are written together.
FLUSH_NS = 10_000_000

# Further events are dropped and counted.
MOST_WAITING = 8_192

MOST_LABELS, MOST_NAMES = 200, 800
LONGEST_LABEL = 128
OTHER = "other"
_LARGEST_JUMP_NS = 50_000_000
# Readers take such phases for operators or steps.
_CLASSIFIED = re.compile("cpu|gpu|step", re.IGNORECASE)

DATA_WAIT, LOADER_SETUP = "data_wait", "loader_setup"
FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
CHECKPOINT, EVALUATION = "checkpoint", "evaluation"
PEER_WAIT = "peer_wait"
_MANAGED = {
    DATA_WAIT: "DataLoaderIter",
    LOADER_SETUP: "DataLoaderIterInitialize",
    FORWARD: "Forward-SubModuleInternal",
    BACKWARD: "Backward-SubModuleInternal",
    OPTIMIZER: "Optimizer",
    CHECKPOINT: "Checkpoint",
    EVALUATION: "Evaluation",
}


# Label, name, beginning and end in nanoseconds of the monotonic clock, arguments as JSON, and a thread.
#
# A plain tuple: it is made several times a step.
TimedEvent = tuple[str, str, int, int, str, int]


class EventLog:
    """The events of one process on their way to its timeline.

    ``file`` gets the first lines, and is called once, at the first flush. Times are relative to ``origin_us``, epoch
    microseconds, by default now; processes whose lines are put together have one.
    """

    def __init__(
        self,
        file: "Callable[[Callable[[], bytes]], TimelineFile]",
        faults: Faults,
        *,
        origin_us: Optional[int] = None,
    ) -> None:
        self._open_file, self._faults = file, faults
        self._file: Optional[TimelineFile] = None
        self._events: list[TimedEvent] = []
        self._lines: list[bytes] = []
        self._kept = 0
        self._labels: dict[str, int] = {}
        self._starts: dict[tuple[str, str], str] = {}
        self._flushed_ns = time.monotonic_ns()
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        now_us = (self._offset_ns + self._flushed_ns) // 1_000
        self.origin_us = now_us if origin_us is None else origin_us
        self.dropped = 0
        self.is_on = True
        self.add = self._events.append

    def record(self, event: TimedEvent) -> None:
        if self.is_on:
            self.add(event)
            self.flush_if_due(event[3])

    def flush_if_due(self, now_ns: int) -> None:
        """Write the events, if the last time was `FLUSH_NS` ago, or the sampler was reading then."""
        if now_ns - self._flushed_ns >= FLUSH_NS or self._lines or len(self._events) >= MOST_WAITING // 2:
            self.flush(now_ns)

    def flush(self, now_ns: int) -> None:
        """Write the events; what the disk does not take is counted in ``dropped``."""
        self._flushed_ns = now_ns
        offset_ns = time.time_ns() - now_ns
        if abs(offset_ns - self._offset_ns) > _LARGEST_JUMP_NS:  # small corrections would make events overlap
            self._offset_ns = offset_ns
        events = self._events[:]
        del self._events[: len(events)]
        room = MOST_WAITING - self._kept
        if len(events) > room:
            self.dropped += len(events) - room
            events = events[:room]
        if events:
            self._lines.append(self._encode(events))
            self._kept += len(events)
        if not self._lines:
            return
        try:
            if self._file is None:
                self._file = self._open_file(self._header)
            if not self._file.append(b"".join(self._lines)):
                return
        except OSError as fault:
            self._faults.add("timeline", fault)
            self.dropped += self._kept
        self._lines.clear()
        self._kept = 0

    def close(self) -> None:
        self.is_on = False
        for _ in range(20):
            self.flush(time.monotonic_ns())
            if not self._lines:
                break
            time.sleep(0.01)  # the sampler is reading
        if self._file is not None:
            self._file.close()

    def monotonic_ns(self, epoch_ns: int) -> int:
        return epoch_ns - self._offset_ns

    def _encode(self, events: Iterable[TimedEvent]) -> bytes:
        shift_ns = self._offset_ns - self.origin_us * 1_000
        lines: list[str] = []
        starts = self._starts
        for label, name, began_ns, ended_ns, arguments, thread in events:
            start = starts.get((label, name))
            if start is None:
                start = self._start(label, name, lines)
            ts = (began_ns + shift_ns) // 1_000
            dur = (ended_ns + shift_ns) // 1_000 - ts
            if ts < 0 or dur < 0:
                self.dropped += 1  # the clock was set back
            elif arguments:
                lines.append(f'{start}{thread},"ts":{ts},"dur":{dur},"args":{arguments}}},\n')
            else:
                lines.append(f'{start}{thread},"ts":{ts},"dur":{dur}}},\n')
        return "".join(lines).encode()

    def _start(self, label: str, name: str, lines: "list[str]") -> str:
        """Return how the line of such an event begins; of more names than there is room for, OTHER."""
        number = self._labels.get(label)
        if number is None:
            number = self._number(label, lines)
        if len(self._starts) >= MOST_NAMES:
            return f'{{"name":"{OTHER}","ph":"X","pid":{number},"tid":'
        start = f'{{"name":{json.dumps(name[:LONGEST_LABEL])},"ph":"X","pid":{number},"tid":'
        self._starts[label, name] = start
        return start

    def _number(self, label: str, lines: "list[str]") -> int:
        if len(self._labels) >= MOST_LABELS:
            label = OTHER
            if label in self._labels:
                return self._labels[label]
        number = self._labels[label] = len(self._labels) + 1
        lines.append(_metadata(number, label))
        return number

    def _header(self) -> bytes:
        origin = {"start_time_since_epoch_in_micros": self.origin_us, "os_pid": os.getpid()}
        first = json.dumps({"name": "process_name", "ph": "M", "pid": 0, "args": origin})
        known = [_metadata(number, label) for label, number in self._labels.items()]
        return "".join([f"{first},\n", *known]).encode()


def _metadata(number: int, label: str) -> str:
    named = {"name": "process_name", "ph": "M", "pid": number, "args": {"name": label}}
    return json.dumps(named) + ",\n"


@lru_cache(maxsize=1_024)
def label_of(phase: str) -> str:
    """Return the label of a phase: the managed profiler's, or the phase's own name where readers take it as it is."""
    found = _MANAGED.get(phase)
    if found is not None:
        return found
    return "Phases" if _CLASSIFIED.search(phase) else phase[:LONGEST_LABEL]
