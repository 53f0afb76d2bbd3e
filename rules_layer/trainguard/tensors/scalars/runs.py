"""Which files of trainers are of one run.

Two files that record one loss over the same steps, and not the same values of it, are of two runs: version_0 and
version_1 of Lightning, say. A run that was resumed from a checkpoint goes on from the one before it.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from trainguard.tensors.scalars.names import LOSSES, METRICS, ScalarNames
from trainguard.tensors.scalars.trainer_files import Recorded

SAME = 1e-3
"""Share of a value: loggers of one run round it in different ways."""

FEWEST = 2
"""Steps that a file has of a scalar at least, so that their range says something."""

RunValues = Mapping[str, tuple[NDArray[np.int64], NDArray[np.float64]]]
"""Scalars by name: their steps (int64[S], in order, each once) and values (float64[S])."""


def values_of(rows: Iterable[Recorded], names: ScalarNames) -> RunValues:
    """Return the losses and metrics that a file records; all its scalars where it has none of these."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        for name, value in row.values.items():
            found.setdefault(name, {})[row.step] = value
    used = {name for name in found if names.mode(name) is not None}
    meant = names.members(LOSSES, used) | names.members(METRICS, used)
    return {name: _columns(found[name]) for name in sorted(meant or used)}


def _columns(values: Mapping[int, float]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    steps = sorted(values)
    return np.array(steps, np.int64), np.array([values[step] for step in steps], np.float64)


def rows_before(run: RunValues, until: int | None) -> RunValues:
    """Return what a file records before a step; all of it where that is None."""
    if until is None:
        return run
    return {name: (steps[steps < until], values[steps < until]) for name, (steps, values) in run.items()}


def recorded_apart(newer: RunValues, older: RunValues) -> str | None:
    """Return a scalar that two files record over the same steps with other values; None where there is none."""
    for name in sorted(newer.keys() & older.keys()):
        steps, values = newer[name]
        earlier, others = older[name]
        if min(steps.size, earlier.size) < FEWEST or earlier[-1] < steps[0] or earlier[0] > steps[-1]:
            continue
        shared, here, there = np.intersect1d(steps, earlier, assume_unique=True, return_indices=True)
        if not shared.size or not np.allclose(values[here], others[there], rtol=SAME, atol=0.0, equal_nan=True):
            return name
    return None


def resumed_at(run: RunValues) -> int:
    """Return the first step of a run that goes on from another one; 0 of one that begins by itself.

    A run that begins by itself records its first step within one interval of its steps.
    """
    firsts = [(int(steps[0]), int(steps[1] - steps[0])) for steps, _ in run.values() if steps.size >= FEWEST]
    first, interval = min(firsts, default=(0, 0))
    return first if first > interval else 0
