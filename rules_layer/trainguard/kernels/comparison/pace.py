"""How much of the older window's work a window without steps holds, by the runs of kernels that both have."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainguard.kernels.comparison.noise import FEWEST, LEAST
from trainguard.kernels.document import RankProfile
from trainguard.kernels.entries import KernelEntry
from trainguard.kernels.typical import spread

# Of the time of each profile: with less in kernels, or in shapes, that both have, the work is another one.
LEAST_COMMON = 0.5

_SIGMAS = 2.0
_PRECISE = 1_000_000


class Pace(NamedTuple):
    """``work`` is 0.5 of a window with half of the older one's work; ``noise`` is by how much of it that is unsure."""

    work: float
    noise: float


def pace_of(before: RankProfile, after: RankProfile) -> Pace | None:
    """Return the median over kernels, weighted with their time; None where too little time is in common ones."""
    old = {each.name: each for each in before.kernels}
    pairs = [(old[each.name], each) for each in after.kernels if each.name in old]
    pairs = [pair for pair in pairs if min(pair[0].count, pair[1].count) >= FEWEST]
    if not pairs or min(_share([a for a, _ in pairs], before), _share([b for _, b in pairs], after)) < LEAST_COMMON:
        return None
    works = np.array([new.count / old.count for old, new in pairs])
    weights = np.array([old.total_ns for old, _ in pairs], dtype=np.float64)
    order = np.argsort(works)
    places = np.searchsorted(np.cumsum(weights[order]), weights.sum() * np.linspace(0.05, 0.95, 19))
    weighted = works[order][np.minimum(places, len(works) - 1)]
    work = float(np.median(weighted))
    runs = max(min(pair[0].count, pair[1].count) for pair in pairs)
    sigma = spread(weighted * _PRECISE) / _PRECISE / work
    return Pace(work=work, noise=max(LEAST, 1.0 / runs, _SIGMAS * sigma))


def _share(kernels: Sequence[KernelEntry], rank: RankProfile) -> float:
    total = sum(each.total_ns for each in rank.kernels)
    return sum(each.total_ns for each in kernels) / total if total else 0.0
