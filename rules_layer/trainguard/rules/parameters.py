"""Parameters as users give them, ``<Rule>_<parameter>`` in any case, to the rules' own parameter classes."""

import math
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Literal

import msgspec

from trainguard.core.errors import ParameterFileError, RuleConfigError
from trainguard.core.units import similar
from trainguard.rules.family_rules import OTHER_FAMILIES, bare, family_of
from trainguard.rules.family_rules import names as other_families_rules
from trainguard.rules.profiler_report import PROFILER_REPORT, ReportParameters
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.registry import ALL_RULES, EXTENSION, RULE_NAMES, spec_of

Defaults = Literal["documented", "shipped"]


def own_defaults(rule: str, defaults: Defaults) -> Mapping[str, float | int]:
    """Return the values of a rule that differ from its parameter class's own, patience and window in seconds."""
    return spec_of(rule).shipped_defaults if defaults == "shipped" else {}


NONE_WORDS = frozenset({"none", "null", ""})
MINUTE_US = 60_000_000
UNSHOWN = frozenset({"scan_interval_us"})

PARAMETERS_TYPES: Mapping[str, type[RuleParameters]] = {
    **{rule.name: rule.parameters_type for rule in ALL_RULES},
    PROFILER_REPORT: ReportParameters,
}

_OTHERS = tuple(other_families_rules())
_GROUPS = tuple(name for family in OTHER_FAMILIES for name in family.settings)

_CANONICAL = {
    **{spelled.lower(): name for name in _OTHERS for spelled in (name, bare(name))},
    **{name.lower(): name for name in PARAMETERS_TYPES},
}

_GIVEN_FOR = {**{spelled.lower(): name for name in _GROUPS for spelled in (name, bare(name))}, **_CANONICAL}
_INVOKED = {name.lower(): name for name in PARAMETERS_TYPES}
_UNPREFIXED = frozenset(field.name for field in msgspec.structs.fields(ReportParameters))
_NAMES = ", ".join((*PARAMETERS_TYPES, *map(bare, _OTHERS)))
Given = dict[str, tuple[str, str]]


def resolve_parameters(
    settings: Mapping[str, str], defaults: Defaults = "documented"
) -> tuple[dict[str, RuleParameters], dict[str, RuleConfigError]]:
    """Return every profiler rule's parameters, and in their place the first fault of each rule that has one.

    A setting of an unknown rule is a fault under the rule's name as written. Rules of other families are left to
    `parameters_of`, but for a parameter that has two values.
    """
    parameters, found = _resolve(settings, defaults, PARAMETERS_TYPES)
    return parameters, {rule: faults[0] for rule, faults in found.items()}


def parameter_faults(settings: Mapping[str, str]) -> list[RuleConfigError]:
    """Return every fault of the settings, rule by rule; imports the rules of every family that settings name."""
    named = {rule for _, rule, _ in map(_rule_of, settings)}
    types = dict(PARAMETERS_TYPES)
    for family in OTHER_FAMILIES:
        if named.intersection({*family.names, *family.settings}):
            types |= {rule: kind for rule, kind in family.parameters_types().items() if rule in named}
    _, found = _resolve(settings, "documented", types)
    return [fault for faults in found.values() for fault in faults]


def parameters_of(rule: str, parameters_type: type[RuleParameters], settings: Mapping[str, str]) -> RuleParameters:
    """Return the parameters of one rule, which need be none of the registry; raises RuleConfigError."""
    given: Given = {}
    for setting in sorted(settings):
        written, _, parameter = setting.partition("_")
        if written.lower() in (rule.lower(), bare(rule).lower()):
            given[parameter.lower()] = setting, settings[setting]
    values, faults = _values(rule, parameters_type, given, {})
    if faults:
        raise faults[0]
    return parameters_type(**values)


def parameters_type_of(name: str) -> type[RuleParameters] | None:
    """Return the parameter class of a rule of any family, or of a group of settings; None where it is unknown."""
    if name in PARAMETERS_TYPES:
        return PARAMETERS_TYPES[name]
    family = family_of(name)
    return None if family is None else family.parameters_types()[name]


def takes_settings(written: str) -> bool:
    return written.lower() in _GIVEN_FOR


def canonical_rule(written: str) -> str | None:
    """Return a rule's name as it is spelled, be it written in any case; None when there is no such rule."""
    return _CANONICAL.get(written.lower())


def _a_rule(written: str) -> str:
    """Say what a rule's name should be: one of the nearest, or of all where none is near."""
    near = similar(written, map(bare, _CANONICAL.values()))
    return f"a rule such as {' or '.join(near)}" if near else f"a rule of {_NAMES}"


def read_parameter_file(name: str, body: bytes, *, others: Collection[str] = ()) -> dict[str, str]:
    """Read settings from JSON: ``{"Rule": {"p": v}}``, ``{"Rule_p": v}``, or both mixed; ``others`` are further rules.

    Raises ParameterFileError when the file is no JSON object, and RuleConfigError when a value is neither a number, a
    text, true, false nor null, or a parameter has two values.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise ParameterFileError(name, f"it is no JSON ({fault})") from fault
    if not isinstance(document, dict):
        expected = '{"Rule": {"parameter": value}} or {"Rule_parameter": value}'
        raise ParameterFileError(name, f"it holds {type(document).__name__}, expected an object such as {expected}")
    settings: dict[str, str] = {}
    known = {*_GIVEN_FOR, *(other.lower() for other in others)}
    for key, value in document.items():
        if isinstance(value, dict):
            if key.lower() not in known:
                raise RuleConfigError(key, key, value, _a_rule(key))
            pairs = {f"{key}_{parameter}": each for parameter, each in value.items()}
        else:
            pairs = {key: value}
        for setting, each in pairs.items():
            text = _as_text(setting, each)
            if settings.setdefault(setting, text) != text:
                raise RuleConfigError(_rule_of(setting)[0], setting, text, f"the same as before, {settings[setting]!r}")
    return settings


def overridden(settings: Mapping[str, str], by: Mapping[str, str]) -> dict[str, str]:
    """Return ``settings`` with those of ``by`` in their place, in whatever spelling, in points or in seconds."""
    replaced = {_place_of(setting) for setting in by}
    return {**{each: value for each, value in settings.items() if _place_of(each) not in replaced}, **by}


def _place_of(setting: str) -> tuple[str, str]:
    written, rule, parameter = _rule_of(setting)
    return rule or written, parameter.removesuffix("_s")


def _as_text(setting: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    raise RuleConfigError(_rule_of(setting)[0], setting, value, "a number, a text, true, false or null")


def _rule_of(setting: str) -> tuple[str, str | None, str]:
    if setting.lower() in _UNPREFIXED:
        return PROFILER_REPORT, PROFILER_REPORT, setting.lower()
    written, _, parameter = setting.partition("_")
    return written, _GIVEN_FOR.get(written.lower()), parameter.lower()


def _resolve(
    settings: Mapping[str, str], defaults: Defaults, types: Mapping[str, type[RuleParameters]]
) -> tuple[dict[str, RuleParameters], dict[str, list[RuleConfigError]]]:
    given, faults = _by_rule(settings)
    parameters: dict[str, RuleParameters] = {}
    for rule, parameters_type in types.items():
        values, wrong = _values(rule, parameters_type, given[rule], own_defaults(rule, defaults))
        wrong = faults.get(rule, []) + wrong
        if not wrong:
            try:
                parameters[rule] = parameters_type(**values)
            except RuleConfigError as fault:
                wrong = [fault]
            except Exception as fault:
                # A rule of somebody else's may refuse its values in any way: that is a fault of this rule alone.
                told = f"what the rule accepts ({type(fault).__name__}: {fault})"
                wrong = [RuleConfigError(rule, "parameters", dict(values), told)]
        if wrong:
            faults[rule] = wrong
    return parameters, faults


def _by_rule(settings: Mapping[str, str]) -> tuple[dict[str, Given], dict[str, list[RuleConfigError]]]:
    given: dict[str, Given] = {rule: {} for rule in (*PARAMETERS_TYPES, *_OTHERS, *_GROUPS)}
    faults: dict[str, list[RuleConfigError]] = {name: [fault] for name, fault in EXTENSION.faults.items()}
    unloaded = {name.lower() for name in faults}
    for setting in sorted(settings):
        value = settings[setting]
        written, rule, parameter = _rule_of(setting)
        if rule is None and written.lower() in unloaded:
            continue
        if rule is None:
            faults.setdefault(written, []).append(
                RuleConfigError(written, setting, value, f"<Rule>_<parameter> with {_a_rule(written)}")
            )
            continue
        earlier = given[rule].setdefault(parameter, (setting, value))
        if earlier[1] != value:
            expected = f"the same as {earlier[0]}, {earlier[1]!r}"
            faults.setdefault(rule, []).append(RuleConfigError(rule, setting, value, expected))
    return given, faults


def _values(
    rule: str, parameters_type: type[RuleParameters], given: Given, defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], list[RuleConfigError]]:
    values, faults = dict(defaults), []
    known, ignored = parameters_type.settable(), []
    for parameter, (setting, _) in given.items():
        if parameter not in known and parameters_type.ignores_unknown:
            if not parameters_type.accepted.fullmatch(parameter):
                ignored.append(setting)
            continue
        try:
            values[parameter] = _value(rule, parameters_type, given, parameter)
            if values[parameter] is not None:
                values.pop(f"{parameter}_s", None)  # points that are given replace default seconds
        except RuleConfigError as fault:
            faults.append(fault)
    if ignored:
        values["ignored"] = tuple(ignored)
    return values, faults


def _value(rule: str, parameters_type: type[RuleParameters], given: Given, parameter: str) -> Any:
    fields = _fields(parameters_type)
    setting, value = given[parameter]
    if parameter not in fields:
        raise RuleConfigError(rule, setting, value, f"one of the parameters {', '.join(sorted(fields))}")
    if f"{parameter}_s" in given:
        raise RuleConfigError(rule, setting, value, f"either {parameter} or {parameter}_s, not both")
    converted = _convert(rule, setting, value, fields[parameter])
    if parameter == "scan_interval_us":
        return -(-converted // MINUTE_US) * MINUTE_US
    if parameter != "rule_to_invoke":
        return converted
    if (name := _INVOKED.get(converted.strip().lower())) is None:
        raise RuleConfigError(rule, setting, converted, f"{PROFILER_REPORT}, or one of {', '.join(RULE_NAMES)}")
    return name


def _convert(rule: str, setting: str, value: str, kind: Any) -> Any:
    word = value.strip()
    optional = any(isinstance(item, msgspec.inspect.NoneType) for item in _types(kind))
    if optional and word.lower() in NONE_WORDS:
        return None
    expected = accepted(kind)
    given: Any = _spelled(word, kind)
    if any(isinstance(item, msgspec.inspect.VarTupleType) for item in _types(kind)):
        given = [each.strip() for each in word.split(",") if each.strip()]
    try:
        converted = msgspec.convert(given, kind, strict=False)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise RuleConfigError(rule, setting, value, expected) from error
    numbers = converted if isinstance(converted, tuple) else (converted,)
    if any(isinstance(each, float) and not math.isfinite(each) for each in numbers):
        raise RuleConfigError(rule, setting, value, expected)
    return converted


def _spelled(word: str, kind: Any) -> str:
    literals = [item.values for item in _types(kind) if isinstance(item, msgspec.inspect.LiteralType)]
    spellings = {str(value).lower(): str(value) for values in literals for value in values}
    return spellings.get(word.lower(), word)


def accepted(kind: Any) -> str:
    """Say in words what a parameter of the type may be, for example ``a number above 0 or None``."""
    return " or ".join(_describe(item) for item in _types(kind))


@cache
def _fields(parameters_type: type[RuleParameters]) -> Mapping[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(parameters_type)}


@cache
def _types(kind: Any) -> tuple[msgspec.inspect.Type, ...]:
    described = msgspec.inspect.type_info(kind)
    return described.types if isinstance(described, msgspec.inspect.UnionType) else (described,)


def _describe(kind: msgspec.inspect.Type) -> str:
    if isinstance(kind, msgspec.inspect.NoneType):
        return "None"
    if isinstance(kind, msgspec.inspect.BoolType):
        return "true or false"
    if isinstance(kind, msgspec.inspect.VarTupleType):
        return f"{_describe(kind.item_type)}, or several separated by commas"
    if isinstance(kind, msgspec.inspect.LiteralType):
        return " or ".join(str(value) for value in kind.values)
    if not isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        return "a text"
    words = ["a whole number" if isinstance(kind, msgspec.inspect.IntType) else "a number"]
    limits = (("above", kind.gt), ("from", kind.ge), ("below", kind.lt), ("to", kind.le))
    words += [f"{word} {limit:g}" for word, limit in limits if limit is not None]
    return " ".join(words)
