"""Which rules there are, as stateless instances in the order of the report."""

from trainguard.rules.batch_size import BatchSize
from trainguard.rules.cpu_bottleneck import CPUBottleneck
from trainguard.rules.dataloader import Dataloader
from trainguard.rules.gpu_memory_increase import GPUMemoryIncrease
from trainguard.rules.io_bottleneck import IOBottleneck
from trainguard.rules.load_balancing import LoadBalancing, LoadBalancingAcrossNodes
from trainguard.rules.low_gpu_utilization import LowGPUUtilization
from trainguard.rules.max_initialization_time import MaxInitializationTime
from trainguard.rules.overall_framework_metrics import OverallFrameworkMetrics
from trainguard.rules.overall_system_usage import OverallSystemUsage
from trainguard.rules.protocol import AnyFrameworkRule, AnyJobRule, AnySystemRule
from trainguard.rules.step_outlier import StepOutlier

SYSTEM_RULES: tuple[AnySystemRule, ...] = (
    CPUBottleneck(),
    IOBottleneck(),
    LowGPUUtilization(),
    GPUMemoryIncrease(),
    BatchSize(),
    LoadBalancing(),
    OverallSystemUsage(),
)
FRAMEWORK_RULES: tuple[AnyFrameworkRule, ...] = (StepOutlier(), OverallFrameworkMetrics())
JOB_RULES: tuple[AnyJobRule, ...] = (MaxInitializationTime(), LoadBalancingAcrossNodes(), Dataloader())
ALL_RULES: tuple[AnySystemRule | AnyFrameworkRule | AnyJobRule, ...] = (*SYSTEM_RULES, *FRAMEWORK_RULES, *JOB_RULES)
RULE_NAMES: tuple[str, ...] = tuple(dict.fromkeys(rule.name for rule in ALL_RULES))
