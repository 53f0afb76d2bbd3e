"""CPUBottleneck: snapshots in which a GPU waits while a core is busy.

Kept defects: snapshots are known by their time alone, so nodes of one time make bottlenecks that no node has; CPU and
GPU samples over 20 ms apart are two snapshots; one idle GPU and one busy core suffice; ``ratio`` has its labels
swapped; correlation adds an event's full duration for every bottleneck that it covers; samples on a window's edge are
used twice.
"""

from collections.abc import Mapping
from typing import ClassVar

from trainguard.debugger_replay.bottleneck import Bottlenecks
from trainguard.debugger_replay.rule import CompatibleRule, Number, RuleParameters, Window


class CPUBottleneckParameters(RuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``patience`` in snapshots."""

    threshold: Number = 50
    cpu_threshold: Number = 90
    gpu_threshold: Number = 10
    patience: Number = 1000
    documented: ClassVar[Mapping[str, Number | str | None]] = {"patience": 100}


class CPUBottleneck(CompatibleRule[CPUBottleneckParameters]):
    """Triggers in every window in which the share of bottlenecks since the job's start exceeds the threshold."""

    name = "CPUBottleneck"
    parameters_type = CPUBottleneckParameters

    def __init__(self, parameters: CPUBottleneckParameters, first_us: int) -> None:
        super().__init__(parameters, first_us)
        self._bottlenecks = Bottlenecks(
            "CPUUtilization",
            parameters.cpu_threshold,
            parameters.gpu_threshold,
            parameters.threshold,
            parameters.patience,
        )

    def observe(self, window: Window) -> None:
        """Count the window's bottlenecks."""
        self._bottlenecks.observe(window, self.counts)

    def finish(self) -> None:
        """Write the bottlenecks, and what correlated with them."""
        self._bottlenecks.finish(self.counts)
