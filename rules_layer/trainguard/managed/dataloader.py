"""Dataloader: how many processes load data at a time, against the number of cores.

Kept defects: it triggers once at most, mixes lifetimes of workers with times of GetNext, counts the main process, and
cuts the median to an int. Processes of all nodes are held against one number of cores.
"""

from typing import Any

import msgspec
import numpy as np

from trainguard.formats.profile.snapshots import IntArray
from trainguard.managed.framework_reader import NOTHING
from trainguard.managed.framework_stream import FrameworkWindow
from trainguard.managed.history import History
from trainguard.managed.rule import CompatibleRule, Number, RuleParameters, Window

_INITIALIZE = "DataLoaderIterInitialize"
_LOADING = frozenset({"DataLoaderWorker", "DataLoaderIter"})
_MOST_COUNTS = 1_000
_BINS = 100
_US_PER_S = 1_000_000


class DataloaderParameters(RuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent of the number of cores; ``patience`` in seconds with loading, and not shown."""

    min_threshold: Number = 70
    max_threshold: Number = 200
    patience: Number = 10

    def shown(self) -> list[tuple[str, Number | str | None]]:
        return [("min_threshold", self.min_threshold), ("max_threshold", self.max_threshold)]


class Dataloader(CompatibleRule[DataloaderParameters]):
    """Counts, once a window with loading, too few and too many loading processes."""

    def __init__(self, parameters: DataloaderParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._cores: list[str] = []
        self._counts: list[int] = []
        self._seconds = History()
        self._pin_memory: Any = None
        self._num_workers: Any = None
        self._prefetch: bool | None = False

    def observe(self, window: Window) -> None:
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
