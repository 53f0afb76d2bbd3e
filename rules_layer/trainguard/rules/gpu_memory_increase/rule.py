"""GPUMemoryIncrease: GPU memory that jumps to a level it never had, or grows slowly.

Source: AWS documentation of GPUMemoryIncrease. A window is compared with the highest level two windows back or more, so
that the return from an evaluation is no increase.
"""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from trainguard.core.finding import Fact, Patience
from trainguard.formats.profile import snapshots as names
from trainguard.formats.profile.snapshots import BoolArray, FloatArray, points_in
from trainguard.rules.change import ChangeCode
from trainguard.rules.gpu_memory_increase.growth import (
    FLOOR_QUANTILE,
    JUMP_WINDOWS,
    LEFT_POINTS,
    Increase,
    MemoryGrowth,
    MemoryState,
    increases_of,
)
from trainguard.rules.gpu_memory_increase.rise import (
    HUNDREDTHS,
    LEAST_S,
    MINUTE_S,
    TENTHS,
    UseLevels,
    UseRise,
    fold_use,
    rises_of,
)
from trainguard.rules.gpu_memory_increase.text import (
    GpuMemoryDetails,
    MemoryDetails,
    MemoryKind,
    details_of,
    first_windows,
    increase_facts,
    jump_facts,
    kind_of,
    text,
    time_left_name,
    without_time_left,
)
from trainguard.rules.protocol import (
    MAX_WINDOW_POINTS,
    MIN_WINDOW_POINTS,
    NonNegativeInt,
    Percent,
    Positive,
    WindowPoints,
)
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.sample_statistics import column_quantiles
from trainguard.rules.spec import PATIENCE_HELP, SYSTEM, WINDOW_HELP, ParameterHelp, RuleSpec
from trainguard.rules.windows import (
    WindowedRule,
    WindowParameters,
    never_collected,
    sampled_enough,
    stream_end,
    warming_up,
)

IN_USE = Measure("increase of GPU memory in use", "percentage points")
LEAK = "leak"


def judge_use(in_use: dict[str, UseLevels], view: NodeView, increase: float) -> RuleResult:
    """Return what memory in use says about a node, against ``increase`` percentage points."""
    rises = rises_of(in_use)
    series = {
        rise.device: GpuMemoryDetails(
            increase=rise.points,
            gpu_max=rise.use.largest / HUNDREDTHS,
            kind=LEAK if is_leak(rise, increase) else None,
            floors=[level / HUNDREDTHS for level in rise.use.levels],
            floor_s=rise.use.stride * MINUTE_S,
        )
        for rise in rises
        if view.detailed
    }
    details = MemoryDetails(series, in_use=view.detailed)
    leaks = [rise for rise in rises if is_leak(rise, increase)]
    seen_s = MINUTE_S * max(rise.use.stride * len(rise.use.levels) for rise in rises)
    progress = Patience(seen=round(seen_s / MINUTE_S), needed=round(LEAST_S / MINUTE_S), counts="minutes")
    if not leaks and seen_s < LEAST_S:
        return RuleResult.of_kind(
            text,
            MemoryKind.TOO_SHORT_FOR_LEAK,
            (view.work_fact("watched_time", seen_s, unit="s", threshold=LEAST_S),),
            data_points=view.kept_total,
            progress=progress,
            needs_longer=True,
            details=details,
        )
    affected = None
    worst = max(leaks or rises, key=lambda rise: _badness(rise, is_leak=bool(leaks)))
    if leaks and view.watermark_s is not None and view.first_sample_at is not None:
        affected = min((view.watermark_s - worst.since) / (view.watermark_s - view.first_sample_at), 1.0)
    return RuleResult.of_kind(
        text,
        MemoryKind.LEAK if leaks else MemoryKind.NO_LEAK,
        (*_use_facts(worst, view, increase, leaks), *stream_end(view)),
        measured=worst.points,
        threshold=increase,
        measure=IN_USE,
        worst=worst.device,
        data_points=view.kept_total,
        progress=progress,
        affected_share=affected,
        onset=worst.since if leaks else None,
        until=worst.until if leaks else None,
        gpus=tuple(rise.device for rise in leaks),
        time_left_s=worst.time_left_s if leaks and worst.until is None else None,
        details=details,
    )


def _badness(rise: UseRise, *, is_leak: bool) -> tuple[bool, float, str]:
    """Of leaks the one that is full first comes first: of those that go on."""
    return is_leak and rise.until is None, -rise.time_left_s if is_leak else rise.points, rise.device


def _use_facts(worst: UseRise, view: NodeView, increase: float, leaks: Sequence[UseRise]) -> Iterator[Fact]:
    series = names.MEMORY_SHARE if worst.use.share else names.MEMORY_USED

    def fact(name: str, value: float, unit: str, **more: float) -> Fact:
        return view.work_fact(name, value, unit=unit, series=series, device=worst.device, **more)

    yield fact("increase", worst.points, "points", threshold=increase)
    if not worst.use.share:
        yield fact("memory_in_use", worst.bytes_of(worst.use.percent), "bytes")
        yield fact("memory_total", worst.use.total, "bytes")
    yield fact("memory_in_use_share", worst.use.percent, "%")
    if leaks:
        yield fact("rise_time", worst.minutes * MINUTE_S, "s")
        yield fact("hourly_increase", worst.hourly, "points/h")
        if not worst.use.share:
            yield fact("hourly_bytes", worst.bytes_of(worst.hourly), "bytes/h")
        yield view.work_fact("gpus_affected", len(leaks), unit="GPUs")
        if worst.time_left_s and worst.until is None:
            yield fact(time_left_name(view), worst.time_left_s, "s")


def is_leak(rise: UseRise, increase: float) -> bool:
    return rise.is_steady and rise.points > increase


# The activity of a GPU that is less busy says too little about what it would be at full load.
LOADED_PERCENT = 20.0
# A default window has so many points where they are rare: it is one of many, and none is judged by itself.
SHORT_WINDOW = 5
# Of a window of fewer than 25 points a GPU must have so many samples.
SAMPLED_OF_SHORT = 0.8


class GPUMemoryIncreaseParameters(WindowParameters, frozen=True, kw_only=True):
    default_window_s: ClassVar[float | None] = 250.0
    default_patience_s: ClassVar[float | None] = 50.0
    default_points: ClassVar[int] = SHORT_WINDOW

    increase: Percent = 10.0
    patience: NonNegativeInt | None = None
    patience_s: Positive | None = None
    window: WindowPoints | None = None
    window_s: Positive | None = None


class GPUMemoryIncrease(WindowedRule[GPUMemoryIncreaseParameters, MemoryState]):
    spec = RuleSpec(
        name="GPUMemoryIncrease",
        title="GPU memory increase",
        looks_at="each GPU's memory",
        fires_when="it jumps, or rises steadily, as a leak does",
        condition=(
            "a GPU's memory in use leaks by more than {increase} percentage points; or, where only memory activity is "
            "known, that rises by more to a new level, or steadily up to now, and its load does not explain it"
        ),
        measures=(Measure("increase of GPU memory", "percentage points"), IN_USE),
        at_patience=True,
        parameters={
            "increase": ParameterHelp("percentage points", "a larger rise fires"),
            **WINDOW_HELP,
            **PATIENCE_HELP,
        },
        shipped_defaults={"increase": 5.0, "patience_s": 500.0, "window_s": 5.0},
        managed_parameters=("increase", "patience", "window"),
        inputs=SYSTEM,
        metrics=("GPU memory",),
        changes={"": ChangeCode.FIX_LEAK, MemoryKind.JUMP: ChangeCode.SAVE_MEMORY},
        text=text,
        over=without_time_left,
        details=MemoryDetails,
        section="trainguard.rules.gpu_memory_increase.section:blocks",
    )
    judges_instances = True

    def window_points(self, parameters: GPUMemoryIncreaseParameters, interval_s: float) -> int:
        """Return the window in points: as every rule, but by default no more than it takes to see a level."""
        if parameters.window is None and parameters.window_s is None:
            points = points_in(parameters.window_duration_s(interval_s), interval_s)
            return min(max(points, SHORT_WINDOW), MAX_WINDOW_POINTS)
        return super().window_points(parameters, interval_s)

    def observe(self, state: MemoryState, minute: NodeMinute, parameters: GPUMemoryIncreaseParameters) -> None:
        view = minute.view
        fold_use(state.in_use, minute)
        _note_samples(state, minute)
        interval_s = state.interval_s or view.interval_s
        window, patience = self.window_points(parameters, interval_s), parameters.patience_points(interval_s)
        if not state.windows:
            state.begin = patience
        while view.gpu_names and state.begin + window <= view.kept_total:
            state.interval_s = interval_s
            _fold_window(state, view, state.begin + window, window, patience)
            state.begin += window
            state.windows += 1
            increases = increases_of(state, parameters.increase, window * view.interval_s)
            state.violated += any(increase.kind is not None for increase in increases)
            times = view.kept_times[_held(view, state.begin, window)]
            if times.size:
                state.note_jumps(increases, float(times[0]))

    def judge_samples(self, state: MemoryState, view: NodeView, parameters: GPUMemoryIncreaseParameters) -> RuleResult:
        if state.in_use:
            return judge_use(state.in_use, view, parameters.increase)
        if not view.gpu_names:
            none = (view.work_fact("instances", len(view.mig_names)),)
            return RuleResult.of_kind(text, MemoryKind.INSTANCES_UNKNOWN, none)
        window = self.window_points(parameters, state.interval_s or view.interval_s)
        increases = increases_of(state, parameters.increase, window * view.interval_s)
        if not increases:
            patience = parameters.patience_points(view.interval_s)
            if not state.gpus and view.kept_total > (0 if view.closed else patience):
                return never_collected("GPUMemoryUtilization", view)
            needed = patience + JUMP_WINDOWS * window
            if view.first_active_at is None:
                return warming_up(view.kept_total, needed, view, {})
            return RuleResult.of_kind(
                text,
                *first_windows(view, patience, window),
                data_points=view.kept_total,
                progress=Patience(seen=view.kept_total, needed=needed),
                needs_longer=True,
            )
        fired = [increase for increase in increases if increase.kind is not None]
        window_s = _window_s(view, window)
        # Growth that goes on comes before a jump, then the least time left, and then points.
        left_s = {increase.gpu: increase.time_left_s(window_s) for increase in increases}
        worst = max(
            fired or increases, key=lambda each: (left_s[each.gpu] is not None, -(left_s[each.gpu] or 0.0), each.points)
        )
        strongest = state.strongest if worst.kind == "jump" and not worst.is_ramp else None
        facts = [*increase_facts(worst, view, window_s, parameters.increase), *stream_end(view)]
        if strongest is not None and strongest.points > worst.points:
            facts += jump_facts(strongest, view)
        if fired:
            facts.append(view.work_fact("gpus_affected", len(fired), unit="GPUs"))
        return RuleResult.of_kind(
            text,
            kind_of(worst, parameters.increase),
            tuple(facts),
            measured=max(worst.points, strongest.points) if strongest is not None else worst.points,
            threshold=parameters.increase,
            worst=worst.gpu,
            data_points=view.kept_total,
            progress=Patience(seen=view.kept_total, needed=parameters.patience_points(view.interval_s)),
            affected_share=state.violated / state.windows if fired else None,
            onset=_onset(worst, state, view, window_s) if fired else None,
            gpus=tuple(increase.gpu for increase in fired),
            time_left_s=left_s[worst.gpu],
            details=details_of(increases, view, window, window_s) if view.detailed else {},
        )


def _onset(worst: Increase, state: MemoryState, view: NodeView, window_s: float) -> float | None:
    """Return when the rise began: of a jump as it was seen, else when the floors left the lowest."""
    if worst.kind == "jump" and not worst.is_ramp:
        return state.jumped_at
    if view.watermark_s is None or view.first_active_at is None:
        return None
    growth, rise = worst.growth, worst.rise
    windows = rise.windows - (growth.stride - growth.pending if growth.pending else 0)
    since_s = max(view.kept_total - state.begin, 0) * view.interval_s
    began = view.watermark_s - since_s - windows * window_s
    return max(view.first_active_at, _left_at(worst, began, window_s))


def _left_at(worst: Increase, began: float, window_s: float) -> float:
    """Return when the floors left the lowest, where that fits to the merged floors, by which the rise ``began``."""
    growth, slope = worst.growth, worst.rise.slope
    if growth.left_at is None:
        return began
    # The lowest of many floors lies below most of them: about half of the distance was there before.
    slow_s = LEFT_POINTS / 2.0 / slope * window_s if growth.left_slowly and slope > 0.0 else 0.0
    left = growth.left_at - slow_s
    return left if abs(left - began) <= (growth.stride + 1) * window_s else began


def _window_s(view: NodeView, window: int) -> float:
    """Return how long a window of so many kept points is, seconds: pauses are no points, and pass all the same."""
    if view.watermark_s is None or view.first_active_at is None or not view.kept_total:
        return window * view.interval_s
    return window * (view.watermark_s - view.first_active_at + view.interval_s) / view.kept_total


def _note_samples(state: MemoryState, minute: NodeMinute) -> None:
    view = minute.view
    if not minute.fresh:
        return
    fresh = view.kept_gpu_memory[-minute.fresh :]
    sampled = ~np.isnan(fresh)
    firsts = (view.kept_total - minute.fresh + sampled.argmax(axis=0)).tolist()
    largest = np.rint(np.where(sampled, fresh, 0.0).max(axis=0) * TENTHS).astype(np.int64).tolist()
    for index in np.flatnonzero(sampled.any(axis=0)).tolist():
        growth = state.gpus.setdefault(view.gpu_names[index], MemoryGrowth(firsts[index]))
        growth.largest = max(growth.largest, largest[index])


def _held(view: NodeView, end: int, window: int) -> slice:
    stop = max(len(view.kept_times) - (view.kept_total - end), 0)
    return slice(max(stop - window, 0), stop)


def _fold_window(state: MemoryState, view: NodeView, end: int, window: int, patience: int) -> None:
    """Add the window of kept points up to ``end`` to every GPU that had been sampled for ``patience`` points before."""
    part = _held(view, end, window)
    times = view.kept_times[part]
    if not times.size:  # the rule began late, or its window was longer before: these points are held no more
        return
    held, loads = view.kept_gpu_memory[part], view.kept_gpu_utilization[part]
    floors = column_quantiles(held, (FLOOR_QUANTILE,))[0].tolist()
    full, busy = _at_full_load(held, loads)
    full_floors = column_quantiles(full, (FLOOR_QUANTILE,))[0].tolist()
    columns = zip(_means(held), floors, _means(loads), zip(_means(full), full_floors, strict=True), busy, strict=True)
    at = float(times[len(times) // 2])
    windows = [(mean, floor, load, at_full if fit else None, at) for mean, floor, load, at_full, fit in columns]
    for index in np.flatnonzero(_enough(held)).tolist():
        growth = state.gpus[view.gpu_names[index]]
        if growth.since + patience <= end - window:
            growth.add(*windows[index])


def _at_full_load(memory: FloatArray, load: FloatArray) -> tuple[FloatArray, list[bool]]:
    """Return the activity that each point would have at 100 % of utilization (float64[K, G]), and who has enough."""
    loaded = load >= LOADED_PERCENT
    full: FloatArray = np.where(loaded, 100.0 * memory / np.where(loaded, load, 1.0), np.nan)
    return full, _enough(full).tolist()


def _enough(window: FloatArray) -> BoolArray:
    """Tell which columns have enough samples: a short window needs a larger share, as each stands for much time."""
    return sampled_enough(window, least=min(MIN_WINDOW_POINTS, math.ceil(SAMPLED_OF_SHORT * len(window))))


def _means(columns: FloatArray) -> list[float]:
    counts = np.maximum(np.count_nonzero(~np.isnan(columns), axis=0), 1)
    means: list[float] = (np.nansum(columns, axis=0) / counts).tolist()
    return means
