"""StepOutlier: steps that lasted longer than mean + stddev * standard deviation, over the whole job.

Kept defects (docs/differences.md): outliers of earlier windows are counted again, only a process's last mode is shown,
``mode`` adds events and excludes none, a window's edge counts twice. A step without ``step_num`` counts, where the
original raises.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.framework_reader import NOTHING, Scalar
from trainguard.managed.framework_stream import FrameworkWindow
from trainguard.managed.framework_time import Correlation
from trainguard.managed.history import History
from trainguard.managed.rule import STEP_NAME, CompatibleRule, Number, RuleParameters, Window

FEWEST_STEPS = 100
_BINS = 100
_DECIMALS = 2


class StepOutlierParameters(RuleParameters, frozen=True, kw_only=True):
    """``stddev`` in standard deviations; ``mode`` the name of further events, or None."""

    stddev: Number = 3
    mode: str | None = None
    n_outliers: Number = 10
    documented: ClassVar[Mapping[str, Number | str | None]] = {"stddev": 5}
    texts: ClassVar[frozenset[str]] = frozenset({"mode"})

    def shown(self) -> list[tuple[str, Number | str | None]]:
        """``threshold`` is ``stddev`` once more."""
        return [
            ("threshold", self.stddev),
            ("mode", self.mode),
            ("n_outliers", self.n_outliers),
            ("stddev", self.stddev),
        ]


class _Steps:
    """Durations (seconds) and step numbers of one process and mode, in the order in which they were met."""

    def __init__(self, stddev: Number) -> None:
        self._stddev = stddev
        self._durations = History()
        self._numbers: list[Scalar] = []
        self._types: set[type] = set()

    def __len__(self) -> int:
        return len(self._durations)

    def extend(self, durations: FloatArray, numbers: list[Scalar]) -> None:
        self._durations.extend(durations)
        self._numbers += numbers
        self._types.update(type(number) for number in numbers)

    def threshold(self) -> float:
        values = self._durations.values
        return float(np.mean(values) + np.std(values) * self._stddev)

    def outliers(self) -> list[Scalar]:
        """Return step numbers as an array of all of them would hold them."""
        found = [self._numbers[at] for at in np.flatnonzero(self._durations.values > self.threshold()).tolist()]
        if type(None) in self._types or len(self._types) == 1:
            return found
        for kind in (str, float, int):
            if kind in self._types:
                return [None if number is None else kind(number) for number in found]
        return found

    def details(self, mode: str) -> dict[str, Any]:
        values = self._durations.values
        p50, p95, p99 = np.quantile(values, (0.5, 0.95, 0.99)).tolist()
        mean, largest, smallest = float(np.mean(values)), float(values.max()), float(values.min())
        numbers = self.outliers()
        probs, edges = np.histogram(values[values < self.threshold()], bins=_BINS)
        return {
            "step_stats": {"mean": mean, "max": largest, "p99": p99, "p95": p95, "p50": p50, "min": smallest},
            "number_of_outliers": len(numbers),
            "phase": mode,
            "stddev": float(np.round(np.std(values), _DECIMALS)),
            "probs": probs.tolist(),
            "binedges": edges.tolist(),
            "step_numbers": numbers,
        }


class StepOutlier(CompatibleRule[StepOutlierParameters]):
    """Counts, once a window, the outliers of every process and mode that has more than ``n_outliers`` of them."""

    def __init__(self, parameters: StepOutlierParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._steps: dict[str, dict[str, _Steps]] = {}
        self._correlation = Correlation()
        self.details["step_details"] = {}

    def observe(self, window: Window) -> None:
        """Append the window's steps, then judge every process and mode on all of its steps."""
        events = window.framework
        rows = self._selected(events)
        self.datapoints += len(rows)
        for node, mode, part in _by_process_and_mode(events, rows):
            steps = self._steps.setdefault(node, {}).setdefault(mode, _Steps(self.parameters.stddev))
            seconds = (events.ends[part] - events.starts[part]) / 1_000_000.0
            steps.extend(seconds, [_number(events, row) for row in part.tolist()])
        for node, modes in self._steps.items():
            for steps in modes.values():
                if len(steps) > FEWEST_STEPS:
                    self._judge(node, steps, events, rows)

    def _selected(self, events: FrameworkWindow) -> IntArray:
        if not len(events):
            return np.empty(0, dtype=np.int64)
        wanted = [STEP_NAME in name or name == self.parameters.mode for name in events.words.names]
        return np.flatnonzero(np.array(wanted, dtype=np.bool_)[events.names])

    def _judge(self, node: str, steps: _Steps, events: FrameworkWindow, rows: IntArray) -> None:
        self.details["step_details"].setdefault(node, {})
        numbers = steps.outliers()
        if not len(numbers) > self.parameters.n_outliers:
            return
        self.violations += len(numbers)
        self.triggered += 1
        intervals = _intervals(events, rows, node)
        found = [intervals[number] for number in numbers if number in intervals]
        begins, ends = np.array(found, dtype=np.float64).reshape(-1, 2).T
        self._correlation.ask(events, begins, ends, self.details, strict=False)

    def finish(self) -> None:
        """Describe each process by its last mode, and write what correlated."""
        for node, modes in self._steps.items():
            for mode, steps in modes.items():
                if len(steps) > FEWEST_STEPS:
                    self.details["step_details"][node] = steps.details(mode)
        self._correlation.write(self.details)


def _number(events: FrameworkWindow, row: int) -> Scalar:
    step = int(events.steps[row])
    return None if step == NOTHING else events.words.steps[step][1]


def _by_process_and_mode(events: FrameworkWindow, rows: IntArray) -> list[tuple[str, str, IntArray]]:
    """Split rows by node and name, in the order of each pair's first row."""
    pairs = events.nodes[rows] * len(events.words.names) + events.names[rows]
    found, first = np.unique(pairs, return_index=True)
    parts = [rows[pairs == pair] for pair in found[np.argsort(first)]]
    return [
        (events.words.nodes[events.nodes[part[0]]], events.words.names[events.names[part[0]]], part) for part in parts
    ]


def _intervals(events: FrameworkWindow, rows: IntArray, node: str) -> dict[Scalar, tuple[float, float]]:
    """Return start and end of the first of the node's steps of each number."""
    intervals: dict[Scalar, tuple[float, float]] = {}
    for row in rows[events.nodes[rows] == events.words.nodes.index(node)].tolist() if rows.size else ():
        intervals.setdefault(_number(events, row), (float(events.starts[row]), float(events.ends[row])))
    return intervals
