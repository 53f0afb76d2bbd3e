"""What the managed rules over system metrics answer, with their defects."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.history import QUARTILES, ManagedHistory, NodeHistories, box, chosen, upper_quantile
from trainguard.managed.rule import MAX_DATAPOINTS, CompatibleRule, ManagedRuleParameters, ManagedWindow, Number
from trainguard.managed.system_stream import ManagedSeries, SeriesSamples, SystemWindow

_METRICS: dict[str, Callable[[ManagedSeries], bool]] = {
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


class ManagedOverallSystemUsage(CompatibleRule[ManagedRuleParameters]):
    """Reports the percentiles of six metrics for every node; never triggers."""

    def __init__(self, parameters: ManagedRuleParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._used: dict[str, dict[str, _SumsByTime]] = {metric: {} for metric in _METRICS}
        self._shown: dict[tuple[str, str], tuple[_SumsByTime, int, int]] = {}
        """By metric and node: the series, after how many windows, and its divisor."""

        self._gpus: set[str] = set()
        self._cores: set[str] = set()

    def observe(self, window: ManagedWindow) -> None:
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

    def _add(self, metric: str, system: SystemWindow, wanted: Callable[[ManagedSeries], bool]) -> None:
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


class ManagedBatchSizeParameters(ManagedRuleParameters, frozen=True, kw_only=True):
    """Thresholds of 95th percentiles in percent; ``window`` and ``patience`` in values."""

    cpu_threshold_p95: Number = 70
    gpu_threshold_p95: Number = 70
    gpu_memory_threshold_p95: Number = 70
    patience: Number = 1000
    window: Number = 500
    documented: ClassVar[Mapping[str, Number | str | None]] = {"patience": 100}


class ManagedBatchSize(CompatibleRule[ManagedBatchSizeParameters]):
    """Counts, once a window, every GPU with low utilisation and memory on a node with low CPU utilisation."""

    def __init__(self, parameters: ManagedBatchSizeParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._cpu: dict[str, ManagedHistory] = {}
        self._gpu = NodeHistories()
        self._memory = NodeHistories()
        self._cores: set[str] = set()
        self._small: dict[tuple[str, str], tuple[FloatArray, FloatArray, FloatArray]] = {}

    def observe(self, window: ManagedWindow) -> None:
        """Append the window's values, then judge every node and its GPUs on their last ``window`` values."""
        self._memory.extend(window.system.of("GPUMemoryUtilization"))
        self._gpu.extend(window.system.of("GPUUtilization"))
        cores = window.system.rows_of("CPUUtilization")
        self._cores.update(window.system.names_in(cores))
        for node, rows in window.system.by_node(cores).items():
            # Each node's mean over cores, at each exact time in the order in which the times were met.
            self._cpu.setdefault(node, ManagedHistory()).extend(_sums_by_time(window.system, rows) / len(self._cores))
        for node, history in self._cpu.items():
            self.datapoints = len(history)
            if len(history) > self.parameters.window and len(history) > self.parameters.patience:
                self._judge(node, history)

    def _judge(self, node: str, history: ManagedHistory) -> None:
        limits = self.parameters
        cpu = upper_quantile(history.last(limits.window), 0.95)
        if not cpu < limits.cpu_threshold_p95:
            return
        for gpu, used in self._gpu.nodes.get(node, {}).items():
            if len(used) <= limits.window:
                continue
            memory = self._memory.of(node, gpu)
            high = upper_quantile(used.last(limits.window), 0.95)
            high_memory = upper_quantile(memory.last(limits.window), 0.95)
            if high < limits.gpu_threshold_p95 and high_memory < limits.gpu_memory_threshold_p95:
                self.triggered += 1
                self.violations += 1
                details = self.details.setdefault(node, {})
                for key in ("cpu", gpu, f"{gpu}_memory"):
                    details.setdefault(key, {})
                self.details["last_timestamp"] = self.first_us
                self._small[node, gpu] = (history.values, used.values, memory.values)

    def finish(self) -> None:
        """Compute the boxes of each GPU at its last violation, and of its node's CPUs at the node's last one."""
        newest: dict[str, FloatArray] = {}
        for (node, gpu), (cpu, used, memory) in self._small.items():
            details: dict[str, Any] = self.details[node]
            if node not in newest or cpu.size > newest[node].size:
                newest[node] = cpu
            of_gpu = box(used)
            details[gpu] = chosen(of_gpu)
            details[f"{gpu}_memory"] = chosen(box(memory, p25_of_range=of_gpu["p25"]))
        for node, cpu in newest.items():
            self.details[node]["cpu"] = chosen(box(cpu))


def _sums_by_time(system: SystemWindow, rows: IntArray) -> FloatArray:
    """Sum the rows' values at each distinct time, in the order of their first row."""
    instants = system.instant[rows]
    sums = np.bincount(instants, weights=system.values[rows], minlength=len(system.instants))
    met, first = np.unique(instants, return_index=True)
    return np.asarray(sums[met[np.argsort(first)]], dtype=np.float64)


class ManagedGPUMemoryIncreaseParameters(ManagedRuleParameters, frozen=True, kw_only=True):
    """``increase`` in points of a percentage; ``patience`` and ``window`` in values of a GPU."""

    increase: Number = 5
    patience: Number = 1000
    window: Number = 10
    documented: ClassVar[Mapping[str, Number | str | None]] = {"increase": 10, "patience": 100, "window": 500}


# Values at which memory had increased: the first one's row, their number, node, GPU; history and increase then.
_Jumps = tuple[int, int, str, str, FloatArray, float]


class ManagedGPUMemoryIncrease(CompatibleRule[ManagedGPUMemoryIncreaseParameters]):
    """Counts every single value at which the newer mean exceeds the older one."""

    def __init__(self, parameters: ManagedGPUMemoryIncreaseParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._used = NodeHistories()
        self._newest: dict[tuple[str, str], tuple[FloatArray, float]] = {}

    def observe(self, window: ManagedWindow) -> None:
        """Append the window's values one after the other, judging after each."""
        for piece in self._used.pieces(window.system.of("GPUMemoryUtilization"), MAX_DATAPOINTS):
            for _, count, node, gpu, values, increase in sorted(self._judge(piece), key=lambda jumps: jumps[0]):
                self.violations += count
                self.triggered += count
                self.details.setdefault(node, {}).setdefault(gpu, {})
                self.details["last_timestamp"] = window.start_us
                self._newest[node, gpu] = values, increase
        self.datapoints = self._used.points

    def _judge(self, piece: Iterable[SeriesSamples]) -> Iterator[_Jumps]:
        for part in piece:
            values = self._used.of(part.node, part.name).values
            sizes = np.arange(len(values) - len(part.values) + 1, len(values) + 1)
            increases = _increases(values, sizes, int(self.parameters.window))
            judged = (sizes > self.parameters.window + 1) & (sizes > self.parameters.patience)
            judged &= sizes <= MAX_DATAPOINTS
            fired = np.flatnonzero(judged & (increases > self.parameters.increase))
            if fired.size:
                past, increase = values[: sizes[fired[-1]]], float(increases[fired[-1]])
                yield int(part.rows[fired[0]]), fired.size, part.node, part.name, past, increase

    def finish(self) -> None:
        for (node, gpu), (values, increase) in self._newest.items():
            numbers = box(values)
            shown = {"increase": increase, "gpu_max": numbers["max"]}
            self.details[node][gpu] = shown | chosen(numbers, ("p05", *QUARTILES))


def _increases(known: FloatArray, sizes: IntArray, window: int) -> FloatArray:
    """Return mean of [-window:] less mean of [-window - 1:-2] at each size; NaN where there is none."""
    increases = np.full(len(sizes), np.nan)
    enough = sizes > window
    if window < 2 or not enough.any():
        return increases
    start = int(sizes[enough][0]) - window - 1
    values = known[start:]
    newer = sliding_window_view(values[1:], window).mean(axis=1)
    older = sliding_window_view(values[:-2], window - 1).mean(axis=1)
    increases[enough] = newer - older
    return increases


class ManagedLowGPUUtilizationParameters(ManagedRuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``window`` and ``patience`` in values of a GPU."""

    threshold_p95: Number = 70
    threshold_p5: Number = 10
    window: Number = 500
    patience: Number = 1000


class ManagedLowGPUUtilization(CompatibleRule[ManagedLowGPUUtilizationParameters]):
    """Counts, once a window, every GPU that is under-utilised or fluctuates."""

    def __init__(self, parameters: ManagedLowGPUUtilizationParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._used = NodeHistories()
        self._low: dict[tuple[str, str], tuple[FloatArray, float, float]] = {}

    def observe(self, window: ManagedWindow) -> None:
        """Append the window's values, then judge every GPU on its last ``window`` values."""
        self._used.extend(window.system.of("GPUUtilization"))
        overflow = False
        for node, gpu, history in self._used:
            self.datapoints = len(history)
            overflow |= len(history) > MAX_DATAPOINTS
            if len(history) > self.parameters.patience:
                self._judge(node, gpu, history, window.start_us)
        if overflow:
            self._used = NodeHistories()

    def _judge(self, node: str, gpu: str, history: ManagedHistory, start_us: int) -> None:
        newest = history.last(self.parameters.window)
        if not newest.size:
            return
        high, low = np.quantile(newest, (0.95, 0.05)).tolist()
        under = high < self.parameters.threshold_p95
        fluctuating = high > self.parameters.threshold_p95 and low < self.parameters.threshold_p5
        if not (under or fluctuating):
            return
        self.triggered += 1
        self.violations += 1
        self.details.setdefault(node, {}).setdefault(gpu, {})
        self.details["last_timestamp"] = start_us
        self._low[node, gpu] = (history.values, high, low)

    def finish(self) -> None:
        for (node, gpu), (values, high, low) in self._low.items():
            numbers = box(values)
            self.details[node][gpu] = {"gpu_max": numbers["max"], "gpu_95": high, "gpu_5": low} | chosen(numbers)


_EDGES = np.arange(0, 100, 2)


class ManagedLoadBalancingParameters(ManagedRuleParameters, frozen=True, kw_only=True):
    """Threshold of the distance between histograms, in [0, 0.83]; ``patience`` in values of a GPU."""

    threshold: Number = 0.2
    patience: Number = 1000
    documented: ClassVar[Mapping[str, Number | str | None]] = {"threshold": 0.5, "patience": 10}


class ManagedLoadBalancing(CompatibleRule[ManagedLoadBalancingParameters]):
    """Reports a histogram of every GPU's whole history, in bins 2 points wide up to 98 %."""

    def __init__(self, parameters: ManagedLoadBalancingParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._used = NodeHistories()
        self._shown: dict[tuple[str, str], FloatArray] = {}

    def observe(self, window: ManagedWindow) -> None:
        """Append the window's values; what the report shows follows every window."""
        for _ in self._used.pieces(window.system.of("GPUUtilization"), MAX_DATAPOINTS):
            pass
        self.datapoints = self._used.points
        for node, gpu, history in self._used:
            self.details.setdefault(node, {"workloads": {}})["workloads"].setdefault(gpu, [])
            self._shown[node, gpu] = history.values

    def finish(self) -> None:
        for (node, gpu), values in self._shown.items():
            counts, _ = np.histogram(values, bins=_EDGES)
            self.details[node]["workloads"][gpu] = counts.tolist()
