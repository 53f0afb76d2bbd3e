"""The level of each run of a group: the same steps beside each other, so that what all runs share falls out.

A step that is slow in all runs (a warm-up, an evaluation, another length of texts) is an effect of the step, not of a
run: rows of runs and columns of steps are taken apart by medians (Tukey's median polish).
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainguard.gate.runs import Points

Floats = NDArray[np.float64]

# Steps beyond are taken together in so many windows.
MOST_WINDOWS = 128

# At most this part of the steps in front is a warm-up; of fewer steps none is cut.
_WARM_UP_PART, _FEWEST_TO_CUT = 0.25, 4
_FEW_MAD, _LEAST_OFF = 3.0, 0.02
_ROUNDS = 8
# Of a normal distribution: the standard deviation by the median distance, and that of a median by that of a mean.
MAD_TO_SD, MEDIAN_TO_MEAN = 1.4826, 1.2533
# With fewer steps in common, as a part of those of the shorter run, records are compared in their order.
_FEWEST_COMMON = 0.5


@dataclass(frozen=True, slots=True)
class RunLevels:
    """The levels of runs, float64[R], against the step effects; the first ``candidates`` runs are the candidate's.

    ``within`` is the standard error of each level by the run's own scatter, 0 where it has one step. ``columns`` steps
    were compared, ``windows`` of them apart; ``cut`` are left out in front as a warm-up. ``in_order``: the steps have
    other numbers, so the first record was compared with the first. ``means`` are float64[R], logarithms of mean times
    in which stalls count; None where no step is in all runs.
    """

    levels: Floats
    within: Floats
    candidates: int
    columns: int
    windows: int
    cut: int
    in_order: bool
    means: Floats | None = None


def levels_of(
    runs: Sequence[Points], candidates: int, *, logarithmic: bool = True, sign: float = 1.0
) -> RunLevels | None:
    """Return the levels of runs, candidates first; None where a candidate and half the baselines share no step."""
    usable = [_usable(each, logarithmic=logarithmic) for each in runs]
    table, in_order = _beside(usable, candidates), False
    fewest = min(len(steps) for steps, _ in usable)
    if table.shape[1] < max(_FEWEST_COMMON * fewest, 1):
        ordered = [(np.arange(len(steps), dtype=np.int64), values) for steps, values in usable]
        table, in_order = _beside(ordered, candidates), True
    if not table.shape[1] or not np.isfinite(table).any(axis=1).all():
        return None
    cut = _warm_up(table)
    means = _means(sign * table[:, max(cut, int(_WARM_UP_PART * table.shape[1])) :]) if logarithmic else None
    table = table[:, cut:]
    with warnings.catch_warnings():
        # A run that lacks all steps of a window has no value there.
        warnings.simplefilter("ignore", RuntimeWarning)
        levels, residuals = _polished(_windows(table))
        within = MAD_TO_SD * np.nanmedian(np.abs(residuals), axis=1)
    counts = np.isfinite(residuals).sum(axis=1)
    within = np.where(counts > 1, MEDIAN_TO_MEAN * within / np.sqrt(np.maximum(counts, 1)), 0.0)
    return RunLevels(levels, within, candidates, table.shape[1], residuals.shape[1], cut, in_order, means)


def _means(table: Floats) -> Floats | None:
    """Return the logarithms of the mean times of the steps that all runs have."""
    common = table[:, np.isfinite(table).all(axis=0)]
    if not common.shape[1]:
        return None
    largest = common.max(axis=1)
    means: Floats = largest + np.log(np.exp(common - largest[:, None]).mean(axis=1))
    return means


def _usable(points: Points, *, logarithmic: bool) -> tuple[NDArray[np.int64], Floats]:
    good = np.isfinite(points.values) & ((points.values > 0.0) | (not logarithmic))
    values = points.values[good]
    return points.steps[good], np.log(values) if logarithmic else values


def _beside(runs: Sequence[tuple[NDArray[np.int64], Floats]], candidates: int) -> Floats:
    """Return float64[R, S] with NaN for what a run lacks, of the steps that enough runs have."""
    steps = np.unique(np.concatenate([each for each, _ in runs]))
    table = np.full((len(runs), len(steps)), np.nan)
    for row, (own, values) in enumerate(runs):
        table[row, np.searchsorted(steps, own)] = values
    there = np.isfinite(table)
    baselines = len(runs) - candidates
    enough = there[:candidates].any(axis=0) & (2 * there[candidates:].sum(axis=0) >= max(baselines, 1))
    return table[:, enough]


def _warm_up(table: Floats) -> int:
    """Return how many steps in front are unlike the later half: at least one of four steps or more."""
    count = table.shape[1]
    if count < _FEWEST_TO_CUT:
        return 0
    effects = np.nanmedian(table, axis=0)
    later = effects[count // 2 :]
    middle = np.median(later)
    off = np.abs(effects - middle) > max(_FEW_MAD * MAD_TO_SD * float(np.median(np.abs(later - middle))), _LEAST_OFF)
    like = np.flatnonzero(~off[: int(_WARM_UP_PART * count) + 1])
    first = int(like[0]) if len(like) else int(_WARM_UP_PART * count)
    cut = max(first, 1)
    # A run that ends within it keeps its steps.
    return cut if np.isfinite(table[:, cut:]).any(axis=1).all() else 0


def _windows(table: Floats) -> Floats:
    """Return float64[R, W]: medians of neighbouring steps, without the effect of each step, where there are many."""
    if table.shape[1] <= MOST_WINDOWS:
        return table
    apart = table - np.nanmedian(table, axis=0)
    return np.column_stack([np.nanmedian(part, axis=1) for part in np.array_split(apart, MOST_WINDOWS, axis=1)])


def _polished(table: Floats) -> tuple[Floats, Floats]:
    levels, rest = np.zeros(len(table)), table.copy()
    for _ in range(_ROUNDS):
        rest = rest - np.nanmedian(rest, axis=0)
        moved = np.nanmedian(rest, axis=1)
        rest = rest - moved[:, None]
        levels += moved
        if not np.abs(moved).max() > 1e-12:
            break
    return levels, rest
