"""A job's settings from all sources; an unreadable one falls to the safe side: an alert too many, no stop at all."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from trainguard.core.evaluation_interval import EVALUATION_EVERY_S
from trainguard.core.job_policy import EVERY_JOB, AlertPolicy, JobPolicy, StopPolicy
from trainguard.core.layout import RUN_URL_TAG, run_links
from trainguard.engine.settings import parsers
from trainguard.engine.settings.tag_names import OWNER_KINDS, TAGS_EXPECTED, from_tag, read_tag_names
from trainguard.formats.runs.named import EXPECTED as SOURCE_EXPECTED
from trainguard.formats.runs.named import named_source
from trainguard.rules.parameters import overridden, parameter_faults

# Listed of a job; the rest are counted.
MOST_FAULTS = 40

_LONGEST_NAME, _LONGEST_VALUE = 128, 120


class SettingFault(msgspec.Struct, frozen=True):
    """A setting that cannot be used, empty where the source is unusable; with ``stops`` nothing may stop the job."""

    source: str
    setting: str
    value: str
    expected: str
    stops: bool = False

    def __str__(self) -> str:
        value = repr(_shortened(self.value, _LONGEST_VALUE))
        reason = f"{_name(self.setting)} is {value}" if self.setting else f"it is {value}"
        return f"{_name(self.source)}: {reason}, expected {self.expected}"


# The stop permission of a job whose configuration names no place for its profile.
NO_PLACE = SettingFault(
    "ProfilerConfig",
    "S3OutputPath",
    "not given",
    "where the job's profile lies, here or in the tag trainguard:profile-path: without it anybody's objects count, "
    "and nothing may stop the job",
)


def fault_sentences(faults: tuple[SettingFault, ...]) -> tuple[str, ...]:
    reason = [str(fault) for fault in faults[:MOST_FAULTS]]
    rest = len(faults) - len(reason)
    return (*reason, f"and {rest} more") if rest else tuple(reason)


def _name(name: str) -> str:
    name = _shortened(name, _LONGEST_NAME)
    return name if name.isprintable() else repr(name)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


EVALUATE, STAGED, MUTED, QUIET_HOURS = "evaluate", "staged", "muted", "quiet-hours"
TRAINING_RULES = "training-rules"
SOURCE = "source"
EVALUATION_EVERY = "evaluation-every-s"
TIME_LIMIT, TOTAL_STEPS = "time-limit", "total-steps"
STOP_RULES, STOP_GRACE, STOP_DRY_RUN = "stop-rules", "stop-grace", "stop-dry-run"
OWNER_SETTINGS: Mapping[str, str] = {kind: f"{kind}-tags" for kind in OWNER_KINDS}

_STOPS = re.compile(r"stops?([-_].*)?", re.IGNORECASE | re.DOTALL)

_EVERY, _TAGGED, _NO = frozenset({"all", "on", "true"}), "tagged", frozenset({"off", "none", "false"})
_PATTERN = re.compile(r"(?=[^*]*\*)[A-Za-z0-9*-]{1,63}", re.ASCII)


def about_stops(name: str) -> bool:
    """Whether a setting's name is about stops, also misspelt: then what it wanted to forbid must not happen."""
    return _STOPS.fullmatch(name.strip()) is not None


def read_evaluate(text: str) -> str | tuple[str, ...] | None:
    """Read ``all``, ``off``, ``tagged``, or patterns of names."""
    given = parsers.split_words(text)
    if len(given) == 1 and (word := given[0].lower()) in {*_EVERY, *_NO, _TAGGED}:
        return word
    return tuple(given) if given and all(_PATTERN.fullmatch(each) for each in given) else None


SETTING_READERS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    EVALUATE: (read_evaluate, "all, off, tagged, or patterns of job names such as prod-*"),
    STAGED: (parsers.read_rules, parsers.RULES_EXPECTED),
    MUTED: (parsers.read_rules, parsers.RULES_EXPECTED),
    QUIET_HOURS: (parsers.read_quiet_hours, parsers.QUIET_EXPECTED),
    TRAINING_RULES: (parsers.read_training_rules, parsers.TRAINING_RULES_EXPECTED),
    SOURCE: (lambda text: " ".join(text.split()) if named_source(text) is not None else None, SOURCE_EXPECTED),
    EVALUATION_EVERY: (parsers.read_evaluation_every_s, parsers.EVALUATION_EVERY_EXPECTED),
    TIME_LIMIT: (parsers.read_time_limit_s, parsers.LIMIT_EXPECTED),
    TOTAL_STEPS: (parsers.read_steps, parsers.STEPS_EXPECTED),
    STOP_RULES: (parsers.read_rules, parsers.RULES_EXPECTED),
    STOP_GRACE: (parsers.read_duration_s, parsers.DURATION_EXPECTED),
    STOP_DRY_RUN: (parsers.read_flag, parsers.FLAG_EXPECTED),
    **dict.fromkeys(OWNER_SETTINGS.values(), (read_tag_names, TAGS_EXPECTED)),
}


def read_settings(
    given: Mapping[str, str], origins: Mapping[str, str]
) -> tuple[dict[str, Any], tuple[SettingFault, ...]]:
    values: dict[str, Any] = {}
    faults = []
    for name, text in sorted(given.items()):
        read, expected = SETTING_READERS.get(
            name, (lambda _: None, f"one of the settings {', '.join(SETTING_READERS)}")
        )
        value = read(text)
        if value is None:
            faults.append(SettingFault(origins[name], name, text, expected, stops=about_stops(name)))
        else:
            values[name] = value
    return values, tuple(faults)


def policy_of(job: str, values: Mapping[str, Any], origins: Mapping[str, str], *, asked: bool, safe: bool) -> JobPolicy:
    """Return the policy of a job; ``asked``: its tag names TrainGuard. Unless ``safe``, nothing may stop it."""
    evaluated, why = _evaluated(job, values.get(EVALUATE), origins.get(EVALUATE, ""), asked=asked)
    return JobPolicy(
        evaluated=evaluated,
        why=why,
        alerts=AlertPolicy(
            staged=values.get(STAGED, ()), muted=values.get(MUTED, ()), quiet_hours=values.get(QUIET_HOURS, ())
        ),
        stops=StopPolicy(
            rules=values.get(STOP_RULES) if safe else (),
            grace_s=values.get(STOP_GRACE, 0.0),
            dry_run=values.get(STOP_DRY_RUN, False),
        ),
        source=values.get(SOURCE, ""),
        evaluation_every_s=values.get(EVALUATION_EVERY, EVALUATION_EVERY_S),
    )


def _evaluated(job: str, wanted: str | tuple[str, ...] | None, origin: str, *, asked: bool) -> tuple[bool, str]:
    if wanted is None:
        return True, EVERY_JOB
    if isinstance(wanted, str) and wanted != _TAGGED:
        return wanted in _EVERY, f"{origin} says {wanted}"
    patterns = () if isinstance(wanted, str) else wanted
    matching = next((pattern for pattern in patterns if fnmatchcase(job, pattern)), None)
    if matching is not None:
        return True, f"its name matches {matching} of {origin}"
    named = "tagged jobs" if not patterns else f"tagged jobs and {' '.join(patterns)}"
    text = f"{origin} evaluates {named} alone, and the job has "
    return asked, text + ("a tag of TrainGuard's" if asked else "no tag of TrainGuard's")


@dataclass(slots=True)
class Source:
    """The settings of one rank.

    ``name`` is for people, for example ``stack default /TrainGuard/default-settings``. ``parameters`` are of rules,
    ``<Rule>_<parameter>``; ``choices`` the others, by their names in ``choices.CHOICES``. ``origins`` say who gave a
    setting, where ``name`` does not say it well enough. ``elsewhere`` maps configured rules that are not evaluated here
    to the reason, ``places`` those with a place of their own to it.
    """

    name: str
    parameters: dict[str, str] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    faults: tuple[SettingFault, ...] = ()
    elsewhere: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def origin_of(self, setting: str) -> str:
        return self.origins.get(setting, self.name)

    def fault(self, setting: str, value: str, expected: str, *, stops: bool = False, origin: str = "") -> None:
        self.faults = (*self.faults, SettingFault(origin or self.name, setting, value, expected, stops))


def run_pages(tags: Mapping[str, str], *others: Mapping[str, str]) -> dict[str, str]:
    """Return the links by tool; a sign that no tag takes may be escaped in the tag of the owner's page."""
    own = {RUN_URL_TAG: from_tag(tags[RUN_URL_TAG])} if RUN_URL_TAG in tags else {}
    return run_links(({**tags, **own}, *others))


# More than all rules have: an item of Jobs stays far below DynamoDB's limit.
MOST_PARAMETERS = 200


@dataclass(frozen=True, slots=True)
class Resolved:
    """What is in force; ``sources`` says for each setting who gave it."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    policy: JobPolicy = field(default_factory=JobPolicy)
    sources: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[SettingFault, ...] = ()
    training_rules: tuple[str, ...] | None = None
    owner_tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    time_limit_s: float | None = None
    total_steps: int | None = None


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
    unusable = [
        SettingFault(gave.get(fault.field, "settings"), fault.field, str(fault.value), fault.expected)
        for fault in parameter_faults(parameters)
        if fault.field not in reason
    ]
    faults = (*(fault for source in sources for fault in source.faults), *left_out, *unread, *unusable)
    safe = not any(fault.stops for fault in faults)
    return Resolved(
        parameters=parameters,
        policy=policy_of(job, values, chose, asked=asked, safe=safe),
        sources=gave | chose,
        faults=faults,
        training_rules=values.get(TRAINING_RULES),
        owner_tags={kind: values[name] for kind, name in OWNER_SETTINGS.items() if name in values},
        time_limit_s=values.get(TIME_LIMIT),
        total_steps=values.get(TOTAL_STEPS),
    )


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
