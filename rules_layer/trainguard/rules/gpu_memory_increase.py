"""GPUMemoryIncrease: GPU memory that jumps to a level it never had, or grows slowly.

Source: AWS documentation of GPUMemoryIncrease (the mean of a window is compared with the mean before it, and the rule
fires when it has grown by more than increase). What is added: a window is compared with the highest level of all that
lie two windows back or more, so that the return from an evaluation is no increase, the windows' floors are tested for a
trend over the whole job and for a rise late in a long one, and every increase must show at full load too: the metric
is the memory controller's activity, which follows the GPU's load. Where memory in use is collected, that is judged in
its place: only a leak counts.
"""

import math
from typing import ClassVar

import numpy as np

from trainguard.finding import Progress
from trainguard.records import Status
from trainguard.rules.gpu_memory_increase_text import text
from trainguard.rules.memory_details import MemoryDetails, details_of
from trainguard.rules.memory_facts import (
    MemoryKind,
    closed_facts,
    first_windows,
    increase_facts,
    jump_facts,
    kind_of,
)
from trainguard.rules.memory_growth import (
    FLOOR_QUANTILE,
    JUMP_WINDOWS,
    LEFT_POINTS,
    Increase,
    MemoryGrowth,
    MemoryState,
    Window,
    increases_of,
)
from trainguard.rules.memory_rise import TENTHS
from trainguard.rules.memory_use import fold_use
from trainguard.rules.memory_use_result import IN_USE, judge_use
from trainguard.rules.parameter_help import PATIENCE_HELP, WINDOW_HELP, ParameterHelp
from trainguard.rules.protocol import (
    MAX_WINDOW_POINTS,
    MIN_WINDOW_POINTS,
    NonNegativeInt,
    Percent,
    Positive,
    WindowPoints,
)
from trainguard.rules.quantiles import column_quantiles
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.units import points_in
from trainguard.rules.warm_up import never_collected, node_fact, warming_up
from trainguard.rules.windowing import WindowedRule, WindowParameters, sampled_enough
from trainguard.telemetry.snapshots import BoolArray, FloatArray

LOADED_PERCENT = 20.0
"""The activity of a GPU that is less busy says too little about what it would be at full load."""

SHORT_WINDOW = 5
"""A default window has so many points where they are rare: it is one of many, and none is judged by itself."""

SAMPLED_OF_SHORT = 0.8
"""Of a window of fewer than 25 points a GPU must have so many samples."""


class GPUMemoryIncreaseParameters(WindowParameters, frozen=True, kw_only=True):
    """``increase`` in percentage points; ``window_s``, ``patience_s`` in seconds, or without ``_s`` in points."""

    default_window_s: ClassVar[float | None] = 250.0
    default_patience_s: ClassVar[float | None] = 50.0
    default_points: ClassVar[int] = SHORT_WINDOW

    increase: Percent = 10.0
    patience: NonNegativeInt | None = None
    patience_s: Positive | None = None
    window: WindowPoints | None = None
    window_s: Positive | None = None


SPEC = RuleSpec(
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
    text=text,
    details=MemoryDetails,
    section="trainguard.report.html.sections.gpu_memory_increase:blocks",
)


class GPUMemoryIncrease(WindowedRule[GPUMemoryIncreaseParameters, MemoryState]):
    """Fires for a GPU whose memory activity rose by more than ``increase``, at once or slowly."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = GPUMemoryIncreaseParameters
    state_type = MemoryState

    def window_points(self, parameters: GPUMemoryIncreaseParameters, interval_s: float) -> int:
        """Return the window in points: as every rule, but by default no more than it takes to see a level."""
        if parameters.window is None and parameters.window_s is None:
            points = points_in(parameters.window_duration_s(interval_s), interval_s)
            return min(max(points, SHORT_WINDOW), MAX_WINDOW_POINTS)
        return super().window_points(parameters, interval_s)

    def observe(self, state: MemoryState, minute: NodeMinute, parameters: GPUMemoryIncreaseParameters) -> None:
        """Fold in the windows that this minute completed."""
        view = minute.view
        fold_use(state.in_use, minute)
        _note_samples(state, minute)
        window = self.window_points(parameters, view.interval_s)
        patience = parameters.patience_points(view.interval_s)
        if not state.windows:
            state.begin = patience
        while view.gpu_names and state.begin + window <= view.kept_total:
            _fold_window(state, view, state.begin + window, window, patience)
            state.begin += window
            state.windows += 1
            increases = increases_of(state, parameters.increase, window * view.interval_s)
            state.violated += any(increase.kind is not None for increase in increases)
            times = view.kept_times[_held(view, state.begin, window)]
            if times.size:
                state.note_jumps(increases, float(times[0]))

    def unfit(self, view: NodeView) -> RuleResult | str | None:
        """Say that there is neither a GPU nor an instance of one."""
        return None if view.mig_names else super().unfit(view)

    def judge_samples(self, state: MemoryState, view: NodeView, parameters: GPUMemoryIncreaseParameters) -> RuleResult:
        """Say FIRED while the newest window is part of a jump, or the floors rise."""
        if state.in_use:
            return judge_use(state.in_use, view, parameters.increase)
        if not view.gpu_names:
            none = (node_fact("instances", len(view.mig_names), view),)
            return RuleResult.of(text, Status.NOT_APPLICABLE, MemoryKind.INSTANCES_UNKNOWN, none)
        window = self.window_points(parameters, view.interval_s)
        increases = increases_of(state, parameters.increase, window * view.interval_s)
        if not increases:
            patience = parameters.patience_points(view.interval_s)
            if not state.gpus and view.kept_total > (0 if view.closed else patience):
                return never_collected("GPUMemoryUtilization", view)
            needed = patience + JUMP_WINDOWS * window
            if view.first_active_at is None:
                return warming_up(view.kept_total, needed, view, {})
            return RuleResult.of(
                text,
                Status.WARMING_UP,
                *first_windows(view, patience, window),
                data_points=view.kept_total,
                progress=Progress(seen=view.kept_total, needed=needed),
                needs_longer=True,
            )
        fired = [increase for increase in increases if increase.kind is not None]
        window_s = window * view.interval_s * _stretch(view)
        worst = max(fired or increases, key=lambda increase: _gravity(increase, window_s))
        strongest = state.strongest if worst.kind == "jump" and not worst.is_ramp else None
        facts = [*increase_facts(worst, view, window_s, parameters.increase), *closed_facts(view)]
        if strongest is not None and strongest.points > worst.points:
            facts += jump_facts(strongest, view)
        if fired:
            facts.append(node_fact("gpus_affected", len(fired), view, unit="GPUs"))
        return RuleResult.of(
            text,
            Status.FIRED if fired else Status.OK,
            kind_of(worst, parameters.increase),
            tuple(facts),
            measured=max(worst.points, strongest.points) if strongest is not None else worst.points,
            threshold=parameters.increase,
            worst=worst.gpu,
            data_points=view.kept_total,
            progress=Progress(seen=view.kept_total, needed=parameters.patience_points(view.interval_s)),
            affected_share=state.violated / state.windows if fired else None,
            onset=_onset(worst, state, view, window_s) if fired else None,
            gpus=tuple(increase.gpu for increase in fired),
            time_left_s=worst.time_left_s(window_s),
            details=details_of(increases, view, window, window_s) if view.detailed else {},
        )


def _gravity(increase: Increase, window_s: float) -> tuple[bool, float, float]:
    """Order increases: growth that goes on before a jump, the less time is left the graver, and then by points."""
    left_s = increase.time_left_s(window_s)
    return left_s is not None, -(left_s or 0.0), increase.points


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


def _stretch(view: NodeView) -> float:
    """Return how much longer than its kept points the node's time is: pauses are no points, and pass all the same."""
    if view.watermark_s is None or view.first_active_at is None or not view.kept_total:
        return 1.0
    return max((view.watermark_s - view.first_active_at + view.interval_s) / (view.kept_total * view.interval_s), 1.0)


def _note_samples(state: MemoryState, minute: NodeMinute) -> None:
    """Note each GPU's first sample and its largest."""
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
    """Return which of the held kept points are the window up to kept point ``end``."""
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
    windows = [Window(mean, floor, load, at_full if fit else None, at) for mean, floor, load, at_full, fit in columns]
    for index in np.flatnonzero(_enough(held)).tolist():
        growth = state.gpus[view.gpu_names[index]]
        if growth.since + patience <= end - window:
            growth.add(windows[index])


def _at_full_load(memory: FloatArray, load: FloatArray) -> tuple[FloatArray, list[bool]]:
    """Return the activity that each point would have at 100 % of utilization (float64[K, G]), and who has enough."""
    loaded = load >= LOADED_PERCENT
    full: FloatArray = np.where(loaded, 100.0 * memory / np.where(loaded, load, 1.0), np.nan)
    return full, _enough(full).tolist()


def _enough(window: FloatArray) -> BoolArray:
    """Tell which columns have samples enough: those of a short window a few more, as each stands for much time."""
    return sampled_enough(window, least=min(MIN_WINDOW_POINTS, math.ceil(SAMPLED_OF_SHORT * len(window))))


def _means(columns: FloatArray) -> list[float]:
    counts = np.maximum(np.count_nonzero(~np.isnan(columns), axis=0), 1)
    means: list[float] = (np.nansum(columns, axis=0) / counts).tolist()
    return means
