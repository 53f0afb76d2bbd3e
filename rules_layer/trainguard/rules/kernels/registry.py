"""Which rules over kernel profiles there are, in the order in which they are shown."""

from collections.abc import Mapping
from typing import ClassVar

from trainguard.ledger.bucket import LOST_AT_WORK, Bucket
from trainguard.rules.kernels.capture_rule import CaptureRule
from trainguard.rules.kernels.capture_text import text
from trainguard.rules.kernels.names import FAMILY
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec, SettingsSpec
from trainguard.rules.symptoms import DATA_WAITS, LOW_GPUS

CAPTURES = "captures"
_LOOKS_AT = "the kernel traces of the newest capture, rank by rank"
_ACROSS = "the ranks of the newest capture beside each other"

_CLAIMS = {
    "LoaderBound": (Bucket.DATA,),
    "LaunchBound": (Bucket.HOST,),
    "SmallKernelStorm": (Bucket.HOST,),
    "SyncStall": (Bucket.HOST,),
    "PageableCopy": (Bucket.HOST,),
    "QueueFull": (Bucket.HOST,),
    "ExposedCommunication": (Bucket.COMMUNICATION,),
    "LateRank": (Bucket.PEERS,),
    "SlowRank": (Bucket.PEERS,),
    "GpuBusyLow": LOST_AT_WORK,
    "GpuGap": LOST_AT_WORK,
}
"""The parts of the ledger that a trace's finding explains: a trace divides what utilization leaves open."""

_SYMPTOMS = {"GpuBusyLow": LOW_GPUS, "GpuGap": LOW_GPUS, "LoaderBound": DATA_WAITS}
_EXPLAINS = dict.fromkeys(("LoaderBound", "LaunchBound", "SmallKernelStorm", "SyncStall", "LateRank"), (LOW_GPUS,))


def _spec(rule: str, title: str, fires_when: str, measure: Measure, *, informs_only: bool = False) -> RuleSpec:
    """Return what is said of a rule."""
    return RuleSpec(
        name=f"{FAMILY}/{rule}",
        family=FAMILY,
        title=title,
        looks_at=_ACROSS if rule in {"LateRank", "SlowRank"} else _LOOKS_AT,
        fires_when=fires_when,
        condition=fires_when.removeprefix("never: "),
        measures=(measure,),
        counts=CAPTURES,
        informs_only=informs_only,
        symptom=_SYMPTOMS.get(rule),
        explains=_EXPLAINS.get(rule, ()),
        text=text,
        claims={"": _CLAIMS[rule]} if rule in _CLAIMS else {},
    )


class GpuBusyLow(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "GpuBusyLow",
        "GPU busy",
        "the GPU is busy less than 70 % of the window; it matters more below 50 %",
        Measure("busy share of the window"),
    )


class GpuGap(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "GpuGap",
        "Gaps of the GPU",
        "the GPU is idle at a stretch for 500 ms, or for over a tenth of the median step",
        Measure("longest gap", "ms"),
    )


class LoaderBound(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "LoaderBound",
        "Waiting for the data loader",
        "steps wait over 5 % of their time for the data loader",
        Measure("share of steps in the data loader"),
    )


class LaunchBound(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "LaunchBound",
        "Launches that come too late",
        "busy under 70 %, half of the idle time is the host's, and kernels start within 10 us of their launch; the "
        "wait for data counts as neither busy nor idle",
        Measure("median delay from launch to start", "us"),
    )


class SmallKernelStorm(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "SmallKernelStorm",
        "Small kernels",
        "there are 300 kernels a step, half of them shorter than their launching call, and the GPU is busy under 90 % "
        "of the time beside the wait for data",
        Measure("share of kernels shorter than their call"),
    )


class SyncStall(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "SyncStall",
        "Synchronization",
        "the host waits for the GPU 10 % of the time, and the GPU is idle meanwhile or right after for 5 %",
        Measure("share of the window in synchronization"),
    )


class ExposedCommunication(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "ExposedCommunication",
        "Exposed communication",
        "communication without computation takes 10 % of the time",
        Measure("exposed share of the window"),
    )


class MemcpyBound(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "MemcpyBound",
        "Copies",
        "the GPU only copies or sets memory for 10 % of the time",
        Measure("share of the window with copies alone"),
    )


class PageableCopy(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "PageableCopy",
        "Copies from pageable memory",
        "copies from or to pageable memory take 1 % of the time",
        Measure("share of the window in such copies"),
    )


class WrongParallel(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "WrongParallel",
        "The wrong kind of data parallelism",
        "DataParallel drives two GPUs or more, or DistributedDataParallel sends gradients without NCCL",
        Measure("GPUs, or share of the window in collectives on the host"),
    )


class TensorCoresIdle(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "TensorCoresIdle",
        "Tensor cores",
        "under half of the time of matrix, convolution and attention kernels is on tensor cores",
        Measure("share of that time on tensor cores"),
    )


class LowPrecisionUnused(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "LowPrecisionUnused",
        "Precision",
        "over half of the computing time is in FP32, on a GPU that has BF16 and TF32",
        Measure("share of computing time in FP32"),
    )


class SmUnderfilled(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "SmUnderfilled",
        "Underfilled multiprocessors",
        "a fifth of the computing time is in kernels with less than one block a multiprocessor",
        Measure("share of computing time in such kernels"),
    )


class TraceStepOutlier(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "TraceStepOutlier",
        "Slow steps of a trace",
        "of ten steps or more, one is over the median by 5 robust sigmas and a tenth",
        Measure("slowest step", "ms"),
    )


class GpuMemoryFull(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "GpuMemoryFull",
        "GPU memory",
        "over 90 % of a GPU's memory was reserved; needs profile_memory=True",
        Measure("reserved share of the memory"),
    )


class QueueFull(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "QueueFull",
        "Full queues",
        "never: it says that 1,024 launches wait in a stream's queue for 5 % of the time",
        Measure("share of the window with a full queue"),
        informs_only=True,
    )


class TraceQuality(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "TraceQuality",
        "Quality of traces",
        "never: it says what is missing or damaged in traces",
        Measure("faults"),
        informs_only=True,
    )


class LateRank(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "LateRank",
        "A late rank",
        "in half of the steps one rank comes last into a collective, 5 % of a step later than the middle rank",
        Measure("lateness as a share of a step"),
    )


class SlowRank(CaptureRule):
    """See its spec."""

    spec: ClassVar[RuleSpec] = _spec(
        "SlowRank",
        "A slow rank",
        "a rank computes 1.1 times as long as the median of the other like ranks, and is not the late one",
        Measure("times the median of like ranks"),
    )


KERNEL_RULES: tuple[CaptureRule, ...] = (
    GpuBusyLow(),
    GpuGap(),
    LoaderBound(),
    LaunchBound(),
    SmallKernelStorm(),
    SyncStall(),
    ExposedCommunication(),
    MemcpyBound(),
    PageableCopy(),
    WrongParallel(),
    TensorCoresIdle(),
    LowPrecisionUnused(),
    SmUnderfilled(),
    TraceStepOutlier(),
    GpuMemoryFull(),
    QueueFull(),
    TraceQuality(),
    LateRank(),
    SlowRank(),
)

PARAMETERS_TYPES: Mapping[str, type[RuleParameters]] = {rule.name: rule.parameters_type for rule in KERNEL_RULES}

SPECS: Mapping[str, RuleSpec] = {rule.name: rule.spec for rule in KERNEL_RULES}

SETTINGS_TYPES: Mapping[str, type[RuleParameters]] = {}
"""Groups of settings that are no rule's: none."""

SETTINGS_SPECS: Mapping[str, SettingsSpec] = {}
