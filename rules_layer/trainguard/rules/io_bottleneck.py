"""IOBottleneck: GPUs that wait while the cores wait for storage or network.

Source: AWS documentation of IOBottleneck. How points are counted and judged is in `trainguard.rules.bottlenecks`.
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
from trainguard.rules.io_bottleneck_text import text
from trainguard.rules.parameter_help import ParameterHelp
from trainguard.rules.protocol import Percent
from trainguard.rules.spec import SYSTEM, ChartLine, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS
from trainguard.rules.words import Text
from trainguard.telemetry.snapshots import Snapshots

WAITING_NODE = 15.0
"""Percent of their time that all cores wait for I/O on average, from which on they are held up."""

FIRST_PASS_S = 900.0
"""A running job is judged on more points than these: its first pass over the data fills caches, and is slow once."""


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
        "while a core waits for I/O more than {io_threshold} % of its time, or the GPUs' mean over the minute is below "
        "80 % while cores wait so, over the whole job or the last 30 min"
    ),
    measures=(BOTTLENECKED_SHARE, SLOW_SHARE),
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
    text=text,
    claims={"": (Bucket.DATA, Bucket.HOST, Bucket.IDLE, Bucket.UNEXPLAINED)},
    details=BottleneckDetails,
    chart_lines=(
        ChartLine("utilization", "gpu_threshold", "a GPU waits"),
        ChartLine("io_wait", "io_threshold", "a core waits"),
    ),
    section=SECTION,
)


class IOBottleneck(BottleneckRule[IOBottleneckParameters]):
    """Fires when too large a share of the snapshots has low GPUs beside a core that waits for input or output."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = IOBottleneckParameters
    peak_key: ClassVar[str] = "io_wait_max"
    series: ClassVar[CoreSeries] = CoreSeries("I/OWaitPercentage", "mean_io_wait", "highest_io_wait", "%")
    more_peak: ClassVar[float] = 15.0
    least_judged_s: ClassVar[float] = FIRST_PASS_S

    def cores(self, snapshots: Snapshots) -> Cores:
        """Return the I/O wait of the core that waits most, of all cores on average, and that of the first again."""
        return Cores(snapshots.io_wait_max, snapshots.io_wait_mean, snapshots.io_wait_max)

    def at_limit(self, count: MinuteCount, parameters: IOBottleneckParameters) -> bool:
        """Say whether a core waited for most of the minute, or all of them for a good part of it."""
        return count.mean(count.peak) > parameters.io_threshold or count.mean(count.level) >= WAITING_NODE

    def limit(self, parameters: IOBottleneckParameters) -> float:
        """Return ``io_threshold``."""
        return parameters.io_threshold

    def words(self) -> Text:
        """Return how it is told."""
        return text
