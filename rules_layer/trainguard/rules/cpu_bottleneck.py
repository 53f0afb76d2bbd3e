"""CPUBottleneck: GPUs that wait for busy CPU cores.

Source: AWS documentation of CPUBottleneck. How points are counted and judged is in `trainguard.rules.bottlenecks`.
"""

from typing import ClassVar

from trainguard.ledger.bucket import Bucket
from trainguard.rules.bottleneck_counts import Cores, MinuteCount
from trainguard.rules.bottleneck_details import BottleneckDetails
from trainguard.rules.bottleneck_facts import CoreSeries
from trainguard.rules.bottlenecks import (
    BOTTLENECK_HELP,
    BOTTLENECKED_SHARE,
    EXPLAINED,
    SECTION,
    SLOW_SHARE,
    BottleneckParameters,
    BottleneckRule,
)
from trainguard.rules.cpu_bottleneck_text import FULL_NODE, text
from trainguard.rules.parameter_help import ParameterHelp
from trainguard.rules.protocol import Percent
from trainguard.rules.spec import SYSTEM, ChartLine, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS
from trainguard.rules.words import Text
from trainguard.telemetry.snapshots import Snapshots


class CPUBottleneckParameters(BottleneckParameters, frozen=True, kw_only=True):
    """``cpu_threshold`` is in percent of a core."""

    default_patience_s: ClassVar[float | None] = 50.0

    cpu_threshold: Percent = 90.0
    gpu_threshold: Percent = 10.0


SPEC = RuleSpec(
    name="CPUBottleneck",
    title="CPU bottlenecks",
    looks_at="each node's GPUs and cores",
    fires_when="the GPUs wait for busy cores in most of the points, or work slowly beside full ones",
    condition=(
        "in more than {threshold} % of the points a share of {gpu_fraction} of the GPUs is below {gpu_threshold} % "
        "while a core is above {cpu_threshold} %, or the GPUs' mean over the minute is below 80 % while cores are "
        "full, over the whole job or the last 30 min"
    ),
    measures=(BOTTLENECKED_SHARE, SLOW_SHARE),
    parameters={**BOTTLENECK_HELP, "cpu_threshold": ParameterHelp("%", "a core above it is busy")},
    shipped_defaults={"patience_s": 500.0},
    managed_parameters=("threshold", "cpu_threshold", "gpu_threshold", "patience"),
    inputs=SYSTEM,
    metrics=("CPU",),
    explains=EXPLAINED,
    seen_with=(LOW_GPUS,),
    text=text,
    claims={"": (Bucket.DATA, Bucket.HOST, Bucket.IDLE, Bucket.UNEXPLAINED)},
    details=BottleneckDetails,
    chart_lines=(
        ChartLine("utilization", "gpu_threshold", "a GPU waits"),
        ChartLine("cpu", "cpu_threshold", "a core is busy"),
    ),
    section=SECTION,
)


class CPUBottleneck(BottleneckRule[CPUBottleneckParameters]):
    """Fires when too large a share of the snapshots has low GPUs beside a busy core."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = CPUBottleneckParameters
    peak_key: ClassVar[str] = "cpu_max"
    series: ClassVar[CoreSeries] = CoreSeries("CPUUtilization", "mean_core_utilization", "cores_full", "cores")
    more_peak: ClassVar[float] = 1.0

    def cores(self, snapshots: Snapshots) -> Cores:
        """Return the busiest core's utilization, the mean of all cores, and how many of them are full."""
        return Cores(snapshots.cpu_max, snapshots.cpu_mean, snapshots.cores_full)

    def at_limit(self, count: MinuteCount, parameters: CPUBottleneckParameters) -> bool:
        """Say whether all cores were full, or more than the GPUs' own processes fill, which may only wait for them."""
        del parameters
        return count.mean(count.level) >= FULL_NODE or count.mean(count.peak) >= count.gpus + 1.0

    def limit(self, parameters: CPUBottleneckParameters) -> float:
        """Return ``cpu_threshold``."""
        return parameters.cpu_threshold

    def words(self) -> Text:
        """Return how it is told."""
        return text
