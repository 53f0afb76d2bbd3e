"""Which files of trainers are of one run.

Two files that record one loss over the same steps, and not the same values of it, are of two runs: version_0 and
version_1 of Lightning, say. A run that was resumed from a checkpoint goes on from the one before it.
"""

from collections.abc import Mapping

import numpy as np

from trainguard.tensors.scalars.names import LOSSES, METRICS, ScalarNames
from trainguard.tensors.scalars.recorded_rows import RecordedRows, Series

SAME = 1e-3
"""Share of a value: loggers of one run round it in different ways."""

FEWEST = 2
"""Steps that a file has of a scalar at least, so that their range says something."""

RunValues = Mapping[str, Series]
"""Scalars by name."""


def values_of(rows: RecordedRows, names: ScalarNames) -> RunValues:
    """Return the losses and metrics that a file records; all its scalars where it has none of these."""
    used = {name for name in rows.names if names.mode(name) is not None}
    meant = names.members(LOSSES, used) | names.members(METRICS, used)
    return rows.series(sorted(meant or used))


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
