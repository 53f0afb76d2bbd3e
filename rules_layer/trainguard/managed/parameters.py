"""Parameters as people give them to the rules' own parameter classes: any finite number, also as text."""

import sys
from collections.abc import Mapping
from typing import Any

from trainguard.core.errors import RuleConfigError
from trainguard.managed.bottleneck import ManagedCPUBottleneck, ManagedIOBottleneck
from trainguard.managed.framework_rules import (
    ManagedDataloader,
    ManagedMaxInitializationTime,
    ManagedOverallFrameworkMetrics,
    ManagedStepOutlier,
)
from trainguard.managed.rule import AnyCompatibleRule, ManagedRuleParameters
from trainguard.managed.system_rules import (
    ManagedBatchSize,
    ManagedGPUMemoryIncrease,
    ManagedLoadBalancing,
    ManagedLowGPUUtilization,
    ManagedOverallSystemUsage,
)
from trainguard.rules.profiler_report import PROFILER_REPORT

RULES: tuple[type[AnyCompatibleRule], ...] = (
    ManagedCPUBottleneck,
    ManagedIOBottleneck,
    ManagedLowGPUUtilization,
    ManagedStepOutlier,
    ManagedGPUMemoryIncrease,
    ManagedBatchSize,
    ManagedMaxInitializationTime,
    ManagedLoadBalancing,
    ManagedOverallSystemUsage,
    ManagedDataloader,
    ManagedOverallFrameworkMetrics,
)


SCAN_INTERVAL = "scan_interval_us"
DEFAULT_SCAN_INTERVAL_US = 60_000_000

Settings = Mapping[str, Mapping[str, Any]]


def resolve_compatible_parameters(settings: Settings, *, documented: bool = False) -> dict[str, ManagedRuleParameters]:
    """Resolve ``{"Rule": {"parameter": value}}`` to the parameters of all eleven sub-rules.

    A number keeps its type: 50 is shown as 50, 50.0 as 50.0. Sub-rules ignore ``scan_interval_us``. ``documented``
    starts from the documentation's defaults. Raises RuleConfigError for an unknown rule or parameter, or no finite
    number.
    """
    known = {rule.name: rule.parameters_type for rule in RULES}
    for rule in settings:
        if rule not in known and rule != PROFILER_REPORT:
            expected = f"a rule of {', '.join([*known, PROFILER_REPORT])}"
            raise RuleConfigError(rule, "*", dict(settings[rule]), expected)
    resolve_scan_interval_us(settings)
    return {
        rule: _resolve(rule, parameters_type, settings.get(rule, {}), documented)
        for rule, parameters_type in known.items()
    }


def resolve_scan_interval_us(settings: Settings) -> int:
    """Return the report's ``scan_interval_us``, 60 s unless given; raises RuleConfigError for what cannot be used."""
    given = settings.get(PROFILER_REPORT, {})
    for parameter, value in given.items():
        if parameter != SCAN_INTERVAL:
            raise RuleConfigError(PROFILER_REPORT, parameter, value, f"the parameter {SCAN_INTERVAL}")
    interval = _number(PROFILER_REPORT, SCAN_INTERVAL, given.get(SCAN_INTERVAL, DEFAULT_SCAN_INTERVAL_US))
    if interval < 1:
        raise RuleConfigError(PROFILER_REPORT, SCAN_INTERVAL, given[SCAN_INTERVAL], "at least 1 microsecond")
    return int(interval)


def _resolve(
    rule: str, parameters_type: type[ManagedRuleParameters], given: Mapping[str, Any], documented: bool
) -> ManagedRuleParameters:
    names = parameters_type.__struct_fields__
    values: dict[str, Any] = dict(parameters_type.documented) if documented else {}
    for parameter, value in given.items():
        if parameter == SCAN_INTERVAL:
            _number(rule, parameter, value)
        elif parameter not in names:
            raise RuleConfigError(rule, parameter, value, f"one of the parameters {', '.join(names) or 'of no name'}")
        elif parameter in parameters_type.texts:
            values[parameter] = _text(rule, parameter, value)
        else:
            values[parameter] = _number(rule, parameter, value)
    return parameters_type(**values)


def _text(rule: str, parameter: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise RuleConfigError(rule, parameter, value, "a text or None")


def _number(rule: str, parameter: str, value: Any) -> int | float:
    """Return a finite number; of a text the int that it shows, or else the float."""
    number = value
    if isinstance(value, str):
        for convert in (int, float):
            try:
                number = convert(value)
                break
            except ValueError:
                continue
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= sys.float_info.max:
        raise RuleConfigError(rule, parameter, value, "a finite number")
    return number
