"""OverallFrameworkMetrics: how the whole job's framework time is shared out.

Kept defects: "others" contains the previous "others" and is divided by the GPU phases; a window's edge counts twice;
operators include their children. A step without ``step_num`` is added, where the original raises.
"""

import bisect

import numpy as np

from trainguard.formats.profile.snapshots import IntArray
from trainguard.managed.framework_reader import NOTHING
from trainguard.managed.framework_stream import FrameworkWindow
from trainguard.managed.framework_time import FrameworkTime, Kind, kinds_of
from trainguard.managed.rule import CompatibleRule, RuleParameters, Window

_OTHERS = "others"


class OverallFrameworkMetrics(CompatibleRule[RuleParameters]):
    """Reports shares of phases and operators over the whole job; never triggers."""

    def __init__(self, parameters: RuleParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._time = FrameworkTime()
        self._gpu_phases: set[int] = set()
        self._first_start: float | None = None

    def observe(self, window: Window) -> None:
        """Add the window's events, steps one after the other because each changes "others"."""
        events = window.framework
        kinds = kinds_of(events)
        new_gpu_phases = self._meet_gpu_phases(events, kinds)
        rows = np.flatnonzero(kinds != Kind.STEP)
        self._time.add(events, kinds, rows, np.ones(len(rows), dtype=np.int64))
        self._add_steps(events, np.flatnonzero(kinds == Kind.STEP), new_gpu_phases)
        for key in self._time.report_keys():
            self.details.setdefault(key, {})

    def _meet_gpu_phases(self, events: FrameworkWindow, kinds: IntArray) -> list[int]:
        """Return the rows at which a GPU phase is met for the first time, ascending."""
        rows = np.flatnonzero(kinds == Kind.GPU)
        phases, first = np.unique(events.phases[rows], return_index=True)
        new = dict(zip(phases.tolist(), rows[first].tolist(), strict=True))
        met = sorted(row for phase, row in new.items() if phase not in self._gpu_phases)
        self._gpu_phases.update(new)
        return met

    def _add_steps(self, events: FrameworkWindow, rows: IntArray, new_gpu_phases: list[int]) -> None:
        sums = self._time.sums[Kind.STEP]
        known = len(self._gpu_phases) - len(new_gpu_phases)
        end: float | None = None
        starts, ends = events.starts[rows].tolist(), events.ends[rows].tolist()
        numbered = (events.steps[rows] != NOTHING).tolist()
        for row, phase, start, stop, has_number in zip(
            rows.tolist(), events.phases[rows].tolist(), starts, ends, numbered, strict=True
        ):
            if has_number:
                self._first_start = start if self._first_start is None else self._first_start
                end = stop
            name = events.words.phases[phase]
            sums[name] = sums.get(name, 0.0) + (stop - start)
            if end is not None and self._first_start is not None:
                gpu_phases = max(1, known + bisect.bisect_left(new_gpu_phases, row))
                sums[_OTHERS] = (end - self._first_start) - sum(sums.values()) / gpu_phases

    def finish(self) -> None:
        shares = self._time.shares(labels_swapped=False)
        self.details.update({key: shares[key] for key in self.details})
