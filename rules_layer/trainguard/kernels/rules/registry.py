"""The rules over kernel profiles."""

from collections.abc import Mapping

from trainguard.kernels.captures.verdict import RuleVerdict
from trainguard.kernels.rules.compute import LowPrecisionUnused, SmUnderfilled, TensorCoresIdle
from trainguard.kernels.rules.host import LaunchBound, LoaderBound, QueueFull, SmallKernelStorm, SyncStall
from trainguard.kernels.rules.idle import GpuBusyLow, GpuGap, TraceStepOutlier
from trainguard.kernels.rules.memory import GpuMemoryFull, MemcpyBound, PageableCopy
from trainguard.kernels.rules.parallel import ExposedCommunication, WrongParallel
from trainguard.kernels.rules.ranks import LateRank, SlowRank
from trainguard.kernels.rules.rule import KernelRule, RankRule
from trainguard.kernels.rules.text import words
from trainguard.kernels.rules.trace_quality import TraceQuality
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.spec import RuleSpec, SettingsSpec

KERNEL_RULES: tuple[KernelRule, ...] = (
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

CAUSES_FIRST: tuple[RankRule, ...] = (
    LoaderBound(),
    WrongParallel(),
    SyncStall(),
    LaunchBound(),
    SmallKernelStorm(),
    ExposedCommunication(),
    PageableCopy(),
    MemcpyBound(),
    GpuGap(),
    GpuBusyLow(),
    LowPrecisionUnused(),
    TensorCoresIdle(),
    SmUnderfilled(),
    TraceStepOutlier(),
    GpuMemoryFull(),
    QueueFull(),
    TraceQuality(),
)
"""The rules over one rank in the order in which they take what they explain: causes before symptoms."""

PARAMETERS_TYPES: Mapping[str, type[RuleParameters]] = {rule.name: rule.parameters_type for rule in KERNEL_RULES}

SPECS: Mapping[str, RuleSpec] = {rule.name: rule.spec for rule in KERNEL_RULES}

SETTINGS_TYPES: Mapping[str, type[RuleParameters]] = {}

SETTINGS_SPECS: Mapping[str, SettingsSpec] = {}


def words_of(found: RuleVerdict) -> tuple[str, str]:
    """Return the finding's words and its advice; importing this module gives the words of all rules."""
    return words(found.kind, found.facts)
