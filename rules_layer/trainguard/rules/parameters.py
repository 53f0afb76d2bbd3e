"""Parameters as users give them, ``<Rule>_<parameter>``, to the rules' own parameter classes.

The rule's name is read in any case and the parameter in lower case, as in the managed service's rule configuration.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from trainguard.errors import RuleConfigError
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.registry import ALL_RULES, RULE_NAMES

NONE_WORDS = frozenset({"none", "null", ""})


def resolve_parameters(
    settings: Mapping[str, str],
) -> tuple[dict[str, RuleParameters], dict[str, RuleConfigError]]:
    """Parameters of every rule, defaults where nothing is set, and the first fault of each rule that has one.

    A rule with a fault is in the second mapping and not in the first; the others stay usable. A setting of a rule that
    does not exist is a fault under the rule's name as written.
    """
    given: dict[str, dict[str, tuple[str, str]]] = {rule.name: {} for rule in ALL_RULES}
    faults: dict[str, RuleConfigError] = {}
    canonical = {name.lower(): name for name in RULE_NAMES}
    for setting in sorted(settings):
        value = settings[setting]
        written, _, parameter = setting.partition("_")
        rule = canonical.get(written.lower())
        if rule is None:
            expected = f"<Rule>_<parameter> with a rule of {', '.join(RULE_NAMES)}"
            faults.setdefault(written, RuleConfigError(written, setting, value, expected))
            continue
        earlier = given[rule].setdefault(parameter.lower(), (setting, value))
        if earlier[1] != value:
            faults.setdefault(rule, RuleConfigError(rule, setting, value, f"the same as {earlier[0]}, {earlier[1]!r}"))
    parameters: dict[str, RuleParameters] = {}
    for item in ALL_RULES:
        if item.name in faults:
            continue
        try:
            parameters[item.name] = _build(item.name, item.parameters_type, given[item.name])
        except RuleConfigError as fault:
            faults[item.name] = fault
    return parameters, faults


def _build(rule: str, parameters_type: type[RuleParameters], given: Mapping[str, tuple[str, str]]) -> RuleParameters:
    fields = {field.name: field.type for field in msgspec.structs.fields(parameters_type)}
    values = {}
    for parameter, (setting, value) in given.items():
        if parameter not in fields:
            raise RuleConfigError(rule, setting, value, f"one of the parameters {', '.join(sorted(fields))}")
        if f"{parameter}_s" in given:
            raise RuleConfigError(rule, setting, value, f"either {parameter} or {parameter}_s, not both")
        values[parameter] = _convert(rule, setting, value, fields[parameter])
    return parameters_type(**values)


def _convert(rule: str, setting: str, value: str, kind: Any) -> Any:
    """Convert ``value`` to the parameter's type, with its constraints; RuleConfigError where it cannot be."""
    described = msgspec.inspect.type_info(kind)
    types = described.types if isinstance(described, msgspec.inspect.UnionType) else (described,)
    word = value.strip()
    optional = any(isinstance(item, msgspec.inspect.NoneType) for item in types)
    if optional and word.lower() in NONE_WORDS:
        return None
    expected = " or ".join(_describe(item) for item in types)
    try:
        converted = msgspec.convert(word, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RuleConfigError(rule, setting, value, expected) from error
    if isinstance(converted, float) and not math.isfinite(converted):
        raise RuleConfigError(rule, setting, value, expected)
    return converted


def _describe(kind: msgspec.inspect.Type) -> str:
    """Say in words what a type accepts, for example ``a number from 0 to 100``."""
    if isinstance(kind, msgspec.inspect.NoneType):
        return "None"
    if not isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        return "a text"
    words = ["a whole number" if isinstance(kind, msgspec.inspect.IntType) else "a number"]
    limits = (("above", kind.gt), ("from", kind.ge), ("below", kind.lt), ("to", kind.le))
    words += [f"{word} {limit:g}" for word, limit in limits if limit is not None]
    return " ".join(words)
