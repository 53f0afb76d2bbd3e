"""A kernel trace of one GPU, read from its JSON, cut at every edge of an event: each part is wholly in an event or out.

So a union, a difference or an overlap is a mask of the parts, and its length the sum of theirs, in whole nanoseconds.
"""

import json
import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.claims.raw import Flags, Floats

Ints = NDArray[np.int64]

_STEP = re.compile(r"ProfilerStep#(\d+)")
LOADER = "enumerate(DataLoader)"
BLOCKING = {"cudaMemcpy"}
OF_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
CALLS = {"cuda_runtime", "cuda_driver"}


@dataclass(frozen=True)
class Event:
    """An event: nanoseconds, and what its arguments say."""

    category: str
    name: str
    start: int
    end: int
    arguments: dict[str, Any]

    @property
    def lasts(self) -> int:
        """How long it takes."""
        return self.end - self.start

    @property
    def sends(self) -> bool:
        """Whether it is a kernel that communicates."""
        return self.category == "kernel" and self.name.startswith("nccl")

    @property
    def computes(self) -> bool:
        """Whether it is another kernel."""
        return self.category == "kernel" and not self.sends

    @property
    def copies(self) -> bool:
        """Whether it copies or sets memory."""
        return self.category in {"gpu_memcpy", "gpu_memset"}


class KernelTrace:
    """The events of a trace, and its window: from the first step's start to the end of the last one and its work."""

    def __init__(self, file: Path) -> None:
        document = json.loads(file.read_text("utf-8"))
        self.events = [
            Event(
                each["cat"],
                each["name"],
                round(1_000 * each["ts"]),
                round(1_000 * (each["ts"] + each["dur"])),
                each.get("args", {}),
            )
            for each in document["traceEvents"]
            if each.get("ph") == "X"
        ]
        self.calls = [event for event in self.events if event.category in CALLS]
        by_number = {event.arguments.get("correlation"): event for event in self.calls}
        marks = [event for event in self.events if _STEP.fullmatch(event.name) and event.category == "user_annotation"]
        self.steps = sorted(marks, key=lambda each: each.start)
        work = [event for event in self.events if event.category in OF_GPU]
        self.launch = {id(event): by_number.get(event.arguments["correlation"]) for event in work}
        last = self.steps[-1]
        ends = [event.end for event in work if (call := self.launch_of(event)) and last.start <= call.start < last.end]
        self.start, self.end = self.steps[0].start, max([last.end, *ends])
        self.work = sorted(
            (event for event in work if event.end > self.start and event.start < self.end), key=lambda each: each.start
        )
        moments = {self.start, self.end}
        moments |= {at + more for event in self.events for at in (event.start, event.end) for more in (0, 1_000_000)}
        self.edges: Ints = np.array(sorted(at for at in moments if self.start <= at <= self.end), dtype=np.int64)
        self.lengths: Ints = np.diff(self.edges)
        self._named: dict[str, Flags] = {}

    def launch_of(self, event: Event) -> Event | None:
        """Return the call that launched work of the GPU."""
        return self.launch[id(event)]

    @property
    def window(self) -> int:
        """Nanoseconds of the window."""
        return self.end - self.start

    def during(self, spans: list[tuple[int, int]]) -> Flags:
        """Return which parts lie in one of some spans, of which the ends are edges."""
        deltas = np.zeros(self.edges.size, dtype=np.int64)
        if spans:
            first, last = np.searchsorted(self.edges, np.clip(np.array(spans), self.start, self.end)).T
            np.add.at(deltas, first, 1)
            np.add.at(deltas, last, -1)
        found: Flags = np.cumsum(deltas)[:-1] > 0
        return found

    def of(self, events: list[Event]) -> Flags:
        """Return which parts lie in an event."""
        return self.during([(event.start, event.end) for event in events])

    def length(self, parts: Flags) -> int:
        """Return how long parts are together."""
        return int(self.lengths[parts].sum())

    def share(self, parts: Flags) -> float:
        """Return the share of the window that parts are."""
        return self.length(parts) / self.window

    def named(self, name: str) -> Flags:
        """Return which parts lie in an event of a name."""
        if name not in self._named:
            self._named[name] = self.of([event for event in self.events if event.name == name])
        return self._named[name]

    @cached_property
    def busy(self) -> Flags:
        """When the GPU works."""
        return self.of(self.work)

    @cached_property
    def computing(self) -> Flags:
        """When it computes."""
        return self.of([event for event in self.work if event.computes])

    @cached_property
    def sending(self) -> Flags:
        """When it communicates."""
        return self.of([event for event in self.work if event.sends])

    @cached_property
    def loading(self) -> Flags:
        """When the host is in the data loader and calls nothing."""
        return self.of([event for event in self.events if event.name.startswith(LOADER)]) & ~self.of(self.calls)

    @cached_property
    def waits(self) -> list[Event]:
        """Calls that wait for the GPU: by their names, and those that end after the copy that they started."""
        late = {
            id(call)
            for event in self.work
            if event.category == "gpu_memcpy" and (call := self.launch_of(event)) and event.end <= call.end
        }
        named = [each for each in self.calls if "Synchronize" in each.name or each.name in BLOCKING or id(each) in late]
        return [each for each in named if each.end > self.start and each.start < self.end]

    @cached_property
    def gaps(self) -> list[tuple[int, int]]:
        """The stretches without work, in order."""
        idle = np.flatnonzero(np.diff(np.concatenate([[False], ~self.busy, [False]]).astype(np.int8)))
        return [(int(self.edges[start]), int(self.edges[end])) for start, end in idle.reshape(-1, 2)]

    @cached_property
    def until_launch(self) -> Flags:
        """The parts of gaps in which the next work is not launched yet."""
        spans = []
        starts = [event.start for event in self.work]
        for start, end in self.gaps:
            place = bisect_left(starts, end)
            follow = self.work[place] if place < len(starts) else None
            call = self.launch_of(follow) if follow is not None else None
            until = end if follow is None else start if call is None else min(max(call.end, start), end)
            spans.append((start, until))
        return self.during([span for span in spans if span[0] < span[1]])

    @cached_property
    def step_lengths(self) -> Floats:
        """How long steps are on the host, nanoseconds, float64[N]."""
        return np.array([step.lasts for step in self.steps], dtype=np.float64)

    @cached_property
    def started(self) -> list[tuple[Event, Event]]:
        """Kernels with the calls that launched them."""
        pairs = [(event, self.launch_of(event)) for event in self.work if event.category == "kernel"]
        return [(event, call) for event, call in pairs if call is not None]
