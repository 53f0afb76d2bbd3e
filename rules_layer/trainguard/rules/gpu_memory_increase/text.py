"""Kinds of findings on GPU memory that rises, their facts, details and words."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trainguard.core.accelerators import STATE
from trainguard.core.finding import Fact, Status, clock
from trainguard.core.units import show_number
from trainguard.render.details import SeriesDetails
from trainguard.rules.gpu_memory_increase.growth import FLOOR_QUANTILE, JUMP_WINDOWS, TREND_Z, Increase, Jump
from trainguard.rules.gpu_memory_increase.rise import TENTHS
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import FactSheet, JudgedKind, Parts, Words
from trainguard.rules.sample_statistics import column_boxes, column_quantiles
from trainguard.rules.windows import or_undecided, stream_end

SERIES = "GPUMemoryUtilization"


class MemoryKind(JudgedKind):
    """Findings on a node's GPU memory: ``leak`` is of memory in use, others are of its activity."""

    LEAK = "leak", Status.FIRED
    JUMP = "jump", Status.FIRED
    RAMP = "ramp", Status.FIRED
    TREND = "trend", Status.FIRED
    LATE = "late", Status.FIRED
    RISE = "rise", Status.FIRED
    NO_LEAK = "no_leak"
    LOAD_EXPLAINS = "load_explains"
    NO_INCREASE = "no_increase"
    TOO_SHORT_FOR_LEAK = "too_short_for_leak", Status.WARMING_UP
    FIRST_WINDOWS = "first_windows", Status.WARMING_UP
    UNSAMPLED = "unsampled", Status.WARMING_UP
    INSTANCES_UNKNOWN = "instances_unknown", Status.NOT_APPLICABLE


def kind_of(worst: Increase, threshold: float) -> MemoryKind:
    """Return what is said about the worst GPU, against the threshold in percentage points."""
    if worst.kind is None:
        return MemoryKind.LOAD_EXPLAINS if worst.points > threshold else MemoryKind.NO_INCREASE
    return MemoryKind.RAMP if worst.is_ramp else MemoryKind(worst.kind)


def increase_facts(worst: Increase, view: NodeView, window_s: float, threshold: float) -> Iterator[Fact]:
    """Yield what one GPU's activity did: at most nine facts."""
    growth = worst.growth

    def fact(name: str, value: float, unit: str, **more: Any) -> Fact:
        return view.work_fact(name, value, unit=unit, series=SERIES, device=worst.gpu, **more)

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
            yield fact(time_left_name(view), left_s, "s")
    elif worst.kind == "jump":
        yield fact("left_after_another", max(100.0 - growth.floor / TENTHS - worst.points, 0.0), "%")


_TIME_LEFT = "time_left"


def time_left_name(view: NodeView) -> str:
    """Return what the time until memory is full is called: of a stream that has ended it is of its end."""
    return f"{_TIME_LEFT}_at_end" if view.closed else _TIME_LEFT


def without_time_left(kind: str, facts: tuple[Fact, ...]) -> tuple[str, tuple[Fact, ...]]:
    """Return what stays true of a rise that is over."""
    return kind, tuple(fact for fact in facts if fact.name != _TIME_LEFT)


def jump_facts(jump: Jump, view: NodeView) -> Iterator[Fact]:
    where: dict[str, Any] = {"series": SERIES, "node": view.node, "device": jump.gpu, "start": jump.at}
    yield Fact(name="strongest_jump", value=jump.points, unit="points", **where)
    yield Fact(name="level_before", value=jump.highest / TENTHS, unit="%", **where)
    yield Fact(name="level_after", value=jump.floor / TENTHS, unit="%", **where)


def first_windows(view: NodeView, patience: int, window: int) -> tuple[MemoryKind, tuple[Fact, ...]]:
    """Return what is missing until the third window after patience is complete; both in points."""
    needed = patience + JUMP_WINDOWS * window
    facts = (
        view.work_fact("points", view.kept_total, threshold=float(needed)),
        view.work_fact("patience_points", patience),
        view.work_fact("window_points", window),
        view.work_fact("time_left", max(needed - view.kept_total, 0) * view.interval_s, unit="s"),
        view.work_fact("needed_time", needed * view.interval_s, unit="s"),
        view.work_fact("sampling_interval", view.interval_s, unit="s"),
        *stream_end(view),
    )
    return MemoryKind.UNSAMPLED if view.kept_total >= needed else MemoryKind.FIRST_WINDOWS, facts


class GpuMemoryDetails(msgspec.Struct, frozen=True, kw_only=True):
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

    series: dict[str, GpuMemoryDetails]
    in_use: bool = False


def details_of(increases: Sequence[Increase], view: NodeView, window: int, window_s: float) -> MemoryDetails:
    held = view.kept_gpu_memory[-window:]
    boxes = dict(zip(view.gpu_names, column_boxes(held), strict=True))
    floors = dict(zip(view.gpu_names, column_quantiles(held, (FLOOR_QUANTILE,))[0].tolist(), strict=True))
    series = {}
    for increase in increases:
        box = boxes[increase.gpu]
        series[increase.gpu] = GpuMemoryDetails(
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
    "the metric is the activity of the memory controller, not memory in use: check that first, with "
    f"{STATE} or by the peak that the framework reports"
)
_GIGA = 1e9


@or_undecided
def text(sheet: FactSheet) -> Words:
    kind = MemoryKind(sheet.kind)
    if sheet.status is not Status.FIRED:
        return Words(_first_windows(sheet) if kind is MemoryKind.FIRST_WINDOWS else sheet.say(_CALM[kind], **_PARTS))
    words = _WORDS[kind]
    if kind is MemoryKind.LEAK:
        words = _LEAK_OVER if sheet.past else words if sheet.get("stream_end") is None else _LEAK_UP_TO_THE_END
    elif sheet.past and kind is not MemoryKind.JUMP:
        words = _GROWTH_OVER
    return sheet.fill(words, **_PARTS)


def _more(sheet: FactSheet) -> str:
    gpus, what = sheet.get("gpus_affected"), "show an increase"
    if sheet.kind == MemoryKind.LEAK:
        what = "did so" if sheet.past else "leak"
    if gpus is None or int(gpus.value) < 2:
        return ""
    return sheet.say("; {gpus_affected.value} GPUs of {gpus_affected.node} {what}", what=what)


def _stronger(sheet: FactSheet) -> str:
    jump = sheet.get("strongest_jump")
    if jump is None or jump.start is None:
        return ""
    return sheet.say(
        "; the strongest jump was of {strongest_jump}, from {level_before} to {level_after} on "
        "{strongest_jump.device}, at {at}",
        at=clock(jump.start),
    )


def _full(sheet: FactSheet) -> str:
    at_end = ", and at that rate {increase.device} would have been at 100 % in {time_left_at_end} more"
    full = ", and at that rate {increase.device} is at 100 % in {time_left}"
    return sheet.say_if("time_left_at_end", at_end) or sheet.say_if("time_left", full)


def _gigabytes(name: str, otherwise: str) -> Callable[[FactSheet], str]:
    """Return a part in gigabytes, or ``otherwise`` where the source tells a share of the memory alone."""

    def part(sheet: FactSheet) -> str:
        return f"{show_number(sheet.number(name) / _GIGA)} GB" if sheet.get(name) else sheet.say(otherwise)

    return part


def _first_windows(sheet: FactSheet) -> str:
    points = sheet["points"]
    reason = sheet.say(
        "{points.node} has {points.value:,} of the {needed:,} points that a first verdict takes, "
        f"{{patience_points.value:,}} of patience and {JUMP_WINDOWS} windows of {{window_points.value:,}}",
        needed=int(points.threshold or 0),
    )
    if sheet.get("stream_end") is not None:
        return f"{reason}; its stream has ended, too early for a verdict."
    reason += sheet.say("; about {time_left} left")
    if sheet.number("needed_time") > LONG_WAIT_S:
        reason += sheet.say(
            " at a sampling interval of {sampling_interval.value:g} s: better give patience_s and window_s"
        )
    return f"{reason}."


_PARTS: Parts = {
    "place": lambda sheet: sheet.say("{increase.device} on {increase.node}"),
    "place_of": lambda sheet: sheet.say("{increase.device} of {increase.node}"),
    "threshold": lambda sheet: show_number(sheet["increase"].threshold or 0.0),
    "amount": lambda sheet: sheet.say("{increase} (threshold {threshold})", **_PARTS),
    "stronger": _stronger,
    "more": _more,
    "full": _full,
    "used": _gigabytes("memory_in_use", "{memory_in_use_share}"),
    "total": _gigabytes("memory_total", "its memory"),
    "hourly": _gigabytes("hourly_bytes", "{hourly_increase}"),
    "in_share": lambda sheet: sheet.say(", {memory_in_use_share}") if sheet.get("memory_in_use") else "",
    "full_later": lambda sheet: sheet.say_if(
        "time_left_at_end", ", and at that rate would have been full {time_left_at_end} later"
    ),
    "full_in": lambda sheet: sheet.say_if("time_left", ", and full in {time_left} at that rate"),
    "within": lambda sheet: sheet.say_if("time_left", " within {time_left}, before {place} is full", **_PARTS),
}
_NEWEST = "over the last window of {window} its floor {was/is} {p5_activity_at_work}"
_BEFORE = "the highest mean of all windows but the last two, {highest_mean_activity}"
_MORE = "{stronger}{more}."
_GROWS = (
    f"It grew by {{hourly_increase}} an hour{{full}}: look for {KEPT_TENSORS}, save checkpoints, or take GPUs with "
    f"more memory; {METRIC}."
)
_ROSE = "the memory activity of {place} rose"
_LEAKS = "{place} leaks memory: what is in use rose by {amount} in {rise_time}, {hourly} an hour"
_WORDS: Mapping[MemoryKind, Words] = {
    MemoryKind.LEAK: Words(
        f"{_LEAKS}; it is {{used}} of {{total}} now{{full_in}}{{more}}.",
        f"Save a checkpoint{{within}}, and look for {KEPT_TENSORS}: memory in use rises by {{hourly_increase}} an hour "
        "and is never given back.",
        "{place} leaked memory",
    ),
    MemoryKind.JUMP: Words(
        f"{{place}}: memory activity jumped: {_NEWEST}, {{amount}} above {_BEFORE}{_MORE}",
        "Look at what changed on {increase.device} in the {rise_time} of the jump: longer inputs, a larger batch, a "
        "cache; one more such jump leaves {left_after_another}. For a job that needs the memory take GPUs with more "
        f"of it; {METRIC}.",
        _ROSE,
    ),
    MemoryKind.RAMP: Words(
        f"{{place}}: memory activity {{grew/grows}} from window to window: {_NEWEST}, {{amount}} above {_BEFORE}"
        f"{_MORE}",
        _GROWS,
        _ROSE,
    ),
    MemoryKind.TREND: Words(
        "{place}: memory activity grows: its floor rose by {amount} in {rise_time}, to {p5_activity_at_work}; "
        f"Mann-Kendall Z is {{trend_z}} (threshold {{trend_z.threshold:g}}){_MORE}",
        _GROWS,
        _ROSE,
    ),
    MemoryKind.RISE: Words(
        "{place}: memory activity grows: its floor rose by {amount} in {rise_time}, window after window, to "
        f"{{p5_activity_at_work}}{_MORE}",
        _GROWS,
        _ROSE,
    ),
    MemoryKind.LATE: Words(
        "{place}: memory activity grows: its floor of {p5_activity_at_work} is {amount} above the highest until "
        f"{{rise_time}} before{_MORE}",
        _GROWS,
        _ROSE,
    ),
}
_LEAK_UP_TO_THE_END = Words(
    f"{_LEAKS}, up to the end; it was {{used}} of {{total}} then{{full_later}}{{more}}.",
    f"Look for {KEPT_TENSORS}: memory in use of {{place}} rose by {{hourly_increase}} an hour and was never given "
    "back.",
    "{place} leaked memory",
)
_LEAK_OVER = Words(
    "memory in use of {place} rose and stopped: by {amount} in {rise_time}, to {used} of {total}{more}.",
    "Nothing needs to be changed if a cache, or a pool of memory, filled up to its size on {place_of}: what is in use "
    f"stopped rising. If nothing did, look for {KEPT_TENSORS}.",
    "the memory in use of {place} rose, and stopped rising",
)
_GROWTH_OVER = Words(
    "{place}: memory activity grew and stopped: its floor rose by {amount} in {rise_time}, to {floor_of_rise}.",
    "Nothing needs to be changed if the batches, the inputs or a cache of {place} grew to their size: the memory "
    f"activity stopped growing. If nothing did, look for {KEPT_TENSORS}; {METRIC}.",
    "the memory activity of {place} rose, and stopped rising",
)
_CALM: Mapping[MemoryKind, str] = {
    MemoryKind.NO_INCREASE: (
        f"{{place}}: memory activity shows no increase: {_NEWEST} (threshold {{threshold}} percentage points above "
        f"{_BEFORE}){_MORE}"
    ),
    MemoryKind.LOAD_EXPLAINS: (
        f"{{place}}: memory activity shows no increase: {_NEWEST}, {{amount}} above {_BEFORE}; the GPU's load explains "
        f"most of that{_MORE}"
    ),
    MemoryKind.NO_LEAK: (
        "no GPU of {increase.node} leaks memory: of {place} {used} of {total} are in use{in_share} "
        "(threshold {threshold} percentage points more)."
    ),
    MemoryKind.UNSAMPLED: "too few of the newest points of {node} have samples of GPU memory.",
    MemoryKind.INSTANCES_UNKNOWN: (
        "the GPUs of {node} are partitioned (MIG), so utilization is not measured. Memory in use of the instances was "
        "not collected."
    ),
    MemoryKind.TOO_SHORT_FOR_LEAK: ("memory in use of {node} is judged after {watched_time.limit} of training."),
}
