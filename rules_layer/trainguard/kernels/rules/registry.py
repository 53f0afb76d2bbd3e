"""The rules over kernel profiles."""

from collections.abc import Mapping

from trainguard.kernels.captures.verdict import RuleVerdict
from trainguard.kernels.rules.exposed_communication import ExposedCommunication
from trainguard.kernels.rules.gpu_busy_low import GpuBusyLow
from trainguard.kernels.rules.gpu_gap import GpuGap
from trainguard.kernels.rules.gpu_memory_full import GpuMemoryFull
from trainguard.kernels.rules.late_rank import LateRank
from trainguard.kernels.rules.launch_bound import LaunchBound
from trainguard.kernels.rules.loader_bound import LoaderBound
from trainguard.kernels.rules.low_precision_unused import LowPrecisionUnused
from trainguard.kernels.rules.memcpy_bound import MemcpyBound
from trainguard.kernels.rules.pageable_copy import PageableCopy
from trainguard.kernels.rules.queue_full import QueueFull
from trainguard.kernels.rules.rule import KernelRule, RankRule
from trainguard.kernels.rules.slow_rank import SlowRank
from trainguard.kernels.rules.sm_underfilled import SmUnderfilled
from trainguard.kernels.rules.small_kernel_storm import SmallKernelStorm
from trainguard.kernels.rules.sync_stall import SyncStall
from trainguard.kernels.rules.tensor_cores_idle import TensorCoresIdle
from trainguard.kernels.rules.text import words
from trainguard.kernels.rules.trace_quality import TraceQuality
from trainguard.kernels.rules.trace_step_outlier import TraceStepOutlier
from trainguard.kernels.rules.wrong_parallel import WrongParallel
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
