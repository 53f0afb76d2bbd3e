"""The eleven sub-rules of the managed report, in the order in which it runs and reports them."""

from trainguard.compatible.batch_size import BatchSize
from trainguard.compatible.cpu_bottleneck import CPUBottleneck
from trainguard.compatible.dataloader import Dataloader
from trainguard.compatible.gpu_memory_increase import GPUMemoryIncrease
from trainguard.compatible.io_bottleneck import IOBottleneck
from trainguard.compatible.load_balancing import LoadBalancing
from trainguard.compatible.low_gpu_utilization import LowGPUUtilization
from trainguard.compatible.max_initialization_time import MaxInitializationTime
from trainguard.compatible.overall_framework_metrics import OverallFrameworkMetrics
from trainguard.compatible.overall_system_usage import OverallSystemUsage
from trainguard.compatible.rule import AnyCompatibleRule
from trainguard.compatible.step_outlier import StepOutlier

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
