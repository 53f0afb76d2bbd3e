"""The parameters with which a rule runs on a job, and where each of them comes from."""

from collections.abc import Mapping

import msgspec

from trainguard.core.records import JobRecord
from trainguard.engine.jobs.replay_names import replayed_job
from trainguard.engine.settings.tag_names import NAMESPACE
from trainguard.rules.family_rules import bare
from trainguard.rules.parameters import parameters_type_of
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import help_of

Value = float | int | str | bool | None
DEFAULT = "default"
# Accepted by every rule and of little interest, so it stands last.
SCAN_INTERVAL_US = "scan_interval_us"


class EffectiveParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter's value; ``source`` is ``default``, the tag or setting that gave it, or what has replaced it."""

    name: str
    value: Value
    unit: str
    default: Value
    changed: bool
    source: str
    meaning: str


def effective_parameters(rule: str, values: Mapping[str, Value], record: JobRecord) -> list[EffectiveParameter]:
    """Return a rule's parameters on a job, changed ones first; its settings say who gave each."""
    defaults = _defaults(rule, values, record.rule_settings)
    replaced = {f"{span}_s" for span in defaults if values.get(span) is not None}
    found = [
        EffectiveParameter(
            name=name,
            value=values[name],
            unit=help_of(rule, name).unit,
            default=default,
            changed=values[name] != default and name not in replaced,
            source=_source(rule, name, values, record),
            meaning=help_of(rule, name).meaning,
        )
        for name, default in defaults.items()
        if name in values
    ]
    return sorted(found, key=lambda parameter: (not parameter.changed, parameter.name == SCAN_INTERVAL_US))


def _defaults(rule: str, values: Mapping[str, Value], settings: Mapping[str, str]) -> dict[str, Value]:
    kind = parameters_type_of(rule)
    if kind is not None:
        return kind.defaults()
    return {name: None if setting_of(rule, name, settings) else value for name, value in values.items()}


def setting_of(rule: str, parameter: str, settings: Mapping[str, str]) -> str | None:
    """Return the setting that gives a parameter, as it is written; None when none does."""
    wanted = {f"{rule}_{parameter}".lower(), f"{bare(rule)}_{parameter}".lower()}
    if rule == PROFILER_REPORT:
        wanted.add(parameter.lower())
    return next((setting for setting in sorted(settings) if setting.lower() in wanted), None)


def value_text(value: Value) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    return f"{value:,g}" if abs(value) < 1_000.0 else f"{value:,.0f}"


def _source(rule: str, name: str, values: Mapping[str, Value], record: JobRecord) -> str:
    settings = record.rule_settings
    for other in (f"{name}_s", name.removesuffix("_s")):
        if other != name and values.get(other) is not None and setting_of(rule, other, settings) is not None:
            return f"replaced by {other}"
    setting = setting_of(rule, name, settings)
    if setting is None:
        return DEFAULT
    if replayed_job(record.job) is not None:
        return f"setting {setting}"
    return record.setting_sources.get(setting, f"tag {NAMESPACE}{setting}")
