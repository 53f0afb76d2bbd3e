"""What a node did over the newest window, and what reports show of it."""

import math
from dataclasses import dataclass

import msgspec
import numpy as np

from trainguard.rules.details import SeriesDetails
from trainguard.rules.quantiles import Box, column_boxes, counted_boxes
from trainguard.rules.rule_inputs import NodeView
from trainguard.telemetry.snapshots import FloatArray

MEMORY_NOTE = (
    "GPUMemoryUtilization is how busy the memory controller was, not how much memory was in use: a larger batch may "
    "need more memory than it suggests."
)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a node did over the newest window of W points.

    ``window`` is float64[W, 1 + 2 A]: mean CPU, then utilization and memory activity of the A ever-active ``gpus``;
    the 95th quantiles are of its columns, NaN where a series has no sample.
    """

    window: FloatArray
    gpus: tuple[str, ...]
    judged: bool
    cpu: float
    gpu: list[float]
    memory: list[float]

    @property
    def never_seen(self) -> str | None:
        """The series of which the window has no sample; that a GPU was used says that utilization has some."""
        sampled = ~np.isnan(self.window)
        if not sampled[:, 0].any():
            return "CPUUtilization"
        return None if sampled[:, 1 + len(self.gpus) :].any() else "GPUMemoryUtilization"


class SeriesUsage(msgspec.Struct, frozen=True):
    """The CPU, a GPU or its memory; ``window_p95`` is of the newest window, None where that has no sample."""

    p25: float | None
    p50: float | None
    p75: float | None
    p95: float | None
    upper: float | None
    lower: float | None
    window_p95: float | None


class BatchDetails(SeriesDetails, frozen=True, kw_only=True):
    """A node's ``cpu``, ``gpu0``, ``gpu0_memory`` and so on; ``last_timestamp`` in epoch microseconds."""

    series: dict[str, SeriesUsage]
    memory_note: str
    last_timestamp: int | None


def details_of(view: NodeView, usage: Usage) -> BatchDetails:
    """Return boxes: of utilization over all kept points, of CPU and memory activity over the newest window."""
    gpus = len(usage.gpus)
    cpu, *memory = column_boxes(usage.window[:, [0, *range(1 + gpus, 1 + 2 * gpus)]])
    utilization = counted_boxes(view.gpu_histogram[view.ever_active])
    boxes = {"cpu": (cpu, usage.cpu)}
    for index, name in enumerate(usage.gpus):
        boxes[name] = (utilization[index], usage.gpu[index])
        boxes[f"{name}_memory"] = (memory[index], usage.memory[index])
    return BatchDetails(
        series={
            name: _series(box, newest)
            for name, (box, newest) in boxes.items()
            if box is not None and not math.isnan(box.p50)
        },
        memory_note=MEMORY_NOTE,
        last_timestamp=None if view.watermark_s is None else round(view.watermark_s * 1e6),
    )


def _series(box: Box, newest: float) -> SeriesUsage:
    return SeriesUsage(box.p25, box.p50, box.p75, box.p95, box.upper, box.lower, None if math.isnan(newest) else newest)
