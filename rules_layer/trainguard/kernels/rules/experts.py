"""Experts that run one after the other: products with the same weight's shape and very different numbers of rows."""

from collections.abc import Sequence

import numpy as np

from trainguard.kernels.entries import OperatorEntry
from trainguard.kernels.formulas.shapes import Reason, Why, rows_of_weight
from trainguard.kernels.rules.finding import Judged

LEAST_GROUPS = 4
"""Fewer numbers of rows in a step are those of parts of a model, or of a batch whose length changes."""

UNEVEN = 2.0
"""So many times the mean the largest group has at least."""


def uneven_groups(judged: Judged, entry: OperatorEntry) -> Why | None:
    """Return the groups that a product is one of, in a step in the middle; None where there are few, or even ones."""
    own = rows_of_weight(entry.name, entry.shapes)
    if own is None:
        return None
    by_step: dict[int, list[int]] = {}
    for called in judged.operators:
        found = rows_of_weight(called.entry.name, called.entry.shapes)
        if called.entry.name == entry.name and found is not None and found[1] == own[1]:
            for step in np.unique(judged.window.step[called.rows]).tolist():
                by_step.setdefault(step, []).append(found[0])
    groups = _middle([each for step, each in by_step.items() if step >= 0])
    mean = sum(groups) / max(len(groups), 1)
    if len(groups) < LEAST_GROUPS or max(groups) < UNEVEN * mean:
        return None
    return Why(Reason.UNEVEN, {"groups": len(groups), "most_rows": max(groups), "mean_rows": round(mean)})


def _middle(steps: Sequence[list[int]]) -> list[int]:
    return sorted(steps, key=len)[len(steps) // 2] if steps else []
