"""BatchSize: nodes whose CPUs, GPUs and GPU memory all leave room.

Kept defects: whiskers of memory use the utilisation's p25, ``last_timestamp`` is the first window's start, cores are
counted over all nodes, ``Datapoints`` is the last node's. A node without GPUs is not judged: the original raises.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.history import Box, History, NodeHistories, Past, upper_quantile
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

    name = "BatchSize"
    parameters_type = BatchSizeParameters

    def __init__(self, parameters: BatchSizeParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._cpu: dict[str, History] = {}
        self._gpu = NodeHistories()
        self._memory = NodeHistories()
        self._cores: set[str] = set()
        self._small: dict[tuple[str, str], tuple[Past, Past, Past]] = {}

    def observe(self, window: Window) -> None:
        """Append the window's values, then judge every node and its GPUs on their last ``window`` values."""
        for samples in window.system.of("GPUMemoryUtilization"):
            self._memory.of(samples.node, samples.name).extend(samples.values)
        for samples in window.system.of("GPUUtilization"):
            self._gpu.of(samples.node, samples.name).extend(samples.values)
        self._extend_cpu(window.system)
        for node, history in self._cpu.items():
            size = len(history)
            self.counts.datapoints = size
            if size > self.parameters.window and size > self.parameters.patience:
                self._judge(node, history)

    def _extend_cpu(self, system: SystemWindow) -> None:
        """Append each node's mean over cores, at each exact time in the order in which the times were met."""
        cores = system.rows_of("CPUUtilization")
        self._cores.update(system.names_in(cores))
        for node, rows in system.by_node(cores).items():
            self._cpu.setdefault(node, History()).extend(_sums_by_time(system, rows) / len(self._cores))

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
                self._record(node, gpu, Past(history, len(history)), Past(used, len(used)), Past(memory, len(memory)))

    def _record(self, node: str, gpu: str, cpu: Past, used: Past, memory: Past) -> None:
        self.counts.rule_triggered += 1
        self.counts.violations += 1
        details = self.counts.details.setdefault(node, {})
        for key in ("cpu", gpu, f"{gpu}_memory"):
            details.setdefault(key, {})
        self.counts.details["last_timestamp"] = self.first_us
        self._small[node, gpu] = (cpu, used, memory)

    def finish(self) -> None:
        """Compute the boxes of each GPU at its last violation, and of its node's CPUs at the node's last one."""
        newest: dict[str, Past] = {}
        for (node, gpu), (cpu, used, memory) in self._small.items():
            details: dict[str, Any] = self.counts.details[node]
            if node not in newest or cpu.size > newest[node].size:
                newest[node] = cpu
            of_gpu, of_memory = Box.of(used.values), Box.of(memory.values)
            details[gpu] = _quartiles(of_gpu) | of_gpu.whiskers()
            details[f"{gpu}_memory"] = _quartiles(of_memory) | of_memory.whiskers(of_gpu.p25)
        for node, cpu in newest.items():
            box = Box.of(cpu.values)
            self.counts.details[node]["cpu"] = _quartiles(box) | box.whiskers()


def _sums_by_time(system: SystemWindow, rows: IntArray) -> FloatArray:
    """Sum the rows' values at each distinct time, in the order of their first row."""
    instants = system.instant[rows]
    sums = np.bincount(instants, weights=system.values[rows], minlength=len(system.instants))
    met, first = np.unique(instants, return_index=True)
    return np.asarray(sums[met[np.argsort(first)]], dtype=np.float64)


def _quartiles(box: Box) -> dict[str, float]:
    return {"p25": box.p25, "p50": box.p50, "p75": box.p75, "p95": box.p95}
