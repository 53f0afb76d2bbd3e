"""CPUBottleneck: GPUs that wait for a busy CPU.

Source: AWS documentation of CPUBottleneck. How points are counted and judged is in `trainguard.rules.bottlenecks`.
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


class CPUBottleneckParameters(BottleneckParameters, frozen=True, kw_only=True):
    """``cpu_threshold`` is in percent of a core."""

    default_patience_s: ClassVar[float | None] = 50.0

    cpu_threshold: Percent = 90.0
    gpu_threshold: Percent = 10.0


SPEC = RuleSpec(
    name="CPUBottleneck",
    title="CPU bottlenecks",
    looks_at="each node's GPUs and cores",
    fires_when="the GPUs wait for a busy CPU in most of the points",
    condition=(
        "in more than {threshold} % of the points a share of {gpu_fraction} of the GPUs is below {gpu_threshold} % "
        "while a core is above {cpu_threshold} %, over the whole job or the last 30 min"
    ),
    measures=(BOTTLENECKED_SHARE,),
    parameters={**BOTTLENECK_HELP, "cpu_threshold": ParameterHelp("%", "a core above it is busy")},
    shipped_defaults={"patience_s": 500.0},
    managed_parameters=("threshold", "cpu_threshold", "gpu_threshold", "patience"),
    inputs=SYSTEM,
    metrics=("CPU",),
    explains=EXPLAINED,
    seen_with=(LOW_GPUS,),
    clause="the CPU cores could not keep up with the GPUs",
    details=BottleneckDetails,
    section=SECTION,
)


class CPUBottleneck(BottleneckRule[CPUBottleneckParameters]):
    """Fires when too large a share of the snapshots has low GPUs beside a busy core."""

    spec: ClassVar[RuleSpec] = SPEC
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
