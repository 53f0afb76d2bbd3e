"""LoadBalancing: histograms of GPU utilisation, which were once compared.

Kept defects: the last GPU is compared with itself, so that the rule never triggers; 99 and 100 % are in no bin;
``Datapoints`` is the last GPU's; beyond 1e6 values all state is dropped.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from trainguard.managed.history import NodeHistories
from trainguard.managed.rule import MAX_DATAPOINTS, CompatibleRule, Number, RuleParameters, Window

if TYPE_CHECKING:
    from trainguard.formats.profile.snapshots import FloatArray

_EDGES = np.arange(0, 100, 2)


class LoadBalancingParameters(RuleParameters, frozen=True, kw_only=True):
    """Threshold of the distance between histograms, in [0, 0.83]; ``patience`` in values of a GPU."""

    threshold: Number = 0.2
    patience: Number = 1000
    documented: ClassVar[Mapping[str, Number | str | None]] = {"threshold": 0.5, "patience": 10}


class LoadBalancing(CompatibleRule[LoadBalancingParameters]):
    """Reports a histogram of every GPU's whole history, in bins 2 points wide up to 98 %."""

    def __init__(self, parameters: LoadBalancingParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._used = NodeHistories()
        self._shown: dict[tuple[str, str], FloatArray] = {}

    def observe(self, window: Window) -> None:
        """Append the window's values; what the report shows follows every window."""
        for _ in self._used.pieces(window.system.of("GPUUtilization"), MAX_DATAPOINTS):
            pass
        self.datapoints = self._used.points
        for node, gpu, history in self._used:
            self.details.setdefault(node, {"workloads": {}})["workloads"].setdefault(gpu, [])
            self._shown[node, gpu] = history.values

    def finish(self) -> None:
        for (node, gpu), values in self._shown.items():
            counts, _ = np.histogram(values, bins=_EDGES)
            self.details[node]["workloads"][gpu] = counts.tolist()
