"""The eleven sub-rules of the managed report, in the order in which it runs and reports them."""

from trainguard.debugger_replay.batch_size import BatchSize
from trainguard.debugger_replay.cpu_bottleneck import CPUBottleneck
from trainguard.debugger_replay.dataloader import Dataloader
from trainguard.debugger_replay.gpu_memory_increase import GPUMemoryIncrease
from trainguard.debugger_replay.io_bottleneck import IOBottleneck
from trainguard.debugger_replay.load_balancing import LoadBalancing
from trainguard.debugger_replay.low_gpu_utilization import LowGPUUtilization
from trainguard.debugger_replay.max_initialization_time import MaxInitializationTime
from trainguard.debugger_replay.overall_framework_metrics import OverallFrameworkMetrics
from trainguard.debugger_replay.overall_system_usage import OverallSystemUsage
from trainguard.debugger_replay.rule import AnyCompatibleRule
from trainguard.debugger_replay.step_outlier import StepOutlier

RULES: tuple[type[AnyCompatibleRule], ...] = (
    CPUBottleneck,
    IOBottleneck,
    LowGPUUtilization,
    StepOutlier,
    GPUMemoryIncrease,
    BatchSize,
    MaxInitializationTime,
    LoadBalancing,
    OverallSystemUsage,
    Dataloader,
    OverallFrameworkMetrics,
)
