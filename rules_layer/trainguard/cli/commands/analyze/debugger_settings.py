"""The file of parameters as the ``compatible`` reading takes it: by rule, values with the types that were written."""

from typing import Any

import msgspec

from trainguard.debugger_replay.rules import RULES
from trainguard.errors import RuleConfigError
from trainguard.rules.parameters import read_parameter_file
from trainguard.rules.profiler_report import PROFILER_REPORT, ReportParameters

_CANONICAL = {name.lower(): name for name in (*(rule.name for rule in RULES), PROFILER_REPORT)}
_UNPREFIXED = frozenset(field.name for field in msgspec.structs.fields(ReportParameters))
_WITHOUT_EFFECT = frozenset({"opt_out_telemetry", "rule_to_invoke"})


def settings_by_rule(name: str, body: bytes) -> dict[str, dict[str, Any]]:
    """Return the settings of a file by rule and parameter, values as written.

    Raises
    ------
    ParameterFileError
        When the file is no JSON object.
    RuleConfigError
        When a value is neither a number, a text, true, false nor null, or a parameter has two values.
    """
    read_parameter_file(name, body)
    written: dict[str, Any] = msgspec.json.decode(body)
    settings: dict[str, dict[str, Any]] = {}
    for key, value in written.items():
        pairs = {f"{key}_{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
        for setting, each in pairs.items():
            rule, parameter = _split(setting)
            earlier = settings.setdefault(rule, {}).setdefault(parameter, each)
            if earlier != each:
                raise RuleConfigError(rule, setting, each, f"the same as before, {earlier!r}")
    for parameter in _WITHOUT_EFFECT:
        settings.get(PROFILER_REPORT, {}).pop(parameter, None)
    return settings


def _split(setting: str) -> tuple[str, str]:
    if setting.lower() in _UNPREFIXED:
        return PROFILER_REPORT, setting.lower()
    rule, _, parameter = setting.partition("_")
    return _CANONICAL.get(rule.lower(), rule), parameter.lower()
