"""Which rules there are, as stateless instances in the order of the report; a deployment's own come last."""

from collections.abc import MutableMapping

from trainguard.rules import family_rules
from trainguard.rules.batch_size.rule import BatchSize
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneck, IOBottleneck
from trainguard.rules.dataloader.rule import Dataloader
from trainguard.rules.extension import installed
from trainguard.rules.family_rules import bare, family_of
from trainguard.rules.gpu_health.rule import GPUHealth
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncrease
from trainguard.rules.hung_job.rule import HungJob, HungJobOverNodes
from trainguard.rules.load_balancing.rule import LoadBalancing, LoadBalancingAcrossNodes
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.rules.max_initialization_time.rule import MaxInitializationTime
from trainguard.rules.overall_framework_metrics.rule import OverallFrameworkMetrics
from trainguard.rules.overall_system_usage.rule import OverallSystemUsage
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.profiler_report import SPEC as PROFILER_REPORT_SPEC
from trainguard.rules.protocol import AnyFrameworkRule, AnyJobRule, AnySystemRule, spec_of_rule, spec_of_unknown
from trainguard.rules.spec import SCAN_INTERVAL_HELP, UNSAID, ParameterHelp, RuleSpec
from trainguard.rules.step_outlier.rule import StepOutlier
from trainguard.rules.straggler.rule import Straggler

TITLE = "Profiler rules"

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
RESERVED_NAMES = (*OWN_NAMES, PROFILER_REPORT, "Configuration", *map(bare, family_rules.names()))
EXTENSION = installed(RESERVED_NAMES)
SYSTEM_RULES: tuple[AnySystemRule, ...] = (*_SYSTEM, *EXTENSION.system)
FRAMEWORK_RULES: tuple[AnyFrameworkRule, ...] = (*_FRAMEWORK, *EXTENSION.framework)
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


def spec_of(rule: str) -> RuleSpec:
    """Return the spec of a rule, or of a group of settings; of one that is unknown, that its own condition holds."""
    if rule in SPECS:
        return SPECS[rule]
    family = family_of(rule)
    return spec_of_unknown(rule) if family is None else family.specs()[rule]


def help_of(rule: str, parameter: str) -> ParameterHelp:
    """Return what a parameter of a rule, or of a group of settings, means; empty words where nobody says so."""
    if parameter == "scan_interval_us":
        return SCAN_INTERVAL_HELP
    return spec_of(rule).parameters.get(parameter, UNSAID)
