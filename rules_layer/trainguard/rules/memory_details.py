"""What reports show of each GPU's memory."""

from collections.abc import Sequence

import msgspec

from trainguard.rules.details import SeriesDetails
from trainguard.rules.memory_growth import FLOOR_QUANTILE, Increase
from trainguard.rules.memory_rise import TENTHS
from trainguard.rules.quantiles import column_boxes, column_quantiles
from trainguard.rules.rule_inputs import NodeView


class GpuMemory(msgspec.Struct, frozen=True):
    """A GPU; quantiles are of the newest window, ``floors`` (percent) of windows of ``floor_s`` seconds each."""

    increase: float | None
    gpu_max: float
    p05: float | None
    p25: float | None
    p50: float | None
    p75: float | None
    p95: float | None
    upper: float | None
    lower: float | None
    kind: str | None
    floors: list[float]
    floor_s: float


class MemoryDetails(SeriesDetails, frozen=True):
    """A node's GPUs; ``in_use`` says that floors are of memory in use, and not of its activity."""

    series: dict[str, GpuMemory]
    in_use: bool = False


def details_of(increases: Sequence[Increase], view: NodeView, window: int, window_s: float) -> MemoryDetails:
    """Return the numbers of every judged GPU; ``window`` in points, ``window_s`` in seconds."""
    held = view.kept_gpu_memory[-window:]
    boxes = dict(zip(view.gpu_names, column_boxes(held), strict=True))
    floors = dict(zip(view.gpu_names, column_quantiles(held, (FLOOR_QUANTILE,))[0].tolist(), strict=True))
    series = {}
    for increase in increases:
        box = boxes[increase.gpu]
        series[increase.gpu] = GpuMemory(
            increase=increase.points,
            gpu_max=increase.growth.largest / TENTHS,
            p05=None if box is None else floors[increase.gpu],
            p25=None if box is None else box.p25,
            p50=None if box is None else box.p50,
            p75=None if box is None else box.p75,
            p95=None if box is None else box.p95,
            upper=None if box is None else box.upper,
            lower=None if box is None else box.lower,
            kind=increase.kind,
            floors=[level / TENTHS for level in increase.growth.floors],
            floor_s=increase.growth.stride * window_s,
        )
    return MemoryDetails(series)
