"""BatchSize: nodes whose CPUs, GPUs and GPU memory all leave room.

Kept defects: whiskers of memory use the utilisation's p25, ``last_timestamp`` is the first window's start, cores are
counted over all nodes, ``Datapoints`` is the last node's. A node without GPUs is not judged: the original raises.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.history import History, NodeHistories, box, chosen, upper_quantile
from trainguard.managed.rule import CompatibleRule, Number, RuleParameters, Window
from trainguard.managed.system_stream import SystemWindow


class BatchSizeParameters(RuleParameters, frozen=True, kw_only=True):
    """Thresholds of 95th percentiles in percent; ``window`` and ``patience`` in values."""

    cpu_threshold_p95: Number = 70
    gpu_threshold_p95: Number = 70
    gpu_memory_threshold_p95: Number = 70
    patience: Number = 1000
    window: Number = 500
    documented: ClassVar[Mapping[str, Number | str | None]] = {"patience": 100}


class BatchSize(CompatibleRule[BatchSizeParameters]):
    """Counts, once a window, every GPU with low utilisation and memory on a node with low CPU utilisation."""

    def __init__(self, parameters: BatchSizeParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._cpu: dict[str, History] = {}
        self._gpu = NodeHistories()
        self._memory = NodeHistories()
        self._cores: set[str] = set()
        self._small: dict[tuple[str, str], tuple[FloatArray, FloatArray, FloatArray]] = {}

    def observe(self, window: Window) -> None:
        """Append the window's values, then judge every node and its GPUs on their last ``window`` values."""
        self._memory.extend(window.system.of("GPUMemoryUtilization"))
        self._gpu.extend(window.system.of("GPUUtilization"))
        cores = window.system.rows_of("CPUUtilization")
        self._cores.update(window.system.names_in(cores))
        for node, rows in window.system.by_node(cores).items():
            # Each node's mean over cores, at each exact time in the order in which the times were met.
            self._cpu.setdefault(node, History()).extend(_sums_by_time(window.system, rows) / len(self._cores))
        for node, history in self._cpu.items():
            self.datapoints = len(history)
            if len(history) > self.parameters.window and len(history) > self.parameters.patience:
                self._judge(node, history)

    def _judge(self, node: str, history: History) -> None:
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
