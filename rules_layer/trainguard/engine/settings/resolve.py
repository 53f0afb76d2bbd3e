"""Which setting counts: tag, rule configurations, a tag's SSM parameter, stack default, code; faults never give way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainguard.core.errors import RuleConfigError
from trainguard.core.job_policy import JobPolicy
from trainguard.core.run_links import RUN_URL_TAG, run_links
from trainguard.engine.settings.job_settings import (
    OWNER_SETTINGS,
    TRAINING_RULES,
    SettingFault,
    policy_of,
    read_settings,
)
from trainguard.engine.settings.tag_names import from_tag
from trainguard.rules.parameters import overridden, parameter_faults


@dataclass(frozen=True, slots=True)
class Source:
    """The settings of one rank.

    ``name`` is for people, for example ``stack default /TrainGuard/default-settings``. ``parameters`` are of rules,
    ``<Rule>_<parameter>``; ``choices`` the others, by their names in ``choices.CHOICES``. ``origins`` say who gave a
    setting, where ``name`` does not say it well enough.
    """

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[SettingFault, ...] = ()

    def origin_of(self, setting: str) -> str:
        """Return who gave the setting."""
        return self.origins.get(setting, self.name)


def run_pages(tags: Mapping[str, str], *others: Mapping[str, str]) -> dict[str, str]:
    """Return the links by tool; a sign that no tag takes may be escaped in the tag of the owner's page."""
    own = {RUN_URL_TAG: from_tag(tags[RUN_URL_TAG])} if RUN_URL_TAG in tags else {}
    return run_links(({**tags, **own}, *others))


MOST_PARAMETERS = 200
"""More than all rules have: an item of Jobs stays far below DynamoDB's limit."""


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
    """Return what is in force for a job; the highest rank of ``sources`` comes first. ``asked``: it has a tag."""
    parameters: dict[str, str] = {}
    choices: dict[str, str] = {}
    gave: dict[str, str] = {}
    chose: dict[str, str] = {}
    for source in reversed(sources):
        parameters = overridden(parameters, source.parameters)
        choices |= source.choices
        gave |= {setting: source.origin_of(setting) for setting in source.parameters}
        chose |= {choice: source.origin_of(choice) for choice in source.choices}
    reason = {
        fault.setting
        for source in sources
        for fault in source.faults
        if gave.get(fault.setting) == source.origin_of(fault.setting)
    }
    parameters, left_out = _storable(parameters, gave)
    gave = {setting: gave[setting] for setting in parameters}
    values, unread = read_settings(choices, chose)
    unusable = [_fault(fault, gave) for fault in parameter_faults(parameters) if fault.field not in reason]
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
