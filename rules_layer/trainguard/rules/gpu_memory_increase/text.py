"""Kinds of findings on GPU memory that rises, their facts, details and words."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from trainguard.core.finding import Fact, Status, clock
from trainguard.core.units import show_duration, show_number, show_percentage_points
from trainguard.render.details import SeriesDetails
from trainguard.rules.gpu_memory_increase.growth import FLOOR_QUANTILE, JUMP_WINDOWS, TREND_Z, Increase, Jump
from trainguard.rules.gpu_memory_increase.rise import TENTHS
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.windows.rule import column_boxes, column_quantiles
from trainguard.rules.windows.warm_up import node_fact, or_undecided, stream_end

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


LONG_WAIT_S = 7_200.0
KEPT_TENSORS = "tensors that are kept from step to step (losses summed with their graph, growing lists and caches)"
METRIC = (
    "the metric is the activity of the memory controller, not memory in use: check that first (nvidia-smi, or the peak "
    "that the framework reports)"
)
_GIGA = 1e9


@or_undecided
def text(sheet: FactSheet) -> Words:
    kind = MemoryKind(sheet.kind)
    if sheet.status is not Status.FIRED:
        return Words(_CALM[kind](sheet) if kind in _CALM else _activity(sheet, kind))
    if kind is MemoryKind.LEAK:
        return _leak_over(sheet) if sheet.past else _leak(sheet)
    if sheet.past and kind is not MemoryKind.JUMP:
        return _growth_over(sheet)
    return Words(_activity(sheet, kind), _advice(sheet, kind), f"the memory activity of {_place(sheet)} rose")


def _place(sheet: FactSheet) -> str:
    fact = sheet["increase"]
    return f"{fact.device} on {fact.node}"


def _amount(sheet: FactSheet) -> str:
    fact = sheet["increase"]
    return f"{show_percentage_points(float(fact.value))} (threshold {show_number(fact.threshold or 0.0)})"


def _more(sheet: FactSheet, what: str) -> str:
    gpus = sheet.get("gpus_affected")
    return "" if gpus is None or int(gpus.value) < 2 else f"; {int(gpus.value)} GPUs of {gpus.node} {what}"


def _activity(sheet: FactSheet, kind: MemoryKind) -> str:
    where, floor, amount = f"{_place(sheet)}: memory activity", sheet.percent("p5_activity_at_work"), _amount(sheet)
    span, more = sheet.duration("rise_time"), f"{_stronger(sheet)}{_more(sheet, 'show an increase')}."
    if kind is MemoryKind.TREND:
        z = sheet["trend_z"]
        return (
            f"{where} grows: its floor rose by {amount} in {span}, to {floor}; Mann-Kendall Z is "
            f"{show_number(float(z.value))} (threshold {z.threshold or 0.0:g}){more}"
        )
    if kind is MemoryKind.RISE:
        return f"{where} grows: its floor rose by {amount} in {span}, window after window, to {floor}{more}"
    if kind is MemoryKind.LATE:
        return f"{where} grows: its floor of {floor} is {amount} above the highest until {span} before{more}"
    newest = f"over the last window of {sheet.duration('window')} its floor {'was' if sheet.past else 'is'} {floor}"
    before = f"the highest mean of all windows but the last two, {sheet.percent('highest_mean_activity')}"
    if kind in {MemoryKind.JUMP, MemoryKind.RAMP}:
        grows = "grew" if sheet.past else "grows"
        how = "jumped" if kind is MemoryKind.JUMP else f"{grows} from window to window"
        return f"{where} {how}: {newest}, {amount} above {before}{more}"
    none = f"{where} shows no increase: {newest}"
    if kind is MemoryKind.LOAD_EXPLAINS:
        return f"{none}, {amount} above {before}; the GPU's load explains most of that{more}"
    threshold = show_number(sheet["increase"].threshold or 0.0)
    return f"{none} (threshold {threshold} percentage points above {before}){more}"


def _stronger(sheet: FactSheet) -> str:
    jump = sheet.get("strongest_jump")
    if jump is None or jump.start is None:
        return ""
    when, amount = clock(jump.start), show_percentage_points(float(jump.value))
    levels = f"from {sheet.percent('level_before')} to {sheet.percent('level_after')}"
    return f"; the strongest jump was of {amount}, {levels} on {jump.device}, at {when}"


def _advice(sheet: FactSheet, kind: MemoryKind) -> str:
    gpu = sheet["increase"].device
    if kind is MemoryKind.JUMP:
        return (
            f"Look at what changed on {gpu} in the {sheet.duration('rise_time')} of the jump: longer inputs, a larger "
            f"batch, a cache; one more such jump leaves {sheet.percent('left_after_another')}. For a job that needs "
            f"the memory take GPUs with more of it; {METRIC}."
        )
    full = ""
    if sheet.get("time_left") is not None:
        verb, later = ("is", "") if sheet.get("stream_end") is None else ("would have been", " more")
        full = f", and at that rate {gpu} {verb} at 100 % in {sheet.duration('time_left')}{later}"
    return (
        f"It grew by {show_percentage_points(sheet.number('hourly_increase'))} an hour{full}: look for {KEPT_TENSORS}, "
        f"save checkpoints, or take GPUs with more memory; {METRIC}."
    )


def _growth_over(sheet: FactSheet) -> Words:
    place = _place(sheet)
    return Words(
        f"{place}: memory activity grew and stopped: its floor rose by {_amount(sheet)} in "
        f"{sheet.duration('rise_time')}, to {sheet.percent('floor_of_rise')}.",
        f"Nothing needs to be changed if the batches, the inputs or a cache of {place} grew to their size: the memory "
        f"activity stopped growing. If nothing did, look for {KEPT_TENSORS}; {METRIC}.",
        f"the memory activity of {place} rose, and stopped rising",
    )


def _gigabytes(fact: Fact) -> str:
    return f"{show_number(float(fact.value) / _GIGA)} GB"


def _in_use(sheet: FactSheet) -> str:
    return f"{_gigabytes(sheet['memory_in_use'])} of {_gigabytes(sheet['memory_total'])}"


def _leak(sheet: FactSheet) -> Words:
    place, ended = _place(sheet), sheet.get("stream_end") is not None
    left = None if sheet.get("time_left") is None else sheet.duration("time_left")
    risen = f"{_amount(sheet)} in {sheet.duration('rise_time')}, {_gigabytes(sheet['hourly_bytes'])} an hour"
    if ended:
        full = f", and at that rate would have been full {left} later" if left else ""
        now = f", up to the end; it was {_in_use(sheet)} then{full}"
    else:
        now = f"; it is {_in_use(sheet)} now" + (f", and full in {left} at that rate" if left else "")
    reason = f"{place} leaks memory: what is in use rose by {risen}{now}{_more(sheet, 'leak')}."
    look, hourly = f"ook for {KEPT_TENSORS}: memory in use ", show_percentage_points(sheet.number("hourly_increase"))
    if ended:
        advice = f"L{look}of {place} rose by {hourly} an hour and was never given back."
    else:
        within = f" within {left}, before {place} is full" if left else ""
        advice = f"Save a checkpoint{within}, and l{look}rises by {hourly} an hour and is never given back."
    return Words(reason, advice, f"{place} leaked memory")


def _leak_over(sheet: FactSheet) -> Words:
    place = _place(sheet)
    return Words(
        f"memory in use of {place} rose and stopped: by {_amount(sheet)} in {sheet.duration('rise_time')}, to "
        f"{_in_use(sheet)}{_more(sheet, 'did so')}.",
        f"Nothing needs to be changed if a cache, or a pool of memory, filled up to its size on "
        f"{place.replace(' on ', ' of ')}: what is in use stopped rising. If nothing did, look for {KEPT_TENSORS}.",
        f"the memory in use of {place} rose, and stopped rising",
    )


def _no_leak(sheet: FactSheet) -> str:
    used, threshold = sheet.percent("memory_in_use_share"), show_number(sheet["increase"].threshold or 0.0)
    return (
        f"no GPU of {sheet['increase'].node} leaks memory: of {_place(sheet)} {_in_use(sheet)} are in use, {used} "
        f"(threshold {threshold} percentage points more)."
    )


def _first_windows(sheet: FactSheet) -> str:
    points = sheet["points"]
    patience, window = sheet.count("patience_points"), sheet.count("window_points")
    reason = (
        f"{points.node} has {int(points.value):,} of the {int(points.threshold or 0):,} points that a first verdict "
        f"takes, {patience:,} of patience and {JUMP_WINDOWS} windows of {window:,}"
    )
    if sheet.get("stream_end") is not None:
        return f"{reason}; its stream has ended, too early for a verdict."
    reason += f"; about {sheet.duration('time_left')} left"
    if sheet.number("needed_time") > LONG_WAIT_S:
        interval = f"{sheet.number('sampling_interval'):g} s"
        reason += f" at a sampling interval of {interval}: better give patience_s and window_s"
    return f"{reason}."


_CALM: Mapping[MemoryKind, Callable[[FactSheet], str]] = {
    MemoryKind.NO_LEAK: _no_leak,
    MemoryKind.FIRST_WINDOWS: _first_windows,
    MemoryKind.UNSAMPLED: lambda sheet: (
        f"too few of the newest points of {sheet.facts[0].node} have samples of GPU memory."
    ),
    MemoryKind.INSTANCES_UNKNOWN: lambda sheet: (
        f"the GPUs of {sheet.facts[0].node} are partitioned (MIG), so utilization is not measured. Memory in use of "
        "the instances was not collected."
    ),
    MemoryKind.TOO_SHORT_FOR_LEAK: lambda sheet: (
        f"memory in use of {sheet['watched_time'].node} is judged after "
        f"{show_duration(sheet['watched_time'].threshold or 0.0)} of training."
    ),
}
