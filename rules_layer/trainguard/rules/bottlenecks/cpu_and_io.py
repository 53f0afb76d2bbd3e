"""CPUBottleneck and IOBottleneck: GPUs that wait for cores, or for I/O. Source: AWS documentation of both."""

from typing import ClassVar

from trainguard.formats.profile.snapshots import Snapshots
from trainguard.rules.bottlenecks.rule import BOTTLENECK_HELP, BottleneckParameters, BottleneckRule, bottleneck_spec
from trainguard.rules.bottlenecks.state import Cores, MinuteCount
from trainguard.rules.bottlenecks.text import CoreWords
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import Percent
from trainguard.rules.rule_result import FactSheet
from trainguard.rules.spec import ChartLine, ParameterHelp

# Cores whose mean is as high, percent, leave little: the rest is what the system itself needs.
FULL_NODE = 80.0


def _full_cores(sheet: FactSheet) -> str:
    if sheet.number("mean_core_utilization") >= FULL_NODE:
        return sheet.say("the cores were {mean_core_utilization} busy on average")
    return sheet.say(
        "{cores_full} cores were full on average" if sheet.number("cores_full") >= 1.5 else "a core was full"
    )


def _cpu_remedy(sheet: FactSheet) -> str:
    level = sheet.get("mean_core_utilization_found") or sheet["mean_core_utilization"]
    busy = sheet.say("The cores {were/are} {level} busy on average", level=level)
    if float(level.value) >= FULL_NODE:
        return (
            f"{busy}, which leaves little: use fewer or cheaper transforms, preprocess once ahead of training or on "
            "the GPU, or take an instance with more cores for each GPU"
        )
    return (
        f"{busy}, so that others are free: use more data loader processes (num_workers) or prefetching, do less in the "
        "training process itself, or preprocess once ahead of training or on the GPU"
    )


CPU_WORDS = CoreWords(
    series="CPUUtilization",
    level="mean_core_utilization",
    peak="cores_full",
    peak_unit="cores",
    clause="the CPU cores could not keep up with the GPUs",
    cause="a core was above {core_limit.limit}",
    cause_of_minutes="{full_cores}",
    at_limit="A core was above {limit}",
    remedy="{remedy}",
    parts={"full_cores": _full_cores, "remedy": _cpu_remedy},
)


class CPUBottleneckParameters(BottleneckParameters, frozen=True, kw_only=True):
    default_patience_s: ClassVar[float | None] = 50.0

    cpu_threshold: Percent = 90.0
    gpu_threshold: Percent = 10.0


class CPUBottleneck(BottleneckRule[CPUBottleneckParameters]):
    spec = bottleneck_spec(
        name="CPUBottleneck",
        title="CPU bottlenecks",
        fires_when="the GPUs wait for busy cores in most of the points, or work slowly beside full ones",
        condition=(
            "in more than {threshold} % of the points a share of {gpu_fraction} of the GPUs is below {gpu_threshold} % "
            "while a core is above {cpu_threshold} %, or the GPUs' mean over the minute is below 80 % while cores are "
            "full, over the whole job or the last 30 min"
        ),
        parameters={**BOTTLENECK_HELP, "cpu_threshold": ParameterHelp("%", "a core above it is busy")},
        shipped_defaults={"patience_s": 500.0},
        managed_parameters=("threshold", "cpu_threshold", "gpu_threshold", "patience"),
        metrics=("CPU",),
        changes={"": ChangeCode.FEED_FASTER},
        text=CPU_WORDS,
        chart_lines=(
            ChartLine("utilization", "gpu_threshold", "a GPU waits"),
            ChartLine("cpu", "cpu_threshold", "a core is busy"),
        ),
    )

    peak_key: ClassVar[str] = "cpu_max"
    words: ClassVar[CoreWords] = CPU_WORDS
    more_peak: ClassVar[float] = 1.0

    def cores(self, snapshots: Snapshots) -> Cores:
        """Return the busiest core's utilization, the mean of all cores, and how many of them are full."""
        return snapshots.cpu_max, snapshots.cpu_mean, snapshots.cores_full

    def at_limit(self, count: MinuteCount, parameters: CPUBottleneckParameters) -> bool:
        """Say whether all cores were full, or more than the GPUs' own processes fill, which may only wait for them."""
        return count.mean(count.level) >= FULL_NODE or count.mean(count.peak) >= count.gpus + 1.0

    def limit(self, parameters: CPUBottleneckParameters) -> float:
        return parameters.cpu_threshold


IO_WORDS = CoreWords(
    series="I/OWaitPercentage",
    level="mean_io_wait",
    peak="highest_io_wait",
    peak_unit="%",
    clause="the GPUs waited for storage or other I/O",
    cause="a core waited for I/O more than {core_limit.limit} of its time",
    cause_of_minutes=("cores waited for I/O, the first of them {highest_io_wait} of its time and all {mean_io_wait}"),
    at_limit="A core waited for I/O more than {limit} of its time",
    remedy=(
        "Prefetch, pack the data set into fewer and larger files of a binary format, or keep it on a faster volume or "
        "file system"
    ),
)

# Percent of their time that all cores wait for I/O on average, from which on they are held up.
WAITING_NODE = 15.0
# A running job is judged on more points than these: its first pass over the data fills caches, and is slow once.
FIRST_PASS_S = 900.0


class IOBottleneckParameters(BottleneckParameters, frozen=True, kw_only=True):
    default_patience_s: ClassVar[float | None] = 500.0

    io_threshold: Percent = 50.0
    gpu_threshold: Percent = 70.0


class IOBottleneck(BottleneckRule[IOBottleneckParameters]):
    spec = bottleneck_spec(
        name="IOBottleneck",
        title="I/O bottlenecks",
        fires_when="the GPUs wait while cores wait for I/O in most of the points",
        condition=(
            "in more than {threshold} % of the points a share of {gpu_fraction} of the GPUs is below {gpu_threshold} % "
            "while a core waits for I/O more than {io_threshold} % of its time, or the GPUs' mean over the minute is "
            "below 80 % while cores wait so, over the whole job or the last 30 min"
        ),
        parameters={
            **BOTTLENECK_HELP,
            "io_threshold": ParameterHelp("% of a core's time", "a core that waits longer for I/O is stuck"),
        },
        shipped_defaults={"gpu_threshold": 10.0},
        managed_parameters=("threshold", "io_threshold", "gpu_threshold", "patience"),
        metrics=("I/O",),
        changes={"": ChangeCode.FASTER_STORAGE},
        text=IO_WORDS,
        chart_lines=(
            ChartLine("utilization", "gpu_threshold", "a GPU waits"),
            ChartLine("io_wait", "io_threshold", "a core waits"),
        ),
    )

    peak_key: ClassVar[str] = "io_wait_max"
    words: ClassVar[CoreWords] = IO_WORDS
    more_peak: ClassVar[float] = 15.0
    least_judged_s: ClassVar[float] = FIRST_PASS_S

    def cores(self, snapshots: Snapshots) -> Cores:
        """Return the I/O wait of the core that waits most, of all cores on average, and that of the first again."""
        return snapshots.io_wait_max, snapshots.io_wait_mean, snapshots.io_wait_max

    def at_limit(self, count: MinuteCount, parameters: IOBottleneckParameters) -> bool:
        """Say whether a core waited for most of the minute, or all of them for a good part of it."""
        return count.mean(count.peak) > parameters.io_threshold or count.mean(count.level) >= WAITING_NODE

    def limit(self, parameters: IOBottleneckParameters) -> float:
        return parameters.io_threshold
