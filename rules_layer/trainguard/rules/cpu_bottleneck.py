"""CPUBottleneck: GPUs that wait for a busy CPU.

Source: AWS documentation of CPUBottleneck. How points are counted and judged is in `trainguard.rules.bottlenecks`.
"""

from typing import ClassVar

from trainguard.rules.bottlenecks import BottleneckParameters, BottleneckRule
from trainguard.rules.protocol import NonNegativeInt, Percent
from trainguard.rules.units import show_percent
from trainguard.telemetry.snapshots import FloatArray, Snapshots


class CPUBottleneckParameters(BottleneckParameters, frozen=True, kw_only=True):
    """``cpu_threshold`` is in percent of a core."""

    cpu_threshold: Percent = 90.0
    gpu_threshold: Percent = 10.0
    patience: NonNegativeInt = 100


class CPUBottleneck(BottleneckRule[CPUBottleneckParameters]):
    """Fires when too large a share of the snapshots has low GPUs beside a busy core."""

    name: ClassVar[str] = "CPUBottleneck"
    parameters_type = CPUBottleneckParameters
    peak_key: ClassVar[str] = "cpu_max"
    metric: ClassVar[str] = "CPU utilization"

    def peaks(self, snapshots: Snapshots) -> FloatArray:
        """Return the busiest core's utilization."""
        return snapshots.cpu_max

    def limit(self, parameters: CPUBottleneckParameters) -> float:
        """Return ``cpu_threshold``."""
        return parameters.cpu_threshold

    def cause(self, parameters: CPUBottleneckParameters) -> str:
        """Say how busy a core was."""
        return f"a core was above {show_percent(parameters.cpu_threshold)}"

    def remedy(self) -> str:
        """Feed the GPUs from more cores."""
        return (
            "Use more data loader processes or prefetching, preprocess once ahead of training or on the GPU, or take "
            "an instance with more cores for each GPU"
        )
