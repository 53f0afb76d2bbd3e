"""What rules and their parameters mean, in words and units for people; the pages of `docs/rules` say the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

POINTS, LOADER_SECONDS, STEPS = "points", "seconds with loader events", "steps"


@dataclass(frozen=True, slots=True)
class ParameterWords:
    """A parameter: its unit, and what it does in one line."""

    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class RuleWords:
    """A rule for a person who reads its state.

    Attributes
    ----------
    looks_at, fires_when : str
        The columns of the page on all rules.
    condition : str
        The condition with ``{parameter}`` where a parameter's value belongs.
    measured, unit : str or None
        What ``Measured`` is, and its unit; None of a rule that measures nothing.
    counts : str
        What patience is counted in.
    at_patience : bool
        Whether a verdict comes with as many as patience needs; else with one more.
    parameters : mapping of str to ParameterWords
    """

    looks_at: str
    fires_when: str
    condition: str
    measured: str | None = None
    unit: str = ""
    counts: str = POINTS
    at_patience: bool = False
    parameters: Mapping[str, ParameterWords] = field(default_factory=dict)


def _span(name: str, meaning: str, units: Sequence[str] = (POINTS, "seconds")) -> dict[str, ParameterWords]:
    """Return a parameter in points and the same one in seconds."""
    points, seconds = units
    return {
        name: ParameterWords(points, meaning),
        f"{name}_s": ParameterWords(seconds, f"the same as {name}, independent of the sampling interval"),
    }


_PATIENCE = _span("patience", "how much is waited for before the first verdict")
_WINDOW = _span("window", "how many of the newest points are looked at")
_BOTTLENECK = {
    "threshold": ParameterWords("% of the judged points", "a larger share of bottlenecked points fires"),
    "gpu_threshold": ParameterWords("%", "a GPU below it waits"),
    "gpu_fraction": ParameterWords("fraction of the ever-active GPUs", "so many must wait for a point to count"),
    **_PATIENCE,
}
SCAN_INTERVAL = ParameterWords("microseconds", "accepted, and rounded up to whole minutes; evaluation is once a minute")

RULES: Mapping[str, RuleWords] = {
    "LowGPUUtilization": RuleWords(
        looks_at="each node's GPUs",
        fires_when="a GPU stays under-utilised or keeps fluctuating; a node idles or was never used",
        condition=(
            "95 % of a GPU's newest points stay below {threshold_p95} %, or 5 % of them below {threshold_p5} %, at "
            "every evaluation while the window moves on by twice its length; or all GPUs of a node idle for 20 min"
        ),
        measured="95th percentile of GPU utilization",
        unit="%",
        parameters={
            "threshold_p95": ParameterWords("%", "a GPU whose 95th percentile is below it is under-utilised"),
            "threshold_p5": ParameterWords("%", "else, one whose 5th percentile is below it fluctuates"),
            **_WINDOW,
            **_PATIENCE,
        },
    ),
    "CPUBottleneck": RuleWords(
        looks_at="each node's GPUs and cores",
        fires_when="the GPUs wait for a busy CPU in most of the points",
        condition=(
            "in more than {threshold} % of the points a share of {gpu_fraction} of the GPUs is below {gpu_threshold} % "
            "while a core is above {cpu_threshold} %, over the whole job or the last 30 min"
        ),
        measured="bottlenecked points of the judged ones",
        unit="%",
        parameters={**_BOTTLENECK, "cpu_threshold": ParameterWords("%", "a core above it is busy")},
    ),
    "IOBottleneck": RuleWords(
        looks_at="each node's GPUs and cores",
        fires_when="the GPUs wait while cores wait for I/O in most of the points",
        condition=(
            "in more than {threshold} % of the points a share of {gpu_fraction} of the GPUs is below {gpu_threshold} % "
            "while a core waits for I/O more than {io_threshold} % of its time, over the whole job or the last 30 min"
        ),
        measured="bottlenecked points of the judged ones",
        unit="%",
        parameters={
            **_BOTTLENECK,
            "io_threshold": ParameterWords("% of a core's time", "a core that waits longer for I/O is stuck"),
        },
    ),
    "BatchSize": RuleWords(
        looks_at="each node's CPU, GPUs and GPU memory",
        fires_when="neither is put to use for long: the batch or the job is too small for the instance",
        condition=(
            "95 % of the newest points are below {cpu_threshold_p95} % of CPU, {gpu_threshold_p95} % of GPU and "
            "{gpu_memory_threshold_p95} % of GPU memory, all at once, while the window moves on by twice its length"
        ),
        measured="95th percentile of the busiest GPU's utilization",
        unit="%",
        parameters={
            "cpu_threshold_p95": ParameterWords(
                "%", "95th percentile of the cores' mean below which the CPU is unused"
            ),
            "gpu_threshold_p95": ParameterWords("%", "95th percentile below which a GPU is unused"),
            "gpu_memory_threshold_p95": ParameterWords("%", "95th percentile below which a GPU's memory is unused"),
            **_WINDOW,
            **_PATIENCE,
        },
    ),
    "GPUMemoryIncrease": RuleWords(
        looks_at="each GPU's memory",
        fires_when="it jumps, or rises steadily, as a leak does",
        condition="a GPU's memory rises by more than {increase} percentage points to a new level, or steadily",
        measured="increase of GPU memory",
        unit="percentage points",
        at_patience=True,
        parameters={
            "increase": ParameterWords("percentage points", "a larger rise fires"),
            **_WINDOW,
            **_PATIENCE,
        },
    ),
    "LoadBalancing": RuleWords(
        looks_at="the GPUs of a node, the nodes of a job",
        fires_when="some do clearly less than the others",
        condition="a GPU, or a node, does less than another, and their utilizations are more than {threshold} apart",
        measured="Jensen-Shannon distance",
        at_patience=True,
        parameters={
            "threshold": ParameterWords("Jensen-Shannon distance", "two workloads further apart are unbalanced"),
            **_span(
                "patience",
                "how much is waited for before the first verdict",
                ("points, at least 500 are waited for", "seconds"),
            ),
        },
    ),
    "StepOutlier": RuleWords(
        looks_at="each process's training steps",
        fires_when="long steps are more than chance explains, or cost too much time",
        condition=(
            "a process has more steps beyond its mean and {stddev} standard deviations than {n_outliers} and chance "
            "allow, or loses more than {slow_share} % of its time in slow steps"
        ),
        measured="beyond the limit",
        unit="steps",
        counts=STEPS,
        parameters={
            "stddev": ParameterWords("standard deviations", "a step further beyond the mean is an outlier"),
            "mode": ParameterWords(
                "`TRAIN`, `EVAL`, …, or the event's full name; None judges all `Step:ModeKeys`",
                "which steps are judged",
            ),
            "n_outliers": ParameterWords("steps", "so many outliers are plausible in any job"),
            "slow_share": ParameterWords(
                "% of the time in steps", "a larger share of the time lost in slow steps fires"
            ),
        },
    ),
    "MaxInitializationTime": RuleWords(
        looks_at="the job",
        fires_when="the first training step begins too late",
        condition="the first training step begins more than {threshold} min after the training start",
        measured="time until the first step",
        unit="min",
        parameters={"threshold": ParameterWords("minutes", "a first step that begins later fires")},
    ),
    "Dataloader": RuleWords(
        looks_at="each node's data loaders and cores",
        fires_when="there are clearly fewer, or more, loader processes than the cores suggest",
        condition="a node's data loaders are less than {min_threshold} % or more than {max_threshold} % of its cores",
        measured="data loaders of the node's cores",
        unit="%",
        counts=LOADER_SECONDS,
        parameters={
            "min_threshold": ParameterWords("% of the node's cores", "fewer loaders are too few"),
            "max_threshold": ParameterWords("% of the node's cores", "more loaders are too many"),
            **_span("patience", "how much is waited for before the first verdict", (LOADER_SECONDS, LOADER_SECONDS)),
        },
    ),
    "OverallSystemUsage": RuleWords(
        looks_at="each node", fires_when="never: it sums up what the machine did", condition="never; it sums up"
    ),
    "OverallFrameworkMetrics": RuleWords(
        looks_at="each node's framework events",
        fires_when="never: it sums up where the time went",
        condition="never; it sums up",
    ),
    "ProfilerReport": RuleWords(
        looks_at="the other eleven",
        fires_when="one of them has fired",
        condition="one of the other rules fires",
        measured="rules that have fired",
        parameters={
            "rule_to_invoke": ParameterWords("rule", "ProfilerReport runs all rules; another name runs that one alone"),
            "opt_out_telemetry": ParameterWords("", "accepted; TrainGuard sends nothing to anybody either way"),
        },
    ),
}


def parameter_words(rule: str, parameter: str) -> ParameterWords:
    """Return what a parameter means; KeyError of one that there is not."""
    return SCAN_INTERVAL if parameter == "scan_interval_us" else RULES[rule].parameters[parameter]
