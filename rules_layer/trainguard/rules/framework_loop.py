"""The training loop of each process of a node: from its first step to its last, and how much of it its steps cover."""

from collections.abc import Sequence

import msgspec
import numpy as np

from trainguard.telemetry.steps import StepBatch

MAX_PROCESSES = 128


class ProcessLoop(msgspec.Struct, array_like=True):
    """One process; times in epoch microseconds, ``last_minute`` the newest epoch minute in which it had an event."""

    process: str
    first_us: int | None = None
    last_us: int = 0
    covered_us: int = 0
    last_minute: int = 0

    @property
    def wall_us(self) -> int:
        """First step's start to last step's end, microseconds."""
        return 0 if self.first_us is None else self.last_us - self.first_us

    @property
    def others_us(self) -> int:
        """Part of the wall time in which no step ran, microseconds."""
        return max(self.wall_us - self.covered_us, 0)

    def fold(self, batches: Sequence[StepBatch]) -> None:
        """Add the steps of the process's next object; what overlaps in time counts once."""
        if not batches:
            return
        starts = np.concatenate([batch.starts_us for batch in batches])
        ends = starts + np.concatenate([batch.durations_us for batch in batches])
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        reached = np.maximum.accumulate(np.concatenate(([self.last_us], ends)))
        self.covered_us += int(np.maximum(ends - np.maximum(starts, reached[:-1]), 0).sum())
        first = int(starts[0])
        self.first_us = first if self.first_us is None else min(first, self.first_us)
        self.last_us = int(reached[-1])


def loop_of(loops: list[ProcessLoop], process: str) -> ProcessLoop | None:
    """Find or admit a process; None when a node already has MAX_PROCESSES."""
    for loop in loops:
        if loop.process == process:
            return loop
    if len(loops) == MAX_PROCESSES:
        return None
    loops.append(ProcessLoop(process))
    return loops[-1]
