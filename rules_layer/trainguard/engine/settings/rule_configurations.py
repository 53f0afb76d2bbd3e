"""Rule configurations of a job as settings; profiler rules always run, those of training health if configured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainguard.core.ports import RuleConfiguration
from trainguard.engine.settings.job_settings import TRAINING_RULES, SettingFault
from trainguard.engine.settings.resolve import Source
from trainguard.rules.family_rules import TRAINING, TRAINING_NAMES, bare
from trainguard.rules.parameters import PARAMETERS_TYPES, canonical_rule
from trainguard.rules.profiler_report import PROFILER_REPORT

_RULE, _SOURCE = "rule_to_invoke", "source_s3_uri"
_NAME = "rule configurations"
_ACTIONS = "action_json"
"""Holds the actions of the managed service, which its SDK puts among the parameters of a rule over tensors."""

_NO_ACTIONS = "actions of the managed service: TrainGuard alerts by itself, and stops a job by its own tags alone"


@dataclass(frozen=True, slots=True)
class Configured:
    """The configured settings; ``elsewhere`` maps rules that are not evaluated here to the reason."""

    source: Source
    elsewhere: Mapping[str, str]
    places: Mapping[str, str]


@dataclass(slots=True)
class _Reading:
    parameters: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    faults: list[SettingFault] = field(default_factory=list)


def configured(profiler: Sequence[RuleConfiguration], debugger: Sequence[RuleConfiguration] = ()) -> Configured:
    """Return the settings of a job's rule configurations."""
    reading = _Reading()
    elsewhere: dict[str, str] = {}
    chosen: dict[str, tuple[str, Mapping[str, str]]] = {}
    for configuration in (*profiler, *debugger):
        reason = _reason_against(configuration)
        if reason is not None:
            elsewhere[configuration.name] = reason
            continue
        rule, settings = canonical_rule(configuration.parameters[_RULE]), _settings(configuration)
        if _ACTIONS in configuration.parameters:
            elsewhere[f"{configuration.name}/{_ACTIONS}"] = _NO_ACTIONS
        if rule in TRAINING_NAMES:
            first = chosen.setdefault(bare(rule), (configuration.name, settings))
            if first[1] != settings:
                _refuse_second(reading, first, (configuration.name, settings))
                continue
        for setting, value in settings.items():
            _add(reading, configuration.name, setting, value)
    choices = {TRAINING_RULES: " ".join(chosen)} if chosen else {}
    return Configured(
        source=Source(_NAME, reading.parameters, choices, reading.origins, tuple(reading.faults)),
        elsewhere=elsewhere,
        places={each.name: each.place for each in (*profiler, *debugger) if each.place},
    )


def _reason_against(configuration: RuleConfiguration) -> str | None:
    rule = configuration.parameters.get(_RULE)
    if configuration.parameters.get(_SOURCE):
        return f"a custom rule with its own container ({_RULE} {rule!r}): deploy it as a custom rule of the stack"
    if rule is None:
        return f"it names no {_RULE}: image {configuration.image!r} is SageMaker's to run"
    if canonical_rule(rule) is None:
        return f"{_RULE} is {rule!r}, none of {', '.join((*PARAMETERS_TYPES, *map(bare, TRAINING_NAMES)))}"
    return None


def _settings(configuration: RuleConfiguration) -> dict[str, str]:
    rule = bare(canonical_rule(configuration.parameters[_RULE]) or "")
    settings = {}
    for parameter, value in configuration.parameters.items():
        unnamed = canonical_rule(parameter.partition("_")[0]) is None
        if parameter not in {_RULE, _ACTIONS}:
            settings[f"{rule}_{parameter}" if unnamed and rule != PROFILER_REPORT else parameter] = value
    return settings


def _refuse_second(
    reading: _Reading, first: tuple[str, Mapping[str, str]], second: tuple[str, Mapping[str, str]]
) -> None:
    """Leave a rule without usable settings where two configurations disagree: it refuses a setting with two values."""
    origin = f"rule configuration {second[0]}"
    for setting in sorted(first[1].keys() | second[1].keys()):
        one, other = (each[1].get(setting, f"the default in {each[0]}") for each in (first, second))
        if one == other:
            continue
        expected = f"as in rule configuration {first[0]}, {one!r}: a job runs one configuration of a rule"
        reading.faults.append(SettingFault(origin, setting, other, expected))
        for name, value, gave in ((setting, one, first[0]), (f"{TRAINING}/{setting}", other, second[0])):
            reading.parameters[name] = value
            reading.origins[name] = f"rule configuration {gave}"


def _add(reading: _Reading, name: str, setting: str, value: str) -> None:
    origin = f"rule configuration {name}"
    earlier = reading.parameters.get(setting, value)
    if earlier == value:
        reading.parameters[setting] = value
        reading.origins.setdefault(setting, origin)
        return
    expected = f"the same as in {reading.origins[setting]}, {earlier!r}"
    reading.faults.append(SettingFault(origin, setting, value, expected))
    # Configurations have one rank: neither value counts, and together they are one that no parameter takes.
    reading.parameters[setting] = f"{earlier} and {value}"
    reading.origins[setting] += f" and {name}"
