"""A kernel trace of one rank, cut at every edge of an event: each part is wholly in an event or out of it.

So a union, a difference or an overlap is a mask of the parts, and its length the sum of theirs, in whole nanoseconds.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tests.claims.kernel_files import CALL, COPY, HOST, KERNEL, Event, Recording
from tests.claims.raw import Flags, Floats

Ints = NDArray[np.int64]
Spans = list[tuple[int, int]]

_STEP = re.compile(r"(?:ProfilerStep#|step )(\d+)")
LOADERS = ("enumerate(DataLoader)", "IteratorGetNext")
BLOCKING = {"cudaMemcpy"}
REACH_NS = 1_000_000
# So long after its launch work may take to start on an idle GPU.
STARTS_NS = 10_000

LEAST_WORK = 0.01
# An operator of a random trace has fewer operators within it.
NESTED = 6


class Gpu:
    """One GPU of a trace: what it does when, as masks of the trace's parts."""

    def __init__(self, trace: "KernelTrace", number: int) -> None:
        self.trace, self.number = trace, number
        self.every = [event for event in trace.recorded if event.device == number]
        self.work = [event for event in self.every if trace.is_inside(event)]
        self.busy = trace.of(self.work)
        self.computing = trace.of([event for event in self.work if event.computes])
        self.sending = trace.of([event for event in self.work if event.sends])
        self.copying = trace.of([event for event in self.work if event.copies])

    @property
    def sends_alone(self) -> Flags:
        """When it communicates and does not compute."""
        return self.sending & ~self.computing

    @property
    def copies_alone(self) -> Flags:
        """When it only copies or sets memory."""
        return self.copying & ~self.computing & ~self.sending

    @cached_property
    def until_launch(self) -> Flags:
        """The parts of its gaps in which its next work is not launched yet."""
        spans = self.trace.unlaunched(self.trace.stretches(~self.busy), self.every)
        return self.trace.during([(start, until) for start, until in spans if until is not None])

    @property
    def waits_for_data(self) -> Flags:
        """When it is idle, and the host loads a batch before it launches."""
        return self.until_launch & self.trace.loading

    @property
    def waits_for_host(self) -> Flags:
        """When it is idle, and the host has not launched its next work for another reason."""
        return self.until_launch & ~self.trace.loading


class KernelTrace:
    """The events of a trace, and its window: from the first step's start to the end of the last one and its work.

    Parameters
    ----------
    recording : Recording
    inner : bool
        Whether to leave out the first and the last step.
    """

    def __init__(self, recording: Recording, *, inner: bool = False) -> None:
        self.recording = recording
        events = recording.events
        self.calls = [event for event in events if event.category == CALL]
        marks = [event for event in events if event.category == HOST and _STEP.fullmatch(event.name)]
        steps = sorted(marks, key=lambda each: each.start)
        self.steps = steps[1:-1] if inner else steps
        self.host = [event for event in events if event.category == HOST and not _STEP.fullmatch(event.name)]
        by_number = {event.correlation: event for event in self.calls if event.correlation}
        gpu = [event for event in events if event.category not in {CALL, HOST}]
        self.recorded = sorted(gpu, key=lambda each: each.start)
        self._launch = {id(event): by_number.get(event.correlation) for event in gpu}
        last = self.steps[-1]
        self.start = max(self.steps[0].start, self._end_of_work(steps[0]) if inner else 0)
        self.end = max([last.end, *(each.end for each in self.work_of(last))])
        self.work = [event for event in self.recorded if self.is_inside(event)]
        moments = {self.start, self.end}
        moments |= {
            at + more for event in events for at in (event.start, event.end) for more in (0, STARTS_NS, REACH_NS)
        }
        self.edges: Ints = np.array(sorted(at for at in moments if self.start <= at <= self.end), dtype=np.int64)
        self.lengths: Ints = np.diff(self.edges)
        self._named: dict[str, Flags] = {}
        self.gpus = [Gpu(self, number) for number in sorted({event.device for event in self.work})]
        most = max(self.length(gpu.busy) for gpu in self.gpus)
        self.counted = [gpu for gpu in self.gpus if self.length(gpu.busy) >= LEAST_WORK * most]
        """The GPUs that means are over: one with under 1 % of the busiest one's work is used by the way."""

    def _end_of_work(self, first: Event) -> int:
        """Return when the work of a step that is left out ends, before that of the first one that counts begins."""
        own = min((each.start for each in self.work_of(self.steps[0])), default=0)
        return min(own, max((each.end for each in self.work_of(first) if each.start < own), default=0))

    def is_inside(self, event: Event) -> bool:
        """Tell whether an event has a part in the window."""
        return event.end > self.start and event.start < self.end

    def launch_of(self, event: Event) -> Event | None:
        """Return the call that launched work of a GPU."""
        return self._launch[id(event)]

    def work_of(self, step: Event) -> list[Event]:
        """Return the work of GPUs that a step launched."""
        pairs = [(event, self.launch_of(event)) for event in self.recorded]
        return [event for event, call in pairs if call is not None and step.start <= call.start < step.end]

    @property
    def window(self) -> int:
        """Nanoseconds of the window."""
        return self.end - self.start

    def unlaunched(self, gaps: Spans, work: list[Event]) -> list[tuple[int, int | None]]:
        """Return gaps up to the launch of the next of some work, in order of its start; None where it is unknown.

        Work is launched when its call ends; where the call waits for that work, when it starts.
        """
        starts, found = [event.start for event in work], []
        waits = {id(call) for call in self.waits}
        for start, end in gaps:
            place = bisect_left(starts, end)
            call = self.launch_of(work[place]) if place < len(starts) else None
            launched = end if call is None else call.start if id(call) in waits else call.end
            unknown = call is None and place < len(starts)
            found.append((start, None if unknown else min(max(launched, start), end)))
        return found

    def during(self, spans: Spans) -> Flags:
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

    def stretches(self, parts: Flags) -> Spans:
        """Return the stretches that parts in a row are, in order."""
        places = np.flatnonzero(np.diff(np.concatenate([[False], parts, [False]]).astype(np.int8)))
        return [(int(self.edges[start]), int(self.edges[end])) for start, end in places.reshape(-1, 2)]

    def mean(self, parts: Callable[[Gpu], Flags]) -> float:
        """Return how long the GPUs that count are in parts of theirs, on average."""
        return float(np.mean([self.length(parts(gpu)) for gpu in self.counted]))

    def mean_share(self, parts: Callable[[Gpu], Flags]) -> float:
        """Return the same as a share of the window."""
        return self.mean(parts) / self.window

    def named(self, name: str) -> Flags:
        """Return which parts lie in an event of the host with a name."""
        if name not in self._named:
            self._named[name] = self.of([event for event in self.host if event.name == name])
        return self._named[name]

    @cached_property
    def busy(self) -> Flags:
        """When any GPU works."""
        return self.of(self.work)

    @cached_property
    def gaps(self) -> Spans:
        """The stretches without work of any GPU, in order, up to the launch of the next work."""
        gaps = self.stretches(~self.busy)
        until = [each for _, each in self.unlaunched(gaps, self.recorded)]
        return [(start, end if at is None else at) for (start, end), at in zip(gaps, until, strict=True)]

    @cached_property
    def loading(self) -> Flags:
        """When the host is in the data loader and calls nothing."""
        return self.of([event for event in self.host if event.name.startswith(LOADERS)]) & ~self.of(self.calls)

    @cached_property
    def waits(self) -> list[Event]:
        """Calls that wait for the GPU: by their names, and those that end after the copy that they started."""
        late = {
            id(call)
            for event in self.recorded
            if event.category == COPY and (call := self.launch_of(event)) and event.end <= call.end
        }
        named = [each for each in self.calls if "Synchronize" in each.name or each.name in BLOCKING or id(each) in late]
        return [each for each in named if self.is_inside(each)]

    @cached_property
    def after_waits(self) -> Flags:
        """When the host waits for the GPU, and up to 1 ms after it."""
        return self.during([(call.start, min(call.end, self.end) + REACH_NS) for call in self.waits])

    @cached_property
    def gpu_steps(self) -> list[tuple[int, int]]:
        """Steps with their work on the GPU, each behind that of the step before; nanoseconds."""
        first = self.steps[0]
        own = min((event.start for event in self.work_of(first)), default=first.start)
        calls = [(event, self.launch_of(event)) for event in self.recorded if event.start < own]
        before = max([event.end for event, call in calls if call is None or call.start < first.start], default=0)
        found, last = [], 0
        for step in self.steps:
            start, ends = max(step.start, before), [event.end for event in self.work_of(step)]
            found.append((start, max(start, step.end, *ends)))
            before = last = max([last, *ends])
        return found

    @cached_property
    def gpu_lengths(self) -> Floats:
        """How long these are, nanoseconds, float64[N]."""
        return np.array([end - start for start, end in self.gpu_steps], dtype=np.float64)

    @cached_property
    def kernels(self) -> list[Event]:
        """The kernels of the window."""
        return [event for event in self.work if event.category == KERNEL]

    @cached_property
    def started(self) -> list[tuple[Event, Event]]:
        """Kernels with the calls that launched them."""
        pairs = [(event, self.launch_of(event)) for event in self.kernels]
        return [(event, call) for event, call in pairs if call is not None]

    @cached_property
    def _operators(self) -> tuple[list[int], list[Event]]:
        found = sorted((event for event in self.host if event.is_operator), key=lambda each: each.start)
        return [each.start for each in found], found

    def operators_at(self, moment: int) -> list[Event]:
        """Return the last few operators that begin up to a moment: one within another is among them."""
        starts, found = self._operators
        place = bisect_right(starts, moment)
        return found[max(place - NESTED, 0) : place]

    @property
    def capability(self) -> tuple[int, int]:
        """The highest compute capability of the rank's GPUs."""
        return max(card.capability for card in self.recording.cards)
