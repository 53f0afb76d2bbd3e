"""The GPUs of a trace, each on its own: busy time, filled multiprocessors, occupancy."""

from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Bools, Floats, Ints, Kind, Trace
from trainguard.kernels.intervals import Spans, clipped, merged
from trainguard.kernels.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU with work in the window; see `DeviceEntry`."""

    number: int
    name: str
    busy: Spans
    kernels: Spans
    sm_efficiency: float | None
    occupancy: float | None


def devices_of(trace: Trace, window: Window, in_window: Bools) -> list[Device]:
    """Return the GPUs with work in the window, by number."""
    return [_device(trace, window, number, in_window) for number in np.unique(trace.gpu.device[in_window]).tolist()]


def weighted(values: Floats, weights: Ints) -> float | None:
    """Return the mean of values that are known, weighted; None where none is or none has a weight."""
    known = ~np.isnan(values)
    total = int(weights[known].sum())
    return float((values[known] * weights[known]).sum()) / total if total else None


def _device(trace: Trace, window: Window, number: int, in_window: Bools) -> Device:
    gpu = trace.gpu
    mine = in_window & (gpu.device == number)
    kernels = mine & (gpu.kind <= Kind.COMMUNICATION)
    lasted = gpu.rows.end[kernels] - gpu.rows.start[kernels]
    occupied = weighted(gpu.occupancy[kernels], lasted)
    return Device(
        number=number,
        name=trace.gpus[number].name if 0 <= number < len(trace.gpus) else "",
        busy=_spans(trace, window, mine),
        kernels=_spans(trace, window, kernels),
        sm_efficiency=_sm_efficiency(trace, window, kernels),
        occupancy=None if occupied is None else round(occupied / 100, 4),
    )


def _spans(trace: Trace, window: Window, mask: Bools) -> Spans:
    rows = trace.gpu.rows
    return clipped(merged(rows.start[mask], rows.end[mask]), window.start, window.end)


def _sm_efficiency(trace: Trace, window: Window, kernels: Bools) -> float | None:
    """Return the share of multiprocessors with a block, over the window: blocks of kernels at once add up, up to 1."""
    known = kernels & ~np.isnan(trace.gpu.blocks_per_sm)
    if not known.any() or not window.length:
        return None
    start = np.maximum(trace.gpu.rows.start[known], window.start)
    end = np.maximum(np.minimum(trace.gpu.rows.end[known], window.end), start)
    blocks = np.minimum(trace.gpu.blocks_per_sm[known], 1.0)
    times = np.concatenate((start, end))
    order = np.argsort(times, kind="stable")
    filled = np.cumsum(np.concatenate((blocks, -blocks))[order])[:-1]
    return round(float((np.clip(filled, 0, 1) * np.diff(times[order])).sum()) / window.length, 4)
