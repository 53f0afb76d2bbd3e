"""Which rules there are, as stateless instances in the order of the report; a deployment's own come last."""

from collections.abc import MutableMapping

from trainguard.rules import family_rules
from trainguard.rules.balance_across_nodes import LoadBalancingAcrossNodes
from trainguard.rules.batch_size import BatchSize
from trainguard.rules.cpu_bottleneck import CPUBottleneck
from trainguard.rules.dataloader import Dataloader
from trainguard.rules.default_spec import spec_of_rule, spec_of_unknown
from trainguard.rules.extension import installed
from trainguard.rules.family_rules import bare, settings_spec, spec_of_other
from trainguard.rules.gpu_health import GPUHealth
from trainguard.rules.gpu_memory_increase import GPUMemoryIncrease
from trainguard.rules.hung_job import HungJob, HungJobOverNodes
from trainguard.rules.io_bottleneck import IOBottleneck
from trainguard.rules.load_balancing import LoadBalancing
from trainguard.rules.low_gpu_utilization import LowGPUUtilization
from trainguard.rules.max_initialization_time import MaxInitializationTime
from trainguard.rules.overall_framework_metrics import OverallFrameworkMetrics
from trainguard.rules.overall_system_usage import OverallSystemUsage
from trainguard.rules.parameter_help import SCAN_INTERVAL_HELP, UNSAID, ParameterHelp
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.profiler_report import SPEC as PROFILER_REPORT_SPEC
from trainguard.rules.protocol import AnyFrameworkRule, AnyJobRule, AnySystemRule
from trainguard.rules.spec import RuleSpec
from trainguard.rules.step_outlier import StepOutlier
from trainguard.rules.straggler import Straggler

TITLE = "Profiler rules"
"""The first family's name for people."""

_SYSTEM: tuple[AnySystemRule, ...] = (
    CPUBottleneck(),
    IOBottleneck(),
    LowGPUUtilization(),
    GPUMemoryIncrease(),
    GPUHealth(),
    BatchSize(),
    LoadBalancing(),
    HungJob(),
    OverallSystemUsage(),
)
_FRAMEWORK: tuple[AnyFrameworkRule, ...] = (OverallFrameworkMetrics(),)
_JOB: tuple[AnyJobRule, ...] = (
    StepOutlier(),
    MaxInitializationTime(),
    LoadBalancingAcrossNodes(),
    Dataloader(),
    HungJobOverNodes(),
    Straggler(),
)
OWN_NAMES: tuple[str, ...] = tuple(dict.fromkeys(rule.name for rule in (*_SYSTEM, *_FRAMEWORK, *_JOB)))
"""Names of TrainGuard's own rules."""

RESERVED_NAMES = (*OWN_NAMES, PROFILER_REPORT, "Configuration", *map(bare, family_rules.names()))
"""What no rule of a deployment may be called."""

EXTENSION = installed(RESERVED_NAMES)
"""The rules of the deployment's own package."""

SYSTEM_RULES: tuple[AnySystemRule, ...] = (*_SYSTEM, *EXTENSION.system)
FRAMEWORK_RULES: tuple[AnyFrameworkRule, ...] = (*_FRAMEWORK, *EXTENSION.framework)
JOB_RULES: tuple[AnyJobRule, ...] = (*_JOB, *EXTENSION.job)
ALL_RULES: tuple[AnySystemRule | AnyFrameworkRule | AnyJobRule, ...] = (
    *_SYSTEM,
    *_FRAMEWORK,
    *_JOB,
    *EXTENSION.system,
    *EXTENSION.framework,
    *EXTENSION.job,
)
RULE_NAMES: tuple[str, ...] = tuple(dict.fromkeys(rule.name for rule in ALL_RULES))

SPECS: MutableMapping[str, RuleSpec] = {
    **{rule.name: spec_of_rule(rule) for rule in ALL_RULES},
    PROFILER_REPORT: PROFILER_REPORT_SPEC,
}
"""What is said of each rule, by its name: in the order of the report, its own last."""


def spec_of(rule: str) -> RuleSpec:
    """Return what is said of a rule; of one that is not known, that it has a condition of its own."""
    return SPECS.get(rule) or spec_of_other(rule) or spec_of_unknown(rule)


def help_of(rule: str, parameter: str) -> ParameterHelp:
    """Return what a parameter of a rule, or of a group of settings, means; empty words where nobody says so."""
    if parameter == "scan_interval_us":
        return SCAN_INTERVAL_HELP
    return (settings_spec(rule) or spec_of(rule)).parameters.get(parameter, UNSAID)
