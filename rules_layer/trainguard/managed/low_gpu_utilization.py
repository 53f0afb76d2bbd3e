"""LowGPUUtilization: GPUs whose 95th percentile is low, or whose 5th is while the 95th is high.

Kept defects: a 95th percentile at the threshold is neither; ``Datapoints`` is the last GPU's; unused GPUs, start-up and
idle tail count; beyond 1e6 values all state is dropped.
"""

from typing import TYPE_CHECKING

import numpy as np

from trainguard.managed.history import History, NodeHistories, box, chosen
from trainguard.managed.rule import MAX_DATAPOINTS, CompatibleRule, Number, RuleParameters, Window

if TYPE_CHECKING:
    from trainguard.formats.profile.snapshots import FloatArray


class LowGPUUtilizationParameters(RuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``window`` and ``patience`` in values of a GPU."""

    threshold_p95: Number = 70
    threshold_p5: Number = 10
    window: Number = 500
    patience: Number = 1000


class LowGPUUtilization(CompatibleRule[LowGPUUtilizationParameters]):
    """Counts, once a window, every GPU that is under-utilised or fluctuates."""

    def __init__(self, parameters: LowGPUUtilizationParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._used = NodeHistories()
        self._low: dict[tuple[str, str], tuple[FloatArray, float, float]] = {}

    def observe(self, window: Window) -> None:
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

    def _judge(self, node: str, gpu: str, history: History, start_us: int) -> None:
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
