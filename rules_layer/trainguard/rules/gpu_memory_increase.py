"""GPUMemoryIncrease: GPU memory that jumps to a level it never had, or grows slowly.

Source: AWS documentation of GPUMemoryIncrease (the mean of a window is compared with the mean before it, and the rule
fires when it has grown by more than increase). What is added: a window is compared with the highest level of all that
lie two windows back or more, so that the return from an evaluation is no increase, and the windows' floors are tested
for a trend over the whole job and for a rise late in a long one.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules.judgement import Judgement, Measure
from trainguard.rules.parameter_help import PATIENCE_HELP, WINDOW_HELP, ParameterHelp
from trainguard.rules.protocol import (
    NonNegativeInt,
    Percent,
    Positive,
    RuleParameters,
    SystemRule,
    WindowPoints,
)
from trainguard.rules.quantiles import column_boxes, column_quantiles
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.trend import mann_kendall_z, theil_sen_slope
from trainguard.rules.units import show_duration, show_number, show_percent, show_percentage_points
from trainguard.rules.views import NodeMinute, NodeView
from trainguard.rules.warm_up import never_active_reason, never_collected, progress_of
from trainguard.rules.windowing import patience_in_points, sampled_enough, window_in_points

Kind = Literal["jump", "trend", "late"]

JUMP_WINDOWS = 3
"""A jump shows in the third window at the earliest: the one in which it happens lies between those compared."""

MIN_FLOORS, MAX_FLOORS = 12, 24
TREND_Z = 3.09
"""One-sided probability of 0.001."""

RAMP_FLOORS = 4
"""So many floors in a row tell a steep ramp, too short for a test for a trend, from a jump."""

FLOOR_QUANTILE = 0.05

TENTHS = 10.0
"""Levels are stored as whole tenths of a percent."""

LONG_WAIT_S = 7_200.0
METRIC = (
    "the metric is the activity of the memory controller, not memory in use: check that first (nvidia-smi, or the peak "
    "that the framework reports)"
)


class GPUMemoryIncreaseParameters(RuleParameters, frozen=True, kw_only=True):
    """``increase`` in percentage points; ``window``, ``patience`` in points, or in seconds by their ``_s`` forms."""

    increase: Percent = 10.0
    patience: NonNegativeInt = 100
    patience_s: Positive | None = None
    window: WindowPoints = 500
    window_s: Positive | None = None


def _clause(judgement: Judgement, _: int) -> str:
    node, slash, gpu = (judgement.worst or "").partition("/")
    place = f"{gpu} on {node}" if slash else node or "a GPU"
    return f"the memory activity of {place} rose"


SPEC = RuleSpec(
    name="GPUMemoryIncrease",
    title="GPU memory increase",
    looks_at="each GPU's memory",
    fires_when="it jumps, or rises steadily, as a leak does",
    condition="a GPU's memory rises by more than {increase} percentage points to a new level, or steadily",
    measures=(Measure("increase of GPU memory", "percentage points"),),
    at_patience=True,
    parameters={
        "increase": ParameterHelp("percentage points", "a larger rise fires"),
        **WINDOW_HELP,
        **PATIENCE_HELP,
    },
    shipped_defaults={"increase": 5.0, "patience": 1_000, "window": 10},
    managed_parameters=("increase", "patience", "window"),
    inputs=SYSTEM,
    metrics=("GPU memory",),
    clause=_clause,
    section="trainguard.report.html.sections.gpu_memory_increase:blocks",
)


class MemoryGrowth(msgspec.Struct, array_like=True):
    """What is remembered of one GPU; levels in tenths of a percent.

    ``since`` is the kept point with its first sample, ``largest`` its largest sample. Of the windows judged, ``means``
    are those of the newest two and ``highest_mean`` is the highest of all before, ``floor`` and ``highest_floor`` are
    the newest floor and the highest. ``floors`` are the minima of each ``stride`` windows in a row, ``lowest`` that of
    the ``pending`` ones that are fewer. ``earlier_floor`` is the highest floor when the stride was doubled last.
    """

    since: int
    largest: int = 0
    means: list[int] = msgspec.field(default_factory=list)
    highest_mean: int | None = None
    floor: int = 0
    highest_floor: int = 0
    floors: list[int] = msgspec.field(default_factory=list)
    stride: int = 1
    lowest: int = 0
    pending: int = 0
    earlier_floor: int | None = None

    def add(self, mean: float, floor: float) -> None:
        """Add one window, by its mean and its floor in percent."""
        if len(self.floors) == MAX_FLOORS:
            self.floors = [min(pair) for pair in zip(self.floors[::2], self.floors[1::2], strict=True)]
            self.stride *= 2
            self.earlier_floor = self.highest_floor
        if len(self.means) == JUMP_WINDOWS - 1:
            self.highest_mean = max(self.means[0], self.highest_mean or 0)
        self.means = [*self.means[-1:], round(mean * TENTHS)]
        self.floor = round(floor * TENTHS)
        self.highest_floor = max(self.highest_floor, self.floor)
        self.lowest = min(self.lowest, self.floor) if self.pending else self.floor
        self.pending += 1
        if self.pending == self.stride:
            self.floors.append(self.lowest)
            self.pending = 0


class GPUMemoryIncreaseState(msgspec.Struct, array_like=True):
    """One entry a GPU.

    ``begin`` is the kept point at which the next window begins, once ``windows`` were judged; ``violated`` of them
    showed an increase of some GPU.
    """

    begin: int = 0
    windows: int = 0
    violated: int = 0
    gpus: dict[str, MemoryGrowth] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Increase:
    """What one GPU's windows say: ``points`` percentage points of increase over ``windows`` windows.

    ``kind`` is None while that is not over the threshold; ``z`` is there for a trend only.
    """

    gpu: str
    growth: MemoryGrowth
    kind: Kind | None
    points: float
    windows: int
    z: float | None = None

    @property
    def is_ramp(self) -> bool:
        """Whether a jump is one of many: the floor rose in each of the last windows, and in none by most of it."""
        newest = self.growth.floors[-RAMP_FLOORS:]
        steps = [after - before for before, after in pairwise(newest)]
        if self.kind != "jump" or len(newest) < RAMP_FLOORS:
            return False
        return min(steps) > 0 and max(steps) <= sum(steps) / 2.0


class GPUMemoryIncrease(SystemRule[GPUMemoryIncreaseParameters, GPUMemoryIncreaseState]):
    """Fires for a GPU whose memory activity rose by more than ``increase``, at once or slowly."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = GPUMemoryIncreaseParameters
    state_type = GPUMemoryIncreaseState

    def clear_after_s(self, parameters: GPUMemoryIncreaseParameters, interval_s: float) -> float:
        """Three windows."""
        return 3.0 * self.window_points(parameters, interval_s) * interval_s

    def window_points(self, parameters: GPUMemoryIncreaseParameters, interval_s: float) -> int:
        """``window``, or ``window_s`` in points; RuleConfigError where that is too few or too many."""
        return window_in_points(self.name, parameters.window, parameters.window_s, interval_s)

    def observe(
        self, state: GPUMemoryIncreaseState, minute: NodeMinute, parameters: GPUMemoryIncreaseParameters
    ) -> None:
        """Fold in the windows that this minute completed."""
        view = minute.view
        _note_samples(state, minute)
        window = self.window_points(parameters, view.interval_s)
        patience = patience_in_points(parameters.patience, parameters.patience_s, view.interval_s)
        if not state.windows:
            state.begin = patience
        while view.gpu_names and state.begin + window <= view.kept_total:
            _fold_window(state, view, state.begin + window, window, patience)
            state.begin += window
            state.windows += 1
            increases = _increases(state, parameters.increase)
            state.violated += any(increase.kind is not None for increase in increases)

    def judge(
        self, state: GPUMemoryIncreaseState, view: NodeView, parameters: GPUMemoryIncreaseParameters
    ) -> Judgement:
        """Say FIRED while the newest window is part of a jump, or the floors rise."""
        if view.through is None:
            return Judgement(Status.WAITING_FOR_DATA, f"no system metrics of {view.node} yet.")
        if not view.gpu_names:
            return Judgement(Status.NOT_APPLICABLE, f"{view.node} has no GPU.")
        window = self.window_points(parameters, view.interval_s)
        increases = _increases(state, parameters.increase)
        if not increases:
            patience = patience_in_points(parameters.patience, parameters.patience_s, view.interval_s)
            if not state.gpus and view.kept_total > (0 if view.closed else patience):
                return never_collected("GPU memory activity", view)
            return _warming_up(view, window, parameters)
        fired = [increase for increase in increases if increase.kind is not None]
        worst = max(fired or increases, key=lambda increase: increase.points)
        window_s = window * view.interval_s
        reason = _sentence(worst, view, window_s, parameters)
        if len(fired) > 1:
            reason += f"; {len(fired)} GPUs of {view.node} show an increase"
        return Judgement(
            Status.FIRED if fired else Status.OK,
            f"{reason}.",
            measured=worst.points,
            threshold=parameters.increase,
            worst=worst.gpu,
            data_points=view.kept_total,
            advice=_advice(worst, window_s) if fired else None,
            affected_share=state.violated / state.windows if fired else None,
            details=_details(increases, view, window, window_s),
        )


def _note_samples(state: GPUMemoryIncreaseState, minute: NodeMinute) -> None:
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


def _fold_window(state: GPUMemoryIncreaseState, view: NodeView, end: int, window: int, patience: int) -> None:
    """Add the window of kept points up to ``end`` to every GPU that had been sampled for ``patience`` points before."""
    held = view.kept_gpu_memory[: max(len(view.kept_times) - (view.kept_total - end), 0)][-window:]
    means = (np.nansum(held, axis=0) / np.maximum(np.count_nonzero(~np.isnan(held), axis=0), 1)).tolist()
    floors = column_quantiles(held, (FLOOR_QUANTILE,))[0].tolist()
    for index in np.flatnonzero(sampled_enough(held)).tolist():
        growth = state.gpus[view.gpu_names[index]]
        if growth.since + patience <= end - window:
            growth.add(means[index], floors[index])


def _increases(state: GPUMemoryIncreaseState, increase: float) -> list[_Increase]:
    """Judge the GPUs with JUMP_WINDOWS windows or more: a jump before a trend before a late rise."""
    trends = {gpu: (z, points) for gpu, z, points in _trends(state)}
    found = []
    for gpu, growth in state.gpus.items():
        if growth.highest_mean is None:
            continue
        jump = (growth.floor - growth.highest_mean) / TENTHS
        z, rise = trends.get(gpu, (0.0, 0.0))
        late = -math.inf if growth.earlier_floor is None else (growth.floor - growth.earlier_floor) / TENTHS
        recent = (len(growth.floors) - MAX_FLOORS // 2) * growth.stride + growth.pending
        if jump > increase:
            found.append(_Increase(gpu, growth, "jump", jump, JUMP_WINDOWS))
        elif z > TREND_Z and rise > increase:
            found.append(_Increase(gpu, growth, "trend", rise, (len(growth.floors) - 1) * growth.stride, z))
        elif late > increase:
            found.append(_Increase(gpu, growth, "late", late, recent))
        else:
            found.append(_Increase(gpu, growth, None, jump, JUMP_WINDOWS))
    return found


def _trends(state: GPUMemoryIncreaseState) -> Iterator[tuple[str, float, float]]:
    """Mann-Kendall's Z and the rise in percentage points of every GPU with MIN_FLOORS floors, equal lengths at once.

    A rise is never more than the newest floor is above the lowest: the median slope of what began or ended on the way
    goes beyond, and what has fallen back grows no more.
    """
    for length in range(MIN_FLOORS, MAX_FLOORS + 1):
        names = [gpu for gpu, growth in state.gpus.items() if len(growth.floors) == length]
        if names:
            floors = np.array([state.gpus[gpu].floors for gpu in names], dtype=np.float64)
            rises = np.minimum(theil_sen_slope(floors) * (length - 1), floors[:, -1] - floors.min(axis=1)) / TENTHS
            yield from zip(names, mann_kendall_z(floors).tolist(), rises.tolist(), strict=True)


def _warming_up(view: NodeView, window: int, parameters: GPUMemoryIncreaseParameters) -> Judgement:
    """Tell what is missing until the third window after patience is complete."""
    patience = patience_in_points(parameters.patience, parameters.patience_s, view.interval_s)
    needed = patience + JUMP_WINDOWS * window
    reason = (
        f"{view.node} has {view.kept_total:,} of the {needed:,} points that a first verdict takes, {patience:,} of "
        f"patience and {JUMP_WINDOWS} windows of {window:,}"
    )
    if view.first_active_at is None:
        reason = never_active_reason(view).removesuffix(".")
    elif view.kept_total >= needed:
        reason = f"too few of the newest points of {view.node} have samples of GPU memory"
    elif view.closed:
        reason += "; its stream has ended, too early for a verdict"
    else:
        reason += f"; about {show_duration((needed - view.kept_total) * view.interval_s)} left"
        if needed * view.interval_s > LONG_WAIT_S:
            reason += f" at a sampling interval of {view.interval_s:g} s: better give patience_s and window_s"
    progress = progress_of(view.kept_total, needed)
    return Judgement(Status.WARMING_UP, f"{reason}.", data_points=view.kept_total, patience=progress)


def _sentence(worst: _Increase, view: NodeView, window_s: float, parameters: GPUMemoryIncreaseParameters) -> str:
    growth = worst.growth
    where = f"{worst.gpu} on {view.node}: memory activity"
    floor = show_percent((growth.floors[-1] if worst.kind == "trend" else growth.floor) / TENTHS)
    threshold = f"threshold {show_number(parameters.increase)}"
    amount = f"{show_percentage_points(worst.points)} ({threshold})"
    span = show_duration(worst.windows * window_s)
    if worst.kind == "trend":
        return (
            f"{where} grows: its floor rose by {amount} in {span} and is {floor} now; "
            f"Mann-Kendall Z is {show_number(worst.z or 0.0)} (threshold {TREND_Z:g})"
        )
    if worst.kind == "late":
        return f"{where} grows: its floor of {floor} is {amount} above the highest until {span} ago"
    highest = show_percent((growth.highest_mean or 0) / TENTHS)
    newest = f"over the last window of {show_duration(window_s)} its floor is {floor}"
    if worst.kind == "jump":
        how = "grows from window to window" if worst.is_ramp else "jumped"
        return f"{where} {how}: {newest}, {amount} above the highest mean of any window before, {highest}"
    return (
        f"{where} shows no increase: {newest}, the highest mean of a window so far {highest} ({threshold} percentage "
        "points above it)"
    )


def _advice(worst: _Increase, window_s: float) -> str:
    room = 100.0 - worst.growth.floor / TENTHS
    if worst.kind == "jump" and not worst.is_ramp:
        return (
            f"Look at what changed on {worst.gpu} in the last {show_duration(worst.windows * window_s)}: longer "
            f"inputs, a larger batch, a cache; one more such jump leaves "
            f"{show_percent(max(room - worst.points, 0.0))}. "
            f"For a job that needs the memory take GPUs with more of it; {METRIC}."
        )
    hourly = _hourly(worst, window_s)
    return (
        f"It grew by {show_percentage_points(hourly)} an hour, and at that rate {worst.gpu} is at 100 % in "
        f"{show_duration(3_600.0 * room / hourly)}: look for tensors that are kept from step to step (losses "
        f"summed with their graph, growing lists and caches), save checkpoints, or take GPUs with more memory; "
        f"{METRIC}."
    )


def _hourly(increase: _Increase, window_s: float) -> float:
    """Percentage points an hour of training."""
    points, windows = increase.points, increase.windows
    if increase.is_ramp:
        first, *_, last = increase.growth.floors[-RAMP_FLOORS:]
        points, windows = (last - first) / TENTHS, (RAMP_FLOORS - 1) * increase.growth.stride
    return points / (max(windows, 1) * window_s / 3_600.0)


def _details(increases: list[_Increase], view: NodeView, window: int, window_s: float) -> dict[str, Any]:
    """Numbers of every judged GPU for the report; quantiles and box are those of the newest window of kept points."""
    held = view.kept_gpu_memory[-window:]
    boxes = dict(zip(view.gpu_names, column_boxes(held), strict=True))
    floors = dict(zip(view.gpu_names, column_quantiles(held, (FLOOR_QUANTILE,))[0].tolist(), strict=True))
    details = {}
    for increase in increases:
        box = boxes[increase.gpu]
        details[increase.gpu] = {
            "increase": increase.points,
            "gpu_max": increase.growth.largest / TENTHS,
            "p05": None if box is None else floors[increase.gpu],
            **{
                name: None if box is None else getattr(box, name)
                for name in ("p25", "p50", "p75", "p95", "upper", "lower")
            },
            "kind": increase.kind,
            "floors": [level / TENTHS for level in increase.growth.floors],
            "floor_s": increase.growth.stride * window_s,
        }
    return details
