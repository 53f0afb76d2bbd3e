"""Kinds of findings on GPU memory that rises, and their facts."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from trainguard.core.finding import Fact
from trainguard.render.details import SeriesDetails
from trainguard.rules.gpu_memory_increase.growth import FLOOR_QUANTILE, JUMP_WINDOWS, TREND_Z, Increase, Jump
from trainguard.rules.gpu_memory_increase.rise import TENTHS
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.windows.rule import column_boxes, column_quantiles
from trainguard.rules.windows.warm_up import node_fact, stream_end

SERIES = "GPUMemoryUtilization"


class MemoryKind(StrEnum):
    """Findings on a node's GPU memory: ``leak`` is of memory in use, others are of its activity."""

    LEAK = "leak"
    JUMP = "jump"
    RAMP = "ramp"
    TREND = "trend"
    LATE = "late"
    RISE = "rise"
    NO_LEAK = "no_leak"
    LOAD_EXPLAINS = "load_explains"
    NO_INCREASE = "no_increase"
    TOO_SHORT_FOR_LEAK = "too_short_for_leak"
    FIRST_WINDOWS = "first_windows"
    UNSAMPLED = "unsampled"
    INSTANCES_UNKNOWN = "instances_unknown"


def kind_of(worst: Increase, threshold: float) -> MemoryKind:
    """Return what is said about the worst GPU, against the threshold in percentage points."""
    if worst.kind is None:
        return MemoryKind.LOAD_EXPLAINS if worst.points > threshold else MemoryKind.NO_INCREASE
    return MemoryKind.RAMP if worst.is_ramp else MemoryKind(worst.kind)


def increase_facts(worst: Increase, view: NodeView, window_s: float, threshold: float) -> Iterator[Fact]:
    """Yield what one GPU's activity did: at most nine facts."""
    growth = worst.growth

    def fact(name: str, value: float, unit: str, **more: Any) -> Fact:
        return node_fact(name, value, view, unit=unit, series=SERIES, device=worst.gpu, **more)

    yield fact("increase", worst.points, "points", threshold=threshold)
    yield fact("rise_time", worst.windows * window_s, "s")
    yield fact("window", window_s, "s")
    floor = growth.floors[-1] if worst.kind == "trend" else growth.floor
    yield fact("p5_activity_at_work", floor / TENTHS, "%")
    yield fact("highest_mean_activity", (growth.highest_mean or 0) / TENTHS, "%")
    if worst.kind == "trend":
        yield fact("trend_z", worst.z or 0.0, "", threshold=TREND_Z)
    if worst.goes_on:
        yield fact("floor_of_rise", (growth.floors[-1] if worst.is_ramp else floor) / TENTHS, "%")
        yield fact("hourly_increase", worst.hourly(window_s), "points/h")
        if left_s := worst.time_left_s(window_s):
            yield fact("time_left", left_s, "s")
    elif worst.kind == "jump":
        yield fact("left_after_another", max(100.0 - growth.floor / TENTHS - worst.points, 0.0), "%")


def jump_facts(jump: Jump, view: NodeView) -> Iterator[Fact]:
    """Yield what the strongest jump so far was, where the newest is a weaker one."""
    where: dict[str, Any] = {"series": SERIES, "node": view.node, "device": jump.gpu, "start": jump.at}
    yield Fact(name="strongest_jump", value=jump.points, unit="points", **where)
    yield Fact(name="level_before", value=jump.highest / TENTHS, unit="%", **where)
    yield Fact(name="level_after", value=jump.floor / TENTHS, unit="%", **where)


def first_windows(view: NodeView, patience: int, window: int) -> tuple[MemoryKind, tuple[Fact, ...]]:
    """Return what is missing until the third window after patience is complete; both in points."""
    needed = patience + JUMP_WINDOWS * window
    facts = (
        node_fact("points", view.kept_total, view, threshold=float(needed)),
        node_fact("patience_points", patience, view),
        node_fact("window_points", window, view),
        node_fact("time_left", max(needed - view.kept_total, 0) * view.interval_s, view, unit="s"),
        node_fact("needed_time", needed * view.interval_s, view, unit="s"),
        node_fact("sampling_interval", view.interval_s, view, unit="s"),
        *stream_end(view),
    )
    return MemoryKind.UNSAMPLED if view.kept_total >= needed else MemoryKind.FIRST_WINDOWS, facts


class GpuMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU; quantiles are of the newest window, ``floors`` (percent) of windows of ``floor_s`` seconds each."""

    increase: float | None
    gpu_max: float
    p05: float | None = None
    p25: float | None = None
    p50: float | None = None
    p75: float | None = None
    p95: float | None = None
    upper: float | None = None
    lower: float | None = None
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
            kind=increase.kind,
            floors=[level / TENTHS for level in increase.growth.floors],
            floor_s=increase.growth.stride * window_s,
            **({} if box is None else box.shown),
        )
    return MemoryDetails(series)
