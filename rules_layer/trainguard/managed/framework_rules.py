"""What the managed rules over framework metrics answer, with their defects."""

import bisect
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.framework_reader import NOTHING, Scalar
from trainguard.managed.framework_stream import FrameworkWindow
from trainguard.managed.framework_time import FrameworkTime, Kind, ManagedCorrelation, kinds_of, whole
from trainguard.managed.history import ManagedHistory
from trainguard.managed.rule import STEP_NAME, CompatibleRule, ManagedRuleParameters, ManagedWindow, Number

FEWEST_STEPS = 100
_HISTOGRAM_BINS = 100
_DECIMALS = 2


class ManagedStepOutlierParameters(ManagedRuleParameters, frozen=True, kw_only=True):
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
        self._durations = ManagedHistory()
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
        probs, edges = np.histogram(values[values < self.threshold()], bins=_HISTOGRAM_BINS)
        return {
            "step_stats": {"mean": mean, "max": largest, "p99": p99, "p95": p95, "p50": p50, "min": smallest},
            "number_of_outliers": len(numbers),
            "phase": mode,
            "stddev": float(np.round(np.std(values), _DECIMALS)),
            "probs": probs.tolist(),
            "binedges": edges.tolist(),
            "step_numbers": numbers,
        }


class ManagedStepOutlier(CompatibleRule[ManagedStepOutlierParameters]):
    """Counts, once a window, the outliers of every process and mode that has more than ``n_outliers`` of them."""

    def __init__(self, parameters: ManagedStepOutlierParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._steps: dict[str, dict[str, _Steps]] = {}
        self._correlation = ManagedCorrelation()
        self.details["step_details"] = {}

    def observe(self, window: ManagedWindow) -> None:
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


_INITIALIZE = "DataLoaderIterInitialize"
_LOADING = frozenset({"DataLoaderWorker", "DataLoaderIter"})
_MOST_COUNTS = 1_000
_BINS = 100
_US_PER_S = 1_000_000


class ManagedDataloaderParameters(ManagedRuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent of the number of cores; ``patience`` in seconds with loading, and not shown."""

    min_threshold: Number = 70
    max_threshold: Number = 200
    patience: Number = 10

    def shown(self) -> list[tuple[str, Number | str | None]]:
        return [("min_threshold", self.min_threshold), ("max_threshold", self.max_threshold)]


class ManagedDataloader(CompatibleRule[ManagedDataloaderParameters]):
    """Counts, once a window with loading, too few and too many loading processes."""

    def __init__(self, parameters: ManagedDataloaderParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._cores: list[str] = []
        self._counts: list[int] = []
        self._seconds = ManagedHistory()
        self._pin_memory: Any = None
        self._num_workers: Any = None
        self._prefetch: bool | None = False

    def observe(self, window: ManagedWindow) -> None:
        """Count the window's loading processes a second, and judge the median of all counts."""
        if not self._cores:
            self._cores = window.system.names_in(window.system.rows_of("CPUUtilization"))
        events = window.framework
        if len(events) and len(self._counts) > _MOST_COUNTS:
            self._counts = []
        self._note_settings(events)
        rows = _rows_of_phases(events, _LOADING)
        self._note_prefetching(events, rows)
        if rows.size:
            self.datapoints += len(rows)
            self._seconds.extend((events.ends[rows] - events.starts[rows]) / _US_PER_S)
            # Distinct processes of each second in which loading started; those without a pid are none.
            found, second = np.unique(np.trunc(events.starts[rows] / _US_PER_S).astype(np.int64), return_inverse=True)
            pairs = np.unique(np.stack([second, events.processes[rows]], axis=1), axis=0)
            self._counts += np.bincount(pairs[pairs[:, 1] != NOTHING, 0], minlength=len(found)).tolist()
            self._judge()
        if self.violations > 0:
            self.triggered = 1

    def _note_settings(self, events: FrameworkWindow) -> None:
        initialize = set(_rows_of_phases(events, {_INITIALIZE}).tolist())
        for row, (pin_memory, num_workers) in events.loaders.items():
            if row in initialize:
                self._pin_memory = self._pin_memory if pin_memory is msgspec.UNSET else pin_memory
                self._num_workers = self._num_workers if num_workers is msgspec.UNSET else num_workers

    def _note_prefetching(self, events: FrameworkWindow, loading: IntArray) -> None:
        if not len(events):
            return
        named = np.array(["Prefetch" in name for name in events.words.names], dtype=np.bool_)
        prefetching = np.flatnonzero(named[events.names])
        last_loading = int(loading[-1]) if loading.size else -1
        last_prefetching = int(prefetching[-1]) if prefetching.size else -1
        if last_prefetching >= 0 and last_prefetching >= last_loading:
            self._prefetch = True
        elif last_loading >= 0:
            self._prefetch = None

    def _judge(self) -> None:
        median = int(np.median(self._counts))
        if len(self._counts) > self.parameters.patience:
            cores = len(self._cores)
            self.violations += median < cores * (self.parameters.min_threshold / 100)
            self.violations += median > cores * (self.parameters.max_threshold / 100)
        settings = {"pin_memory": self._pin_memory, "num_workers": self._num_workers, "prefetch": self._prefetch}
        self.details.update({name: value for name, value in settings.items() if value is not None})
        self.details.update({"cores": len(self._cores), "dataloaders": median, "dataloading_time": {}})

    def finish(self) -> None:
        if not len(self._seconds):
            return
        values = self._seconds.values
        p25, p50, p95 = np.quantile(values, (0.25, 0.5, 0.95)).tolist()
        probs, edges = np.histogram(values, bins=_BINS)
        times = {"p25": p25, "p50": p50, "p95": p95, "probs": probs.tolist(), "binedges": edges.tolist()}
        self.details["dataloading_time"] = times


def _rows_of_phases(events: FrameworkWindow, phases: frozenset[str] | set[str]) -> IntArray:
    if not len(events):
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.array([phase in phases for phase in events.words.phases], dtype=np.bool_)[events.phases])


_OTHERS = "others"


class ManagedOverallFrameworkMetrics(CompatibleRule[ManagedRuleParameters]):
    """Reports shares of phases and operators over the whole job; never triggers."""

    def __init__(self, parameters: ManagedRuleParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._time = FrameworkTime()
        self._gpu_phases: set[int] = set()
        self._first_start: float | None = None

    def observe(self, window: ManagedWindow) -> None:
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


class ManagedMaxInitializationTimeParameters(ManagedRuleParameters, frozen=True, kw_only=True):
    """``threshold`` in minutes."""

    threshold: Number = 20


class ManagedMaxInitializationTime(CompatibleRule[ManagedMaxInitializationTimeParameters]):
    """Reports the first and last step, and the first and last system sample."""

    def __init__(self, parameters: ManagedMaxInitializationTimeParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._steps: dict[str, float] = {}
        self.details["step_num"] = self._steps

    def observe(self, window: ManagedWindow) -> None:
        """Widen the job's times, note the steps, and judge a waiting time of 0."""
        details: dict[str, Any] = self.details
        if len(window.system):
            earliest, latest = float(window.system.times.min()), float(window.system.times.max())
            details["job_start"] = min(earliest, details.get("job_start", earliest))
            details["job_end"] = max(latest, details.get("job_end", 0.0))
        events = window.framework
        is_step = np.array([STEP_NAME in name for name in events.words.names], dtype=np.bool_)
        starts = events.starts[is_step[events.names]].tolist() if len(events) else []
        self.datapoints += len(starts)
        if starts and "first" not in self._steps:
            self._steps["first"] = whole(starts.pop(0))
        if starts:
            self._steps["last"] = whole(starts[-1])
        if self.parameters.threshold < 0 and not self._steps:
            self.violations += 1
            self.triggered += 1
