"""Writes events of an allocator into a rank's trace, and derives from such events what the rules on memory should find.

A GPU holds a tenth of its memory from before the trace. Within ``forward and backward`` of each step a buffer is taken
and given back. A leak keeps some memory a step.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.claims.kernel_files import HOST, Event
from tests.claims.kernel_trace import KernelTrace

if TYPE_CHECKING:
    from tests.claims.random_kernels import KernelJob

FAULTS = ("", "leak", "small leak", "parts", "held")
PASS = "forward and backward"
STEP = re.compile(r"ProfilerStep#\d+")
WARM_UP, LEAST_STEPS, SURE_STEPS = 2, 4, 8
LEAST_GROWTH = 1_000_000
LEAST_FREE, FULL, LEAST_HELD = 0.2, 0.9, 0.4


def memory_rows(job: "KernelJob", rank: int, events: list[Event]) -> list[dict[str, Any]]:
    """Return the events of memory of a job's first GPU, as the PyTorch profiler writes them."""
    if not job.memory or job.parallel:
        return []
    total, rng = job.card.memory, np.random.default_rng([job.seed, 26, rank])
    buffer = {"held": 0.6, "parts": 0.4}.get(job.memory, 0.2)
    reserved = int({"parts": 0.93, "held": 0.95}.get(job.memory, 0.5) * total)
    kept = {"leak": 30_000_000, "small leak": 900_000}.get(job.memory, 0)
    rows: list[dict[str, Any]] = []
    held = total // 10

    def add(at: int, address: int, size: int) -> None:
        nonlocal held
        held += size
        said = {"Device Type": 1, "Device Id": 0, "Addr": address, "Bytes": size}
        said |= {"Total Allocated": held, "Total Reserved": reserved}
        rows.append({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 1, "ts": at / 1e3, "args": said})

    passes = sorted((each for each in events if each.category == HOST and each.name == PASS), key=lambda e: e.start)
    for number, each in enumerate(passes):
        size = int(buffer * total * float(rng.uniform(0.9, 1.0)))
        add(each.start + 1_000, 1 << 20, size)
        if kept:
            add(each.start + 2_000, (number + 2) << 30, kept + int(rng.integers(0, 9)))
        add(each.end - 1_000, 1 << 20, -size)
    return rows


@dataclass(frozen=True)
class Allocations:
    """The events of memory of a trace's first GPU, in order: time in nanoseconds, address, size, and what is held."""

    rows: list[tuple[int, int, int, int, int]]
    starts: list[int]
    limit: int

    @property
    def at_steps(self) -> list[int]:
        """What is held when each step behind the first two begins."""
        before = self.rows[0][3] - self.rows[0][2]
        held = [[each[3] for each in self.rows if each[0] < start] or [before] for start in self.starts]
        return [each[-1] for each in held][WARM_UP:]

    @property
    def growth(self) -> int:
        """Bytes that a step keeps."""
        return (self.at_steps[-1] - self.at_steps[0]) // (len(self.at_steps) - 1)

    @property
    def grows(self) -> bool:
        """Whether memory grows: here each step keeps as much, or nothing."""
        return len(self.at_steps) > LEAST_STEPS and self.growth >= LEAST_GROWTH

    @property
    def kept(self) -> int:
        """Bytes that were taken behind the second step and before the last one but one, and are held at the last."""
        first, last, end = self.starts[WARM_UP], self.starts[-2], self.starts[-1]
        freed = {each[1] for each in self.rows if each[2] < 0 and each[0] < end}
        return sum(each[2] for each in self.rows if each[2] > 0 and first <= each[0] < last and each[1] not in freed)

    @property
    def peak(self) -> tuple[int, int]:
        """Most that is held, and what is reserved then."""
        at = max(self.rows, key=lambda each: each[3])
        return at[3], at[4]

    @property
    def free_share(self) -> float:
        """The part of reserved memory that is not held at the peak."""
        return (self.peak[1] - self.peak[0]) / self.peak[1]

    @property
    def in_parts(self) -> bool:
        """Whether hardly any memory is left to reserve, and much of what is reserved is free."""
        return self.peak[1] >= FULL * self.limit and self.free_share >= LEAST_FREE

    @property
    def buffer(self) -> int:
        """What is taken and given back in the step of the peak."""
        place = max(range(len(self.rows)), key=lambda at: (self.rows[at][3], -at))
        return next(each[2] for each in reversed(self.rows[: place + 1]) if each[1] == 1 << 20 and each[2] > 0)

    @property
    def is_held(self) -> bool:
        """Whether the buffer is much of what is held, and hardly any memory is left to reserve."""
        return max(each[4] for each in self.rows) >= FULL * self.limit and self.buffer >= LEAST_HELD * self.peak[0]

    @property
    def kept_at_peak(self) -> int:
        """What steps have kept at the peak."""
        place = max(range(len(self.rows)), key=lambda at: (self.rows[at][3], -at))
        return sum(each[2] for each in self.rows[: place + 1] if each[1] != 1 << 20)


def allocations(trace: KernelTrace) -> Allocations | None:
    """Return the allocations of a trace; None where it has none."""
    recording = trace.recording
    if not recording.memory:
        return None
    marks = [each for each in recording.events if each.category == HOST and STEP.fullmatch(each.name)]
    rows = sorted(recording.memory, key=lambda each: each[0])
    return Allocations(rows, sorted(each.start for each in marks), recording.cards[0].memory)


def known(trace: KernelTrace) -> Allocations:
    """Return the allocations of a trace that has some."""
    found = allocations(trace)
    assert found is not None
    return found
