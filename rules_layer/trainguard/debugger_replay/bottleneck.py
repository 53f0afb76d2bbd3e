"""What the sub-rules on bottlenecks share: snapshots with an idle GPU and a busy core.

A snapshot begins with a sample more than 20 ms away from the last snapshot's beginning, in stream order, and is known
by that time alone.
"""

import numpy as np

from trainguard.debugger_replay.correlation import Correlation
from trainguard.debugger_replay.rule import MAX_DATAPOINTS, Number, RuleReport, Window
from trainguard.debugger_replay.system_stream import SystemWindow
from trainguard.telemetry.snapshots import FloatArray, IntArray

SNAPSHOT_S = 0.02


class Bottlenecks:
    """Counts snapshots in which some GPU's utilisation is below a threshold while some core's value is above another.

    Parameters
    ----------
    dimension : str
        The cores' dimension.
    core_threshold, gpu_threshold : number
        Percent.
    threshold : number
        Share of the snapshots, in percent, above which the rule answers true.
    patience : number
        Snapshots before that is judged.
    """

    def __init__(
        self, dimension: str, core_threshold: Number, gpu_threshold: Number, threshold: Number, patience: Number
    ) -> None:
        self._dimension = dimension
        self._core_threshold = core_threshold
        self._gpu_threshold = gpu_threshold
        self._threshold = threshold
        self._patience = patience
        self._snapshot_s = 0.0
        self._snapshots = 0
        self._low_gpu = 0
        self._found: dict[float, tuple[int, int]] = {}
        self._correlation = Correlation()

    def observe(self, window: Window, counts: RuleReport) -> None:
        """Fold one window in, and correlate its bottlenecks with framework events when there are too many."""
        if len(self._found) > MAX_DATAPOINTS:
            self._found = {}
        times = self._fold(window.system)
        counts.violations = len(self._found)
        counts.datapoints = self._snapshots
        if self._too_many():
            counts.rule_triggered += 1
            counts.details["bottlenecks"] = {}
            if self._found:
                counts.details["low_gpu_utilization"] = self._low_gpu
            self._correlation.at_points(window.framework, np.array(times) * 1000 * 1000, counts.details)
        else:
            counts.details["low_gpu_utilization"] = self._low_gpu
            counts.details["bottlenecks"] = {}

    def finish(self, counts: RuleReport) -> None:
        """Write the bottlenecks, and what correlated with them."""
        if "bottlenecks" in counts.details:
            counts.details["bottlenecks"] = {
                repr(time): {"GPUs": gpus, "CPUs": cores} for time, (gpus, cores) in self._found.items()
            }
        self._correlation.write(counts.details)

    def _too_many(self) -> bool:
        if self._snapshots <= self._patience or not self._snapshots:
            return False
        return len(self._found) / self._snapshots * 100 > self._threshold

    def _fold(self, system: SystemWindow) -> list[float]:
        """Return the times of the window's bottlenecks, in the order of their first busy core."""
        snapshots = np.repeat(self._snapshots_of(system), np.diff(system.run_starts, append=len(system)))
        gpus = _by_snapshot(snapshots, system, system.rows_of("GPUUtilization"), below=self._gpu_threshold)
        cores = _by_snapshot(snapshots, system, system.rows_of(self._dimension), above=self._core_threshold)
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
    """Count the rows with values within limits by snapshot, in the order of each snapshot's first such row."""
    values = system.values[rows]
    hit = rows[(values < below) & (values > above)]
    times, first, counts = np.unique(snapshots[hit], return_index=True, return_counts=True)
    order = np.argsort(first)
    return dict(zip(times[order].tolist(), counts[order].tolist(), strict=True))
