"""Rule configurations of a training job, as settings: the managed service's rules in CreateTrainingJob.

Every rule of TrainGuard's runs, whatever rules are configured; a configuration gives its rule's parameters. What names
no such rule is not evaluated here, and kept with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainguard.ports import RuleConfiguration
from trainguard.rules.parameters import PARAMETERS_TYPES, canonical_rule
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.settings.faults import SettingFault
from trainguard.settings.source import Source

_RULE, _SOURCE = "rule_to_invoke", "source_s3_uri"
_NAME = "rule configurations"


@dataclass(frozen=True, slots=True)
class Configured:
    """What the configurations come to; ``elsewhere`` maps those that are not evaluated here to the reason."""

    source: Source
    elsewhere: Mapping[str, str]
    places: Mapping[str, str]


@dataclass(slots=True)
class _Reading:
    parameters: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    faults: list[SettingFault] = field(default_factory=list)


def configured(profiler: Sequence[RuleConfiguration], debugger: Sequence[RuleConfiguration] = ()) -> Configured:
    """Return what a job's rule configurations give."""
    reading = _Reading()
    elsewhere = {each.name: "a rule of tensors: TrainGuard evaluates profiles" for each in debugger}
    for configuration in profiler:
        reason = _reason_against(configuration)
        if reason is not None:
            elsewhere[configuration.name] = reason
            continue
        for setting, value in _settings(configuration).items():
            _add(reading, configuration.name, setting, value)
    return Configured(
        source=Source(_NAME, reading.parameters, {}, reading.origins, tuple(reading.faults)),
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
        return f"{_RULE} is {rule!r}, none of {', '.join(PARAMETERS_TYPES)}"
    return None


def _settings(configuration: RuleConfiguration) -> dict[str, str]:
    """Return parameters under their rule's name, which those of a single rule lack."""
    rule = canonical_rule(configuration.parameters[_RULE])
    settings = {}
    for parameter, value in configuration.parameters.items():
        bare = canonical_rule(parameter.partition("_")[0]) is None
        if parameter != _RULE:
            settings[f"{rule}_{parameter}" if bare and rule != PROFILER_REPORT else parameter] = value
    return settings


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
