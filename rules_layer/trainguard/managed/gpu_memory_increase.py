"""GPUMemoryIncrease: the mean of a GPU's newest memory values against that of the ones before.

Kept defects: the second mean is of one value less and leaves the newest two out, so that a jump fires many times and a
slow leak never; ``Datapoints`` is the last GPU's; beyond 1e6 values all state is dropped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.history import Box, History, NodeHistories, Past
from trainguard.managed.rule import MAX_DATAPOINTS, CompatibleRule, Number, RuleParameters, Window
from trainguard.managed.system_stream import SeriesSamples, pieces_between_resets


class GPUMemoryIncreaseParameters(RuleParameters, frozen=True, kw_only=True):
    """``increase`` in points of a percentage; ``patience`` and ``window`` in values of a GPU."""

    increase: Number = 5
    patience: Number = 1000
    window: Number = 10
    documented: ClassVar[Mapping[str, Number | str | None]] = {"increase": 10, "patience": 100, "window": 500}


@dataclass(frozen=True, slots=True)
class _Jumps:
    """Values of one GPU at which memory had increased: the first one's row, and the newest one."""

    first_row: int
    count: int
    node: str
    gpu: str
    newest: Past
    increase: float


class GPUMemoryIncrease(CompatibleRule[GPUMemoryIncreaseParameters]):
    """Counts every single value at which the newer mean exceeds the older one."""

    name = "GPUMemoryIncrease"
    parameters_type = GPUMemoryIncreaseParameters

    def __init__(self, parameters: GPUMemoryIncreaseParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._used = NodeHistories()
        self._jumps: dict[tuple[str, str], _Jumps] = {}

    def observe(self, window: Window) -> None:
        """Append the window's values one after the other, judging after each."""
        sizes = {(node, gpu): len(history) for node, gpu, history in self._used}
        samples = window.system.of("GPUMemoryUtilization")
        for number, piece in enumerate(pieces_between_resets(samples, sizes, MAX_DATAPOINTS)):
            if number:
                self._used = NodeHistories()
            self._record(self._judge(piece), window.start_us)

    def _judge(self, piece: Iterable[SeriesSamples]) -> list[_Jumps]:
        found = []
        last_row = -1
        for part in piece:
            history = self._used.of(part.node, part.name)
            known = len(history)
            history.extend(part.values)
            if part.rows[-1] > last_row:
                last_row = int(part.rows[-1])
                self.counts.datapoints = len(history)
            sizes = np.arange(known + 1, len(history) + 1)
            increases = _increases(history, sizes, int(self.parameters.window))
            judged = (sizes > self.parameters.window + 1) & (sizes > self.parameters.patience)
            judged &= sizes <= MAX_DATAPOINTS
            fired = np.flatnonzero(judged & (increases > self.parameters.increase))
            if fired.size:
                newest = int(fired[-1])
                past = Past(history, int(sizes[newest]))
                row = int(part.rows[fired[0]])
                found.append(_Jumps(row, fired.size, part.node, part.name, past, float(increases[newest])))
        return sorted(found, key=lambda jumps: jumps.first_row)

    def _record(self, found: list[_Jumps], start_us: int) -> None:
        for jumps in found:
            self.counts.violations += jumps.count
            self.counts.rule_triggered += jumps.count
            self.counts.details.setdefault(jumps.node, {}).setdefault(jumps.gpu, {})
            self.counts.details["last_timestamp"] = start_us
            self._jumps[jumps.node, jumps.gpu] = jumps

    def finish(self) -> None:
        """Compute each GPU's box at its last violation."""
        for (node, gpu), jumps in self._jumps.items():
            box = Box.of(jumps.newest.values)
            self.counts.details[node][gpu] = {
                "increase": jumps.increase,
                "gpu_max": box.largest,
                "p05": box.p05,
                "p25": box.p25,
                "p50": box.p50,
                "p75": box.p75,
                "p95": box.p95,
                **box.whiskers(),
            }


def _increases(history: History, sizes: IntArray, window: int) -> FloatArray:
    """Return mean of [-window:] less mean of [-window - 1:-2] at each size; NaN where there is none."""
    increases = np.full(len(sizes), np.nan)
    enough = sizes > window
    if window < 2 or not enough.any():
        return increases
    start = int(sizes[enough][0]) - window - 1
    values = history.values[start:]
    newer = sliding_window_view(values[1:], window).mean(axis=1)
    older = sliding_window_view(values[:-2], window - 1).mean(axis=1)
    increases[enough] = newer - older
    return increases
