"""IOBottleneck: GPUs that wait while the cores wait for storage or network.

Source: AWS documentation of IOBottleneck. How points are counted and judged is in `trainguard.rules.bottlenecks`.
"""

from typing import ClassVar

from trainguard.rules.bottlenecks import BottleneckParameters, BottleneckRule
from trainguard.rules.protocol import NonNegativeInt, Percent
from trainguard.rules.units import show_percent
from trainguard.telemetry.snapshots import FloatArray, Snapshots


class IOBottleneckParameters(BottleneckParameters, frozen=True, kw_only=True):
    """``io_threshold`` is in percent of a core's time."""

    io_threshold: Percent = 50.0
    gpu_threshold: Percent = 70.0
    patience: NonNegativeInt = 1_000


class IOBottleneck(BottleneckRule[IOBottleneckParameters]):
    """Fires when too large a share of the snapshots has low GPUs beside a core that waits for input or output."""

    name: ClassVar[str] = "IOBottleneck"
    parameters_type = IOBottleneckParameters
    peak_key: ClassVar[str] = "io_wait_max"
    metric: ClassVar[str] = "I/O wait"

    def peaks(self, snapshots: Snapshots) -> FloatArray:
        """Return the I/O wait of the core that waits most."""
        return snapshots.io_wait_max

    def limit(self, parameters: IOBottleneckParameters) -> float:
        """Return ``io_threshold``."""
        return parameters.io_threshold

    def cause(self, parameters: IOBottleneckParameters) -> str:
        """Say how much of its time a core waited."""
        return f"a core waited for I/O more than {show_percent(parameters.io_threshold)} of its time"

    def remedy(self) -> str:
        """Read less often, ahead of time, or from a faster place."""
        return (
            "Prefetch, pack the data set into fewer and larger files of a binary format, or keep it on a faster "
            "volume or file system"
        )
