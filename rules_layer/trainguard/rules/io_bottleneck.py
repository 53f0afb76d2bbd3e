"""IOBottleneck: GPUs that wait while the cores wait for storage or network.

Source: AWS documentation of IOBottleneck. How points are counted and judged is in `trainguard.rules.bottlenecks`.
"""

from typing import ClassVar

from trainguard.rules.bottleneck_output import BottleneckDetails
from trainguard.rules.bottlenecks import (
    BOTTLENECK_HELP,
    BOTTLENECKED_SHARE,
    EXPLAINED,
    SECTION,
    BottleneckParameters,
    BottleneckRule,
)
from trainguard.rules.parameter_help import ParameterHelp
from trainguard.rules.protocol import Percent
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS
from trainguard.rules.units import show_percent
from trainguard.telemetry.snapshots import FloatArray, Snapshots


class IOBottleneckParameters(BottleneckParameters, frozen=True, kw_only=True):
    """``io_threshold`` is in percent of a core's time."""

    default_patience_s: ClassVar[float | None] = 500.0

    io_threshold: Percent = 50.0
    gpu_threshold: Percent = 70.0


SPEC = RuleSpec(
    name="IOBottleneck",
    title="I/O bottlenecks",
    looks_at="each node's GPUs and cores",
    fires_when="the GPUs wait while cores wait for I/O in most of the points",
    condition=(
        "in more than {threshold} % of the points a share of {gpu_fraction} of the GPUs is below {gpu_threshold} % "
        "while a core waits for I/O more than {io_threshold} % of its time, over the whole job or the last 30 min"
    ),
    measures=(BOTTLENECKED_SHARE,),
    parameters={
        **BOTTLENECK_HELP,
        "io_threshold": ParameterHelp("% of a core's time", "a core that waits longer for I/O is stuck"),
    },
    shipped_defaults={"gpu_threshold": 10.0},
    managed_parameters=("threshold", "io_threshold", "gpu_threshold", "patience"),
    inputs=SYSTEM,
    metrics=("I/O",),
    explains=EXPLAINED,
    seen_with=(LOW_GPUS,),
    clause="the GPUs waited for storage or other I/O",
    details=BottleneckDetails,
    section=SECTION,
)


class IOBottleneck(BottleneckRule[IOBottleneckParameters]):
    """Fires when too large a share of the snapshots has low GPUs beside a core that waits for input or output."""

    spec: ClassVar[RuleSpec] = SPEC
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
