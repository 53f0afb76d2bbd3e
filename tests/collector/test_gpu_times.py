"""Times on the GPU, on a stub of torch.cuda that executes later than it is asked."""

from pathlib import Path
from typing import Any

import pytest

from trainguard_collector.objects import Handover, TimelineFile
from trainguard_collector.recorder.gpu_times import MOST_PENDING, NEW_ANCHOR_MS, GpuTimes
from trainguard_collector.recorder.harmless import Faults
from trainguard_collector.recorder.timeline import EventLog

MS = 1_000_000


class Event:
    """An event that happens when its stream has come so far."""

    def __init__(self, gpu: "Gpu") -> None:
        self.gpu, self.at_ns = gpu, 0

    def record(self) -> None:
        self.at_ns = max(self.gpu.asked_ns, self.gpu.free_ns)

    def query(self) -> bool:
        return self.at_ns <= self.gpu.asked_ns

    def elapsed_time(self, other: "Event") -> float:
        assert self.query(), "a synchronization"
        assert other.query(), "a synchronization"
        return (other.at_ns - self.at_ns) / MS


class Gpu:
    """``asked_ns`` is the processor's time, ``free_ns`` when the stream has done what it was given."""

    def __init__(self) -> None:
        self.asked_ns = self.free_ns = 10**12
        self.events = 0
        self.is_capturing = False

    def current_device(self) -> int:
        return 3

    def is_current_stream_capturing(self) -> bool:
        return self.is_capturing

    def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802 - torch's name
        assert enable_timing
        self.events += 1
        return Event(self)

    def launch(self, work_ms: float) -> None:
        self.free_ns = max(self.asked_ns, self.free_ns) + round(work_ms * MS)


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog(lambda header: TimelineFile(Handover(tmp_path, 10_000_000), "7", header), Faults())


def step(gpu: Gpu, times: GpuTimes, work_ms: float, *, launch_ms: float = 1.0) -> None:
    first = times.mark(gpu.asked_ns)
    gpu.launch(work_ms)
    gpu.asked_ns += round(launch_ms * MS)
    times.span("forward", first, times.mark(gpu.asked_ns))


def spans(log: EventLog) -> list[Any]:
    return list(log._events)


def test_asynchronous_work_has_gpu_time_without_waiting(gpu: Gpu, log: EventLog) -> None:
    times = GpuTimes(gpu, log)
    began_ns = gpu.asked_ns
    for _ in range(5):
        step(gpu, times, 40.0)
    times.poll()
    assert spans(log) == []
    gpu.asked_ns = gpu.free_ns
    times.poll()
    found = spans(log)
    assert [(label, name) for label, name, *_ in found] == [("GPU-functions-dev:3", "forward")] * 5
    assert [each[3] - each[2] for each in found] == [40 * MS] * 5
    assert [each[2] - began_ns for each in found] == [number * 40 * MS for number in range(5)]


def test_late_first_event_is_corrected_by_later_ones(gpu: Gpu, log: EventLog) -> None:
    times = GpuTimes(gpu, log)
    gpu.launch(500.0)  # what ran before the first mark
    step(gpu, times, 10.0)
    gpu.asked_ns = gpu.free_ns + 100 * MS
    began_ns = gpu.asked_ns
    step(gpu, times, 10.0)
    gpu.asked_ns = gpu.free_ns
    times.poll()
    assert spans(log)[-1][2] == began_ns


def test_long_run_moves_anchors_and_reuses_events(gpu: Gpu, log: EventLog) -> None:
    times = GpuTimes(gpu, log)
    for _ in range(200):
        began_ns = gpu.asked_ns
        step(gpu, times, 5.0)
        gpu.asked_ns += round(NEW_ANCHOR_MS / 10 * MS)
        times.poll()
        assert spans(log)[-1][2:4] == (began_ns, began_ns + 5 * MS)
    assert gpu.events <= 6


def test_memory_is_bounded_on_a_hung_gpu_or_graph_capture(gpu: Gpu, log: EventLog) -> None:
    times = GpuTimes(gpu, log)
    gpu.launch(1e9)
    for _ in range(2 * MOST_PENDING):
        step(gpu, times, 1.0)
        times.poll()
    assert (gpu.events, spans(log)) == (2 * MOST_PENDING, [])
    assert times.dropped == 2 * MOST_PENDING
    gpu.is_capturing = True
    assert GpuTimes(gpu, log).mark(0) is None
