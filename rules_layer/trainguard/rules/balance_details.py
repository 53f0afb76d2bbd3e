"""What the report shows of GPUs, or nodes, against each other."""

import msgspec
import numpy as np

from trainguard.rules.details import Details
from trainguard.rules.divergence import Comparison
from trainguard.telemetry.snapshots import BoolArray


class BalanceDetails(Details, frozen=True):
    """GPUs of a node: counts of utilization by two percent each, distances of pairs, means in percent.

    Of nodes against each other (``*``): the same, and the distance of each from the rest.
    """

    workloads: dict[str, list[int]] = msgspec.field(default_factory=dict)
    distances: dict[str, dict[str, float] | float] = msgspec.field(default_factory=dict)
    means: dict[str, float] = msgspec.field(default_factory=dict)


def shown_distances(
    names: tuple[str, ...], compared: Comparison, apart: BoolArray
) -> dict[str, dict[str, float] | float]:
    """Return distances of the pairs that are apart, and the largest of all, by the names of both."""
    shown = np.triu(apart, 1)
    largest = np.argmax(np.triu(compared.distances, 1) + np.triu(np.ones(apart.shape), 1))
    shown[np.unravel_index(int(largest), apart.shape)] = True
    table: dict[str, dict[str, float]] = {}
    for row, column in np.argwhere(shown).tolist():
        table.setdefault(names[row], {})[names[column]] = float(compared.distances[row, column])
    return {**table}
