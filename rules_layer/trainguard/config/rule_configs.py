"""Settings of the rules, a class a rule and called as it is, and the actions of rules over tensors.

Settings are checked against the rule's parameters when they are given.

A setting that is not given has the documented default. Every parameter of the rule's page can be given, under its name.
The classes are made from the rules' specs: `dir` lists them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from trainguard.config.actions import SMS, ActionList, Email, StopTraining
from trainguard.config.tensor_rules import SDK_FUNCTIONS, TENSOR_CONFIGS, TensorRuleConfig, Value, written
from trainguard.core.errors import RuleConfigError
from trainguard.rules.parameters import PARAMETERS_TYPES, UNSHOWN, resolve_parameters
from trainguard.rules.profiler_report import PROFILER_REPORT, ReportParameters
from trainguard.rules.registry import OWN_NAMES, spec_of

_CANONICAL = {name.lower(): name for name in PARAMETERS_TYPES}
_UNPREFIXED = tuple(field.name for field in msgspec.structs.fields(ReportParameters))


class RuleConfig:
    """Settings of one rule.

    Parameters
    ----------
    **parameters
        By their names on the rule's page.

    Attributes
    ----------
    rule_name : str
    rule_parameters : dict
        The managed service's parameters of the rule, with the documented defaults, and ``rule_to_invoke``.
    settings : mapping of str to str
        What was given, as ``<Rule>_<parameter>``: what tags say.

    Raises
    ------
    RuleConfigError
        When the rule has no such parameter, or the value is not allowed.
    """

    def __init__(self, **parameters: Value) -> None:
        self.rule_name = type(self).__name__
        self.settings: Mapping[str, str] = {
            f"{self.rule_name}_{name}": written(self.rule_name, name, value) for name, value in parameters.items()
        }
        _refuse_faults(self.settings)
        kind = PARAMETERS_TYPES[self.rule_name]
        shown = {*spec_of(self.rule_name).managed_parameters, *UNSHOWN}
        # What lasts for some seconds by default has no points to ask for.
        in_seconds = {name.removesuffix("_s") for name in kind.__struct_fields__ if name.endswith("_s")}
        defaults: dict[str, Value] = {
            field.name: field.default
            for field in msgspec.structs.fields(kind)
            if field.name in shown and field.name not in in_seconds
        }
        self.rule_parameters: dict[str, Value] = defaults | parameters | {"rule_to_invoke": self.rule_name}


class ProfilerReport(RuleConfig):
    """All rules: their parameters as ``<Rule>_<parameter>``, ``opt_out_telemetry`` and ``rule_to_invoke``."""

    def __init__(self, **parameters: Value) -> None:
        shown: dict[str, Value] = {"opt_out_telemetry": False, "rule_to_invoke": PROFILER_REPORT}
        named: dict[str, str] = {}
        for name, value in parameters.items():
            text = written(PROFILER_REPORT, name, value)
            if named.setdefault(_setting(name), text) != text:
                raise RuleConfigError(PROFILER_REPORT, name, value, f"the same as before, {named[_setting(name)]}")
            shown[_setting(name)] = value
        _refuse_faults(named)
        self.rule_name = PROFILER_REPORT
        self.settings = named
        self.rule_parameters = shown


def _class_of(rule: str) -> type[RuleConfig]:
    spec = spec_of(rule)
    names = [f"``{name}``" for name in spec.managed_parameters if name not in spec.managed_aliases]
    text = f"{', '.join(names)}." if names else "It sums up, and has no parameters."
    return type(rule, (RuleConfig,), {"__doc__": text, "__module__": __name__})


# The classes by their rules' names.
CONFIGS: Mapping[str, type[RuleConfig]] = {
    **{rule: _class_of(rule) for rule in OWN_NAMES},
    PROFILER_REPORT: ProfilerReport,
}


__all__ = ["CONFIGS", "SMS", "ActionList", "Email", "ProfilerReport", "RuleConfig", "StopTraining", "TensorRuleConfig"]


def __getattr__(name: str) -> Any:
    for known in (CONFIGS, TENSOR_CONFIGS, SDK_FUNCTIONS):
        if name in known:
            return known[name]
    listed = ", ".join((*CONFIGS, *TENSOR_CONFIGS))
    raise AttributeError(f"there are no settings of a rule {name!r}, only of {listed}")


def __dir__() -> list[str]:
    return [*globals(), *CONFIGS, *TENSOR_CONFIGS, *SDK_FUNCTIONS]


def _setting(name: str) -> str:
    """Return ``<Rule>_<parameter>`` with the rule's name as it is written everywhere."""
    if name.lower() in _UNPREFIXED:
        return name.lower()
    rule, _, parameter = name.partition("_")
    return f"{_CANONICAL.get(rule.lower(), rule)}_{parameter.lower()}"


def _refuse_faults(settings: Mapping[str, str]) -> None:
    _, faults = resolve_parameters(settings)
    for fault in faults.values():
        raise fault
