"""Which setting counts: tag > rule configurations > SSM parameter named by a tag > the stack's default > code.

Each setting is resolved by itself. A value that cannot be used is never passed over for one of a lower rank: its rule
does not run, and says why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainguard.errors import RuleConfigError
from trainguard.job_policy import JobPolicy
from trainguard.rules.parameters import overridden, parameter_faults
from trainguard.settings.faults import SettingFault
from trainguard.settings.job_settings import OWNER_SETTINGS, TRAINING_RULES, policy_of, read_settings
from trainguard.settings.source import Source

MOST_PARAMETERS = 200
"""More than all rules have: an item of Jobs stays far below what DynamoDB takes."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What is in force; ``sources`` says for each setting who gave it."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    policy: JobPolicy = field(default_factory=JobPolicy)
    sources: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[SettingFault, ...] = ()
    training_rules: tuple[str, ...] | None = None
    owner_tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def resolve(job: str, sources: Sequence[Source], *, asked: bool) -> Resolved:
    """Return what is in force for a job.

    Parameters
    ----------
    job : str
        Its name, for patterns.
    sources : sequence of Source
        The highest rank first.
    asked : bool
        Whether a tag of the job speaks to TrainGuard.
    """
    parameters: dict[str, str] = {}
    choices: dict[str, str] = {}
    gave: dict[str, str] = {}
    chose: dict[str, str] = {}
    for source in reversed(sources):
        parameters = overridden(parameters, source.parameters)
        choices |= source.choices
        gave |= {setting: source.origin_of(setting) for setting in source.parameters}
        chose |= {choice: source.origin_of(choice) for choice in source.choices}
    told = {
        fault.setting
        for source in sources
        for fault in source.faults
        if gave.get(fault.setting) == source.origin_of(fault.setting)
    }
    parameters, left_out = _storable(parameters, gave)
    gave = {setting: gave[setting] for setting in parameters}
    values, unread = read_settings(choices, chose)
    unusable = [_fault(fault, gave) for fault in parameter_faults(parameters) if fault.field not in told]
    faults = (*(fault for source in sources for fault in source.faults), *left_out, *unread, *unusable)
    safe = not any(fault.stops for fault in faults)
    return Resolved(
        parameters=parameters,
        policy=policy_of(job, values, chose, asked=asked, safe=safe),
        sources=gave | chose,
        faults=faults,
        training_rules=values.get(TRAINING_RULES),
        owner_tags={kind: values[name] for kind, name in OWNER_SETTINGS.items() if name in values},
    )


def _fault(fault: RuleConfigError, gave: Mapping[str, str]) -> SettingFault:
    return SettingFault(gave.get(fault.field, "settings"), fault.field, str(fault.value), fault.expected)


def _storable(parameters: dict[str, str], gave: Mapping[str, str]) -> tuple[dict[str, str], tuple[SettingFault, ...]]:
    """Return what an item can hold, and what is wrong with the rest: DynamoDB knows no empty names."""
    faults: list[SettingFault] = []
    if "" in parameters:
        faults.append(SettingFault(gave[""], "a setting without a name", parameters.pop(""), "<Rule>_<parameter>"))
    if len(parameters) > MOST_PARAMETERS:
        kept = sorted(parameters)[:MOST_PARAMETERS]
        expected = f"at most {MOST_PARAMETERS}; those after {kept[-1]!r} are not used"
        faults.append(SettingFault("all sources", "number of parameters", str(len(parameters)), expected))
        parameters = {name: parameters[name] for name in kept}
    return parameters, tuple(faults)
