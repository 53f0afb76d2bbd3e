"""CPUBottleneck and IOBottleneck: snapshots in which a GPU waits while a core is busy, or waits for I/O.

A snapshot begins with a sample more than 20 ms away from the last one's beginning, in stream order. Kept defects
(docs/differences.md): nodes of one time share snapshots, one idle GPU and one core suffice, ``ratio`` has its labels
swapped, a window's edge counts twice.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.framework_time import ManagedCorrelation
from trainguard.managed.rule import MAX_DATAPOINTS, CompatibleRule, ManagedRuleParameters, ManagedWindow, Number, P
from trainguard.managed.system_stream import SystemWindow

SNAPSHOT_S = 0.02


class _Bottleneck(CompatibleRule[P]):
    """Triggers where the share of snapshots with a low GPU and a high core exceeds the threshold, in percent."""

    dimension: ClassVar[str]
    core_parameter: ClassVar[str]

    def __init__(self, parameters: P, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._limits: dict[str, Number] = {name: getattr(parameters, name) for name in parameters.__struct_fields__}
        self._snapshot_s = 0.0
        self._snapshots = 0
        self._low_gpu = 0
        self._found: dict[float, tuple[int, int]] = {}
        self._correlation = ManagedCorrelation()

    def observe(self, window: ManagedWindow) -> None:
        if len(self._found) > MAX_DATAPOINTS:
            self._found = {}
        times = self._fold(window.system)
        details = self.details
        self.violations = len(self._found)
        self.datapoints = self._snapshots
        enough = self._snapshots > self._limits["patience"] and self._snapshots
        if enough and len(self._found) / self._snapshots * 100 > self._limits["threshold"]:
            self.triggered += 1
            details["bottlenecks"] = {}
            if self._found:
                details["low_gpu_utilization"] = self._low_gpu
            points = np.array(times) * 1000 * 1000
            self._correlation.ask(window.framework, points, points, details, strict=True)
        else:
            details["low_gpu_utilization"] = self._low_gpu
            details["bottlenecks"] = {}

    def finish(self) -> None:
        details = self.details
        if "bottlenecks" in details:
            details["bottlenecks"] = {
                repr(time): {"GPUs": gpus, "CPUs": cores} for time, (gpus, cores) in self._found.items()
            }
        self._correlation.write(details)

    def _fold(self, system: SystemWindow) -> list[float]:
        """Return the times of the window's bottlenecks, in the order of their first busy core."""
        snapshots = np.repeat(self._snapshots_of(system), np.diff(system.run_starts, append=len(system)))
        gpus = _by_snapshot(snapshots, system, system.rows_of("GPUUtilization"), below=self._limits["gpu_threshold"])
        cores = _by_snapshot(snapshots, system, system.rows_of(self.dimension), above=self._limits[self.core_parameter])
        self._low_gpu += len(gpus)
        times = [time for time in cores if time in gpus]
        for time in times:
            self._found[time] = (gpus[time], cores[time])
        return times

    def _snapshots_of(self, system: SystemWindow) -> FloatArray:
        """Return each run's snapshot; runs are samples of one time in a row."""
        snapshot = self._snapshot_s
        found = []
        for time in system.times[system.run_starts].tolist():
            if abs(snapshot - time) > SNAPSHOT_S:
                snapshot = time
                self._snapshots += 1
            found.append(snapshot)
        self._snapshot_s = snapshot
        return np.array(found, dtype=np.float64)


def _by_snapshot(
    snapshots: FloatArray, system: SystemWindow, rows: IntArray, below: Number = np.inf, above: Number = -np.inf
) -> dict[float, int]:
    """Count rows within limits by snapshot, in the order of each snapshot's first such row."""
    values = system.values[rows]
    hit = rows[(values < below) & (values > above)]
    times, first, counts = np.unique(snapshots[hit], return_index=True, return_counts=True)
    order = np.argsort(first)
    return dict(zip(times[order].tolist(), counts[order].tolist(), strict=True))


class ManagedCPUBottleneckParameters(ManagedRuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``patience`` in snapshots."""

    threshold: Number = 50
    cpu_threshold: Number = 90
    gpu_threshold: Number = 10
    patience: Number = 1000
    documented: ClassVar[Mapping[str, Number | str | None]] = {"patience": 100}


class ManagedCPUBottleneck(_Bottleneck[ManagedCPUBottleneckParameters]):
    """Judges cores that are busy."""

    dimension, core_parameter = "CPUUtilization", "cpu_threshold"


class ManagedIOBottleneckParameters(ManagedRuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``patience`` in snapshots."""

    threshold: Number = 50
    io_threshold: Number = 50
    gpu_threshold: Number = 10
    patience: Number = 1000
    documented: ClassVar[Mapping[str, Number | str | None]] = {"gpu_threshold": 70}


class ManagedIOBottleneck(_Bottleneck[ManagedIOBottleneckParameters]):
    """Judges cores that wait for I/O."""

    dimension, core_parameter = "I/OWaitPercentage", "io_threshold"
