"""Rules of a deployment's own package: how they are found and checked.

The module MARKER names package and rules: those that cannot be imported are still known by name.
"""

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import msgspec

from trainguard.core.errors import RuleLoadError, error_text
from trainguard.rules.protocol import (
    AnyFrameworkRule,
    AnyJobRule,
    AnySystemRule,
    FrameworkRule,
    JobRule,
    RuleParameters,
    SystemRule,
    check_clear_after,
    check_window,
    is_custom,
    packed_state,
)
from trainguard.rules.spec import RuleSpec

MARKER = "trainguard_rules"
RULES = "RULES"
MAX_RULES = 8
AnyRule = AnySystemRule | AnyFrameworkRule | AnyJobRule
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,39}")
_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PLAIN = (
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.BoolType,
    msgspec.inspect.StrType,
    msgspec.inspect.NoneType,
    msgspec.inspect.LiteralType,
)
_INTERVAL_S = 0.5
_IMPORTABLE = "a class that can be imported from the working folder or Python's path, and made without arguments"


@dataclass(frozen=True, slots=True)
class Extension:
    """The rules of a deployment's package by their kind, and why those that cannot be used cannot, by name."""

    system: tuple[AnySystemRule, ...] = ()
    framework: tuple[AnyFrameworkRule, ...] = ()
    job: tuple[AnyJobRule, ...] = ()
    faults: Mapping[str, RuleLoadError] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: Sequence[AnyRule]) -> "Extension":
        return cls(
            system=tuple(rule for rule in rules if isinstance(rule, SystemRule)),
            framework=tuple(rule for rule in rules if isinstance(rule, FrameworkRule)),
            job=tuple(rule for rule in rules if isinstance(rule, JobRule)),
        )


def installed(reserved: Sequence[str]) -> Extension:
    """Return the rules of the package that the layer holds; none where it holds no such package."""
    try:
        marker = importlib.import_module(MARKER)
    except ModuleNotFoundError:
        return Extension()
    try:
        return Extension.of(rules_of(importlib.import_module(marker.PACKAGE), reserved))
    except (Exception, SystemExit) as fault:
        told = error_text(fault)
        return Extension(
            faults={
                name: RuleLoadError(name, f"package {marker.PACKAGE}", told, "one that can be imported")
                for name in marker.RULES
            }
        )


def rules_of(package: ModuleType, reserved: Sequence[str]) -> tuple[AnyRule, ...]:
    """Return the rules of a package, checked; ``reserved`` are names that they may not have. Raises RuleLoadError."""
    rules = getattr(package, RULES, None)
    name = package.__name__
    if not isinstance(rules, tuple) or not 1 <= len(rules) <= MAX_RULES:
        raise RuleLoadError(name, RULES, rules, f"a tuple of 1 to {MAX_RULES} rules")
    taken = {each.lower(): each for each in reserved}
    known: dict[str, AnyRule] = {}
    for rule in rules:
        check_rule(rule)
        if rule.name.lower() in taken:
            raise RuleLoadError(
                rule.name, "name", rule.name, f"another than TrainGuard's own {taken[rule.name.lower()]}"
            )
        other = known.setdefault(rule.name.lower(), rule)
        if other is not rule:
            raise RuleLoadError(rule.name, "name", rule.name, "a name that no other rule of the package has")
    return rules


def rule_named(place: str) -> AnyRule:
    """Return the rule that ``module:Class`` or ``module:instance`` names, checked; raises RuleLoadError."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise RuleLoadError(place, "rule", place, "module:Class, for example my_rules.thermal:ThermalThrottling")
    try:
        found = getattr(importlib.import_module(module), name)
        rule = found() if isinstance(found, type) else found
    except (Exception, SystemExit) as fault:
        told = error_text(fault)
        raise RuleLoadError(place, "rule", told, _IMPORTABLE) from fault
    check_rule(rule)
    return rule  # type: ignore[no-any-return]  # what a person names can be anything; it was checked


def check_rule(rule: Any) -> None:
    """Refuse what breaks the protocol of rules; raises RuleLoadError."""
    if not isinstance(rule, SystemRule | FrameworkRule | JobRule):
        raise RuleLoadError(
            _called(rule), "type", type(rule).__name__, "an instance of SystemRule, FrameworkRule or JobRule"
        )
    name = getattr(rule, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RuleLoadError(_called(rule), "name", name, "letters and digits, a letter first, at most 40 of them")
    parameters = _check_parameters(rule)
    _check_state(rule)
    if is_custom(rule):
        _check_spec(rule, parameters)
    try:
        clear_after_s = rule.clear_after_s(parameters, _INTERVAL_S)
        window = rule.window_points(parameters, _INTERVAL_S) if isinstance(rule, SystemRule) else 0
    except Exception as fault:
        told = error_text(fault)
        raise RuleLoadError(name, "clear_after_s or window_points", told, "an answer to the defaults") from fault
    check_clear_after(name, clear_after_s)
    check_window(name, window)


def _called(rule: Any) -> str:
    return getattr(rule, "__name__", type(rule).__name__)


def _check_parameters(rule: Any) -> RuleParameters:
    kind = getattr(rule, "parameters_type", None)
    if not isinstance(kind, type) or not issubclass(kind, RuleParameters):
        raise RuleLoadError(rule.name, "parameters_type", kind, "a subclass of RuleParameters")
    for each in msgspec.structs.fields(kind):
        described = msgspec.inspect.type_info(each.type)
        kinds = described.types if isinstance(described, msgspec.inspect.UnionType) else (described,)
        if not _PARAMETER.fullmatch(each.name) or not all(isinstance(one, _PLAIN) for one in kinds):
            expected = "a name in lower case, and a number, a text, true or false"
            raise RuleLoadError(rule.name, f"parameter {each.name}", each.type, expected)
    try:
        return kind()
    except TypeError as fault:
        raise RuleLoadError(rule.name, "parameters_type", str(fault), "a default for each parameter") from fault


def _check_spec(rule: Any, parameters: RuleParameters) -> None:
    """Refuse a spec that holds more than texts and names: what it says is used while others' reports are made."""
    spec = next((vars(kind)["spec"] for kind in type(rule).__mro__ if "spec" in vars(kind)), None)
    if spec is None or ("spec" not in vars(type(rule)) and spec.name != rule.name):
        return
    if not isinstance(spec, RuleSpec) or spec.name != rule.name:
        raise RuleLoadError(rule.name, "spec", spec, f"a RuleSpec of the name {rule.name!r}")
    if spec.section is not None:
        raise RuleLoadError(rule.name, "spec.section", spec.section, "None")
    unknown = sorted(set(spec.parameters) - set(parameters.__struct_fields__))
    if unknown:
        raise RuleLoadError(rule.name, "spec.parameters", unknown, "parameters of the rule")
    try:
        spec.condition.format_map(msgspec.structs.asdict(parameters))
    except (AttributeError, KeyError, ValueError, IndexError) as fault:
        told = error_text(fault)
        raise RuleLoadError(rule.name, "spec.condition", told, "a text with {parameter} for its values") from fault


def _check_state(rule: Any) -> None:
    if isinstance(rule, JobRule) and not hasattr(rule, "state_type"):
        return
    kind = getattr(rule, "state_type", None)
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        raise RuleLoadError(rule.name, "state_type", kind, "a subclass of msgspec.Struct")
    try:
        data = packed_state(rule.name, kind())
        msgspec.msgpack.decode(data, type=kind)
    except (TypeError, msgspec.DecodeError) as fault:
        raise RuleLoadError(rule.name, "state_type", str(fault), "a default for each field, which decodes") from fault
