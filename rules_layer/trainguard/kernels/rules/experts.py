"""Experts whose tokens are few or go to some of them alone.

Those that run one after the other are products with the same weight's shape and very different numbers of rows. Those
of one operator are as fast as memory reads their weights: where it cannot read all in that time, some are not used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.kernels.device_entries import PeaksEntry
from trainguard.kernels.entries import OperatorEntry
from trainguard.kernels.formulas.shapes import FusedExperts, Reason, Why, fused_experts, rows_of_weight
from trainguard.kernels.operators import Called, least_seconds
from trainguard.kernels.rules.finding import JudgedRank

# Fewer numbers of rows in a step are those of parts of a model, or of a batch whose length changes.
LEAST_GROUPS = 4

# So many times the mean the largest group has at least.
UNEVEN = 2.0

# So much of the experts the router leaves without a token at least.
UNUSED = 0.25

# Bytes of an element of a token: more than they have makes weights smaller, and the experts that can be read more.
WIDEST = 4


@dataclass(frozen=True, slots=True)
class Fused:
    """An operator of experts, how long arithmetic takes at least, and how many experts a call can use at most."""

    called: Called
    experts: FusedExperts
    computes_ns: float
    most_used: int

    @property
    def some_are_unused(self) -> bool:
        """Tell whether time and shapes agree that the router uses some of the experts alone.

        A token uses as many different ones as it chooses: a call that has no time for these says nothing.
        """
        told = self.experts.are_all and not self.experts.are_starved and self.experts.chosen <= self.most_used
        return told and self.most_used <= (1.0 - UNUSED) * self.experts.experts


def fused_of(judged: JudgedRank, peaks: PeaksEntry, arithmetic: float, margin: float) -> list[Fused]:
    """Return operators of experts, most time first.

    Good kernels reach ``arithmetic`` of the peak; memory is as fast as its peak by ``margin`` at most.
    """
    found = []
    for called in judged.operators:
        experts = fused_experts(called.entry.name, called.entry.shapes)
        needs = None if experts is None else least_seconds(called.entry, peaks)
        if experts is not None and needs is not None and needs[0]:
            used = _most_used(experts, called.entry, peaks, margin)
            found.append(Fused(called, experts, needs[0] / arithmetic * 1e9, used))
    return found


def _most_used(experts: FusedExperts, entry: OperatorEntry, peaks: PeaksEntry, margin: float) -> int:
    """Return of how many experts memory, and the cache before it, give the weights in the mean time of a call."""
    read = min(experts.experts, experts.rows)
    weights = (entry.bytes or 0) / entry.count - 2 * WIDEST * experts.tokens * experts.hidden
    if weights <= 0:
        return experts.experts
    given = entry.kernel_ns / entry.count * peaks.memory_gb_per_s / margin + peaks.cache_mb * 1e6
    return int(given * read / weights)


def uneven_groups(judged: JudgedRank, entry: OperatorEntry) -> Why | None:
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
