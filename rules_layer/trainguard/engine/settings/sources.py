"""Sources of a job's settings: its tags, its rule configurations, and a JSON document of an SSM parameter or a file.

Tags are ``trainguard:<Rule>_<parameter>``, and ``trainguard:`` with the name of a choice. Profiler rules always run,
those of training health if configured. A document holds rules' parameters as a parameter file does, nested or flat, and
choices by their names or in groups::

    {"<Rule>": {"threshold_p95": 60}, "<Rule>_stddev": 4,
     "evaluate": ["prod-*"],
     "alerts": {"staged": ["<Rule>"], "muted": [], "quiet_hours": ["mon-fri 22:00-07:00 Europe/Berlin"]},
     "stops": {"rules": ["<Rule>"], "grace": "10m", "dry_run": false},
     "owners": {"user": ["owner"], "team": ["team"], "project": ["project"]}}
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from trainguard.core.layout import RUN_URL_TAG
from trainguard.core.ports import RuleConfiguration
from trainguard.engine.settings.job_settings import (
    MUTED,
    OWNER_SETTINGS,
    QUIET_HOURS,
    SETTING_READERS,
    STAGED,
    STOP_DRY_RUN,
    STOP_GRACE,
    STOP_RULES,
    TRAINING_RULES,
    SettingFault,
    Source,
    about_stops,
)
from trainguard.engine.settings.tag_names import (
    AGENT_TAG,
    FRAMEWORK_EXPECTED,
    FRAMEWORK_TAG,
    NAMESPACE,
    OWNER_TAGS,
    PROFILE_TAG,
    SETTINGS_TAG,
    STOP_ALLOWED,
    STOP_TAG,
    from_tag,
)
from trainguard.rules.family_rules import TRAINING, TRAINING_NAMES, bare
from trainguard.rules.parameters import PARAMETERS_TYPES, canonical_rule
from trainguard.rules.profiler_report import PROFILER_REPORT

_NO_SETTINGS = frozenset(
    {STOP_TAG, AGENT_TAG, FRAMEWORK_TAG, SETTINGS_TAG, PROFILE_TAG, RUN_URL_TAG, *OWNER_TAGS.values()}
)
_EXACT: Mapping[str, str] = {STOP_TAG: STOP_ALLOWED, FRAMEWORK_TAG: FRAMEWORK_EXPECTED}
# Misspelt forms of a yes, which count as a no; any other text is a no on purpose.
_MEANT = frozenset({"allow", "true", "yes", "on", "expect", "1"})

_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+){0,10}", re.ASCII)
_LONGEST_NAME = 500
# Without empty folders: the grammar of profile objects has none.
_PLACE = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/\x00-\x1f]+)*/?", re.ASCII)


def tag_source(tags: Mapping[str, str]) -> Source:
    named = {
        key.removeprefix(NAMESPACE): value
        for key, value in tags.items()
        if key.startswith(NAMESPACE) and key not in _NO_SETTINGS
    }
    choices = {name: value for name, value in named.items() if name in SETTING_READERS or about_stops(name)}
    source = Source(
        name="tags",
        parameters={name: from_tag(value) for name, value in named.items() if name not in choices},
        choices=choices,
        origins={name: f"tag {NAMESPACE}{name}" for name in named},
    )
    for key, wanted in _EXACT.items():
        if key in tags and tags[key] != wanted and tags[key].strip().lower() in {*_MEANT, wanted}:
            setting = key.removeprefix(NAMESPACE)
            source.fault(setting, tags[key], f"{wanted}, to the letter", origin=f"tag {key}")
    if not _PLACE.fullmatch(place := tags.get(PROFILE_TAG, "s3://profiles")):
        expected = "where the job's profile lies, s3://<bucket>/<prefix>"
        source.fault("profile-path", place, expected, stops=True, origin=f"tag {PROFILE_TAG}")
    return source


def asks(tags: Mapping[str, str]) -> bool:
    return any(key.startswith(NAMESPACE) for key in tags)


def settings_name(tags: Mapping[str, str], path: str) -> str | SettingFault | None:
    """Return the SSM parameter that a job's tag names, in full or below ``path``; a fault for any other name."""
    given = tags.get(SETTINGS_TAG)
    if given is None:
        return None
    below = given.strip().removeprefix(path)
    if len(path) + len(below) <= _LONGEST_NAME and _NAME.fullmatch(below):
        return f"{path}{below}"
    expected = f"the name of an SSM parameter below {path}, whole or without that"
    return SettingFault(f"tag {SETTINGS_TAG}", "settings", given, expected, stops=True)


_RULE, _SOURCE = "rule_to_invoke", "source_s3_uri"
_CONFIGURATIONS = "rule configurations"
# Holds the actions of the managed service, which its SDK puts among the parameters of a rule over tensors.
_ACTIONS = "action_json"

_NO_ACTIONS = "actions of the managed service: TrainGuard alerts by itself, and stops a job by its own tags alone"


def configured(profiler: Sequence[RuleConfiguration], debugger: Sequence[RuleConfiguration] = ()) -> Source:
    """Return the configured settings, rules that are not evaluated here, and where reports go."""
    source = Source(_CONFIGURATIONS)
    elsewhere = source.elsewhere
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
                _refuse_second(source, first, (configuration.name, settings))
                continue
        for setting, value in settings.items():
            _add(source, configuration.name, setting, value)
    source.choices = {TRAINING_RULES: " ".join(chosen)} if chosen else {}
    source.places = {each.name: each.place for each in (*profiler, *debugger) if each.place}
    return source


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
    reading: Source, first: tuple[str, Mapping[str, str]], second: tuple[str, Mapping[str, str]]
) -> None:
    """Leave a rule without usable settings where two configurations disagree: it refuses a setting with two values."""
    origin = f"rule configuration {second[0]}"
    for setting in sorted(first[1].keys() | second[1].keys()):
        one, other = (each[1].get(setting, f"the default in {each[0]}") for each in (first, second))
        if one == other:
            continue
        expected = f"as in rule configuration {first[0]}, {one!r}: a job runs one configuration of a rule"
        reading.fault(setting, other, expected, origin=origin)
        for name, value, gave in ((setting, one, first[0]), (f"{TRAINING}/{setting}", other, second[0])):
            reading.parameters[name] = value
            reading.origins[name] = f"rule configuration {gave}"


def _add(reading: Source, name: str, setting: str, value: str) -> None:
    origin = f"rule configuration {name}"
    earlier = reading.parameters.get(setting, value)
    if earlier == value:
        reading.parameters[setting] = value
        reading.origins.setdefault(setting, origin)
        return
    expected = f"the same as in {reading.origins[setting]}, {earlier!r}"
    reading.fault(setting, value, expected, origin=origin)
    # Configurations have one rank: neither value counts, and together they are one that no parameter takes.
    reading.parameters[setting] = f"{earlier} and {value}"
    reading.origins[setting] += f" and {name}"


_GROUPS: Mapping[str, Mapping[str, str]] = {
    "alerts": {"staged": STAGED, "muted": MUTED, "quiet_hours": QUIET_HOURS},
    "stops": {"rules": STOP_RULES, "grace": STOP_GRACE, "dry_run": STOP_DRY_RUN},
    "owners": OWNER_SETTINGS,
}
_A_VALUE = "a number, a text, true, false or null"
_AN_OBJECT = 'a JSON object such as {"<Rule>": {"<parameter>": 60}, "evaluate": "all"}'


def read_document(name: str, body: str | bytes) -> Source:
    """Return the settings of a document; anything but a JSON object is ignored as a whole, with a fault."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
        shown = body if isinstance(body, str) else body.decode(errors="replace")
        return unusable(name, shown, f"{_AN_OBJECT} ({fault})")
    if not isinstance(document, dict):
        return unusable(name, _text_of(document), _AN_OBJECT)
    reading = Source(name)
    for key, value in document.items():
        if key in _GROUPS:
            _read_group(reading, key, value)
        elif key in SETTING_READERS or about_stops(key):
            _read_choice(reading, key, key, value)
        else:
            _read_parameters(reading, key, value)
    return reading


def unusable(name: str, value: str, expected: str) -> Source:
    """Return a source of which nothing is known, so that nothing is known of what may stop a job either."""
    return Source(name, faults=(SettingFault(name, "", value, expected, stops=True),))


def _read_group(reading: Source, group: str, value: object) -> None:
    names = _GROUPS[group]
    if not isinstance(value, dict):
        expected = f"an object with {', '.join(names)}"
        return reading.fault(group, _text_of(value), expected, stops=group == "stops")
    for key, each in value.items():
        if key in names:
            _read_choice(reading, f"{group}.{key}", names[key], each)
        else:
            expected = f"one of {', '.join(names)}"
            reading.fault(f"{group}.{key}", _text_of(each), expected, stops=group == "stops")
    return None


def _read_choice(reading: Source, setting: str, choice: str, value: object) -> None:
    """Write a value as a tag would: a list's words side by side, its quiet hours joined by a plus."""
    parts = value if isinstance(value, list) else [value]
    if any(isinstance(part, dict | list) or part is None for part in parts):
        reading.fault(setting, _text_of(value), "a text, or a list of texts", stops=about_stops(choice))
    else:
        joined = " + " if choice == QUIET_HOURS else " "
        text = joined.join(map(_text_of, parts)) if parts else "none"
        earlier = reading.choices.get(choice, text)
        # Neither of two values counts: together they are one that no choice takes.
        reading.choices[choice] = text if earlier == text else f"{earlier} and {text}"


def _read_parameters(reading: Source, key: str, value: object) -> None:
    pairs = (
        {f"{key}_{parameter}": each for parameter, each in value.items()} if isinstance(value, dict) else {key: value}
    )
    for setting, each in pairs.items():
        if isinstance(each, dict | list):
            reading.fault(setting, _text_of(each), _A_VALUE)
        text = _text_of(each)
        earlier = reading.parameters.get(setting, text)
        if earlier != text:
            reading.fault(setting, text, f"the same as before, {earlier!r}")
        # Neither of two values counts: together they are one that no parameter takes.
        reading.parameters[setting] = text if earlier == text else f"{earlier} and {text}"


def _text_of(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)
