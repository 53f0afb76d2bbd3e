"""Which rules there are, as stateless instances in the order of the report."""

from trainguard.rules.cpu_bottleneck import CPUBottleneck
from trainguard.rules.low_gpu_utilization import LowGPUUtilization
from trainguard.rules.max_initialization_time import MaxInitializationTime
from trainguard.rules.protocol import AnyFrameworkRule, AnyJobRule, AnySystemRule
from trainguard.rules.step_outlier import StepOutlier

SYSTEM_RULES: tuple[AnySystemRule, ...] = (CPUBottleneck(), LowGPUUtilization())
FRAMEWORK_RULES: tuple[AnyFrameworkRule, ...] = (StepOutlier(),)
JOB_RULES: tuple[AnyJobRule, ...] = (MaxInitializationTime(),)
ALL_RULES: tuple[AnySystemRule | AnyFrameworkRule | AnyJobRule, ...] = (*SYSTEM_RULES, *FRAMEWORK_RULES, *JOB_RULES)
RULE_NAMES: tuple[str, ...] = tuple(dict.fromkeys(rule.name for rule in ALL_RULES))
