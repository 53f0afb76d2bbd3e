"""OverallSystemUsage: percentiles of what each node used, over the whole job.

Kept defects: a sample on a window's edge counts double; cores and GPUs are counted over all nodes; ``Datapoints`` is
the first node's count of CPU times; beyond 1e6 of them all series are dropped.
"""

from collections.abc import Callable

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.rule import MAX_DATAPOINTS, CompatibleRule, RuleParameters, Window
from trainguard.managed.system_stream import Series, SystemWindow

_METRICS: dict[str, Callable[[Series], bool]] = {
    "Network": lambda series: series.dimension == "Algorithm",
    "GPU": lambda series: series.dimension == "GPUUtilization",
    "CPU": lambda series: series.dimension == "CPUUtilization",
    "CPU memory": lambda series: series.name == "MemoryUsedPercent",
    "GPU memory": lambda series: series.dimension == "GPUMemoryUtilization",
    "I/O": lambda series: series.dimension == "I/OWaitPercentage",
}
_DECIMALS = 2


class _SumsByTime:
    """Sums of samples of one time, over windows that follow each other and share their edge."""

    def __init__(self) -> None:
        self._times: list[FloatArray] = []
        self._sums: list[FloatArray] = []
        self.size = 0

    def add(self, instants: FloatArray, instant: IntArray, values: FloatArray) -> None:
        """Add float64[n > 0] to the sums at ``instants[instant]``; these ascend."""
        met = np.flatnonzero(np.bincount(instant, minlength=len(instants)))
        times = instants[met]
        again = bool(self._times) and bool(self._times[-1][-1] == times[0])
        if again:
            instant = np.insert(instant, 0, met[0])
            values = np.insert(values, 0, self._sums[-1][-1])
        self._times.append(times)
        sums: FloatArray = np.bincount(instant, weights=values)[met].astype(np.float64)
        self._sums.append(sums)
        self.size += times.size - again

    @property
    def windows(self) -> int:
        return len(self._times)

    def sums(self, windows: int) -> FloatArray:
        """Return one sum for each time of the first ``windows`` windows; of an edge's two, the later has all."""
        times = np.concatenate(self._times[:windows])
        last = np.diff(times, append=np.nan) != 0
        sums: FloatArray = np.concatenate(self._sums[:windows])[last]
        return sums


class OverallSystemUsage(CompatibleRule[RuleParameters]):
    """Reports the percentiles of six metrics for every node; never triggers."""

    def __init__(self, parameters: RuleParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._used: dict[str, dict[str, _SumsByTime]] = {metric: {} for metric in _METRICS}
        self._shown: dict[tuple[str, str], tuple[_SumsByTime, int, int]] = {}
        """By metric and node: the series, after how many windows, and its divisor."""

        self._gpus: set[str] = set()
        self._cores: set[str] = set()

    def observe(self, window: Window) -> None:
        """Add the window's samples to the six series of each node; what the report shows follows every window."""
        system = window.system
        self._gpus.update(system.names_in(system.rows_of("GPUUtilization")))
        self._cores.update(system.names_in(system.rows_of("CPUUtilization")))
        for metric, wanted in _METRICS.items():
            self._add(metric, system, wanted)
        cpu = next(iter(self._used["CPU"].values()), None)
        if cpu is not None:
            self.datapoints = cpu.size
            if cpu.size > MAX_DATAPOINTS:
                self._used = {metric: {} for metric in _METRICS}
        divisors = {"GPU": self._gpus, "GPU memory": self._gpus, "CPU": self._cores, "I/O": self._cores}
        for metric, nodes in self._used.items():
            details = self.details.setdefault(metric, {})
            for node, series in nodes.items():
                details.setdefault(node, {})
                divisor = len(divisors[metric]) if metric in divisors else 1
                self._shown[metric, node] = series, series.windows, divisor

    def _add(self, metric: str, system: SystemWindow, wanted: Callable[[Series], bool]) -> None:
        if not len(system):
            return
        chosen = np.array([wanted(series) for series in system.table], dtype=np.bool_)
        for node, rows in system.by_node(np.flatnonzero(chosen[system.series])).items():
            series = self._used[metric].setdefault(node, _SumsByTime())
            series.add(system.instants, system.instant[rows], system.values[rows])

    def finish(self) -> None:
        """Compute the percentiles of each series as it was last shown."""
        for (metric, node), (series, windows, divisor) in self._shown.items():
            sums = series.sums(windows)
            p50, p95, p99 = np.quantile(sums, (0.5, 0.95, 0.99))
            numbers = {"max": sums.max(), "p99": p99, "p95": p95, "p50": p50, "min": sums.min()}
            self.details[metric][node] = {name: _share(number, divisor) for name, number in numbers.items()}


def _share(number: np.float64, divisor: int) -> float:
    """Divide, floor at 0 and round as numpy does; infinite where GPU memory comes without GPUUtilization."""
    if number <= 0:
        return 0.0
    return float(np.round(number / divisor, _DECIMALS)) if divisor else float("inf")
