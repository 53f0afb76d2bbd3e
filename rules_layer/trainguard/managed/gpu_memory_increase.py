"""GPUMemoryIncrease: the mean of a GPU's newest memory values against that of the ones before.

Kept defects: the second mean is of one value less and leaves the newest two out, so that a jump fires many times and a
slow leak never; ``Datapoints`` is the last GPU's; beyond 1e6 values all state is dropped.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.history import QUARTILES, NodeHistories, box, chosen
from trainguard.managed.rule import MAX_DATAPOINTS, CompatibleRule, Number, RuleParameters, Window
from trainguard.managed.system_stream import SeriesSamples


class GPUMemoryIncreaseParameters(RuleParameters, frozen=True, kw_only=True):
    """``increase`` in points of a percentage; ``patience`` and ``window`` in values of a GPU."""

    increase: Number = 5
    patience: Number = 1000
    window: Number = 10
    documented: ClassVar[Mapping[str, Number | str | None]] = {"increase": 10, "patience": 100, "window": 500}


# Values at which memory had increased: the first one's row, their number, node, GPU; history and increase then.
_Jumps = tuple[int, int, str, str, FloatArray, float]


class GPUMemoryIncrease(CompatibleRule[GPUMemoryIncreaseParameters]):
    """Counts every single value at which the newer mean exceeds the older one."""

    def __init__(self, parameters: GPUMemoryIncreaseParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._used = NodeHistories()
        self._newest: dict[tuple[str, str], tuple[FloatArray, float]] = {}

    def observe(self, window: Window) -> None:
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
