"""Training steps in buckets of time: durations by process and mode, and the slowest ones with their names."""

from collections.abc import Iterable

import msgspec
import numpy as np

from trainguard.state.histogram import MAX_DURATION_US
from trainguard.telemetry.snapshots import IntArray
from trainguard.telemetry.steps import StepBatch
from trainguard.timeline.buckets import BucketTable, Key, StoredTable
from trainguard.timeline.series import TimeAxis

MAX_STEP_SERIES = 64
"""Processes times modes of one node; 16 processes with four modes each."""

KEPT_SLOWEST = 200
MICROSECONDS = 1_000_000


class KeptStep(msgspec.Struct, array_like=True, frozen=True):
    """A slow step: epoch microseconds, microseconds, and its number as the framework wrote it."""

    start_us: int
    duration_us: int
    number: str


class Extent(msgspec.Struct, array_like=True):
    """Of one series: when its first step began and its last one ended, epoch µs; its slowest, the slowest first."""

    first_us: int
    end_us: int
    slowest: list[KeptStep]

    def widen(self, other: "Extent") -> None:
        """Take in another part of the same series."""
        self.first_us = min(self.first_us, other.first_us)
        self.end_us = max(self.end_us, other.end_us)
        self.slowest = _slowest([*self.slowest, *other.slowest])


class StoredSteps(msgspec.Struct, array_like=True):
    """`StepDigest` as bytes; ``extents`` in the order of the table's series."""

    outside: int
    table: StoredTable
    extents: list[Extent]


class StepDigest:
    """Steps of one node.

    Attributes
    ----------
    table : BucketTable
        Durations in microseconds, each in the bucket of its step's start; keys are (0, process, mode).
    extents : dict of Key to Extent
        Of each series of the table.
    outside : int
        Steps that began before the axis or after it.
    """

    def __init__(self, axis: TimeAxis) -> None:
        self._axis = axis
        self.table = BucketTable(axis.buckets, MAX_STEP_SERIES)
        self.extents: dict[Key, Extent] = {}
        self.outside = 0

    def add(self, batch: StepBatch) -> None:
        """Add the steps of one process and mode that one object holds."""
        axis = self._axis
        buckets = (batch.starts_us - round(axis.start * MICROSECONDS)) // round(axis.bucket_s * MICROSECONDS)
        rows = np.flatnonzero((buckets >= 0) & (buckets < axis.buckets))
        self.outside += int(batch.starts_us.size - rows.size)
        if not rows.size:
            return
        key = (0, batch.process, batch.mode)
        durations = np.clip(batch.durations_us[rows], 0, MAX_DURATION_US)
        self.table.add([key], np.zeros(rows.size, dtype=np.int64), buckets[rows], durations)
        self._widen(key, _extent(batch, rows, durations))
        self._drop_refused()

    def merge(self, other: "StepDigest") -> None:
        """Add all that another one of the same axis holds."""
        self.table.merge(other.table)
        for key, extent in other.extents.items():
            self._widen(key, extent)
        self._drop_refused()
        self.outside += other.outside

    def joined(self, axis: TimeAxis, edges: IntArray) -> "StepDigest":
        """Return the steps on an ``axis`` whose buckets join some of this one's; see `BucketTable.joined`."""
        steps = StepDigest(axis)
        steps.table, steps.extents, steps.outside = self.table.joined(edges), self.extents, self.outside
        return steps

    def stored(self) -> StoredSteps:
        """Return the steps as bytes."""
        return StoredSteps(self.outside, self.table.stored(), [self.extents[key] for key in self.table.keys])

    @classmethod
    def restored(cls, stored: StoredSteps, axis: TimeAxis) -> "StepDigest":
        """Undo `stored`; raises ValueError when it does not fit the axis."""
        steps = cls(axis)
        steps.outside = stored.outside
        steps.table = BucketTable.restored(stored.table, axis.buckets, MAX_STEP_SERIES)
        steps.extents = dict(zip(steps.table.keys, stored.extents, strict=True))
        return steps

    def _widen(self, key: Key, extent: Extent) -> None:
        if key in self.extents:
            self.extents[key].widen(extent)
        else:
            self.extents[key] = Extent(extent.first_us, extent.end_us, extent.slowest)

    def _drop_refused(self) -> None:
        if len(self.extents) > len(self.table.keys):
            self.extents = {key: self.extents[key] for key in self.table.keys}


def _extent(batch: StepBatch, rows: IntArray, durations: IntArray) -> Extent:
    starts = batch.starts_us[rows]
    first, end = int(starts.min()), int((starts + durations).max())
    if rows.size > KEPT_SLOWEST:
        least = np.partition(durations, -KEPT_SLOWEST)[-KEPT_SLOWEST]
        slow = durations >= least
        rows, starts, durations = rows[slow], starts[slow], durations[slow]
    numbers = (batch.numbers[row] for row in rows.tolist())
    kept = map(KeptStep, starts.tolist(), durations.tolist(), numbers)
    return Extent(first, end, _slowest(kept))


def _slowest(steps: Iterable[KeptStep]) -> list[KeptStep]:
    return sorted(steps, key=lambda step: (-step.duration_us, step.start_us, step.number))[:KEPT_SLOWEST]
