"""A JSON document of settings: the value of an SSM parameter, or a file.

It holds rules' parameters as a parameter file does, nested or flat, and choices by their names or in groups::

    {"<Rule>": {"threshold_p95": 60}, "<Rule>_stddev": 4,
     "evaluate": ["prod-*"],
     "alerts": {"staged": ["<Rule>"], "muted": [], "quiet_hours": ["mon-fri 22:00-07:00 Europe/Berlin"]},
     "stops": {"rules": ["<Rule>"], "grace": "10m", "dry_run": false},
     "owners": {"user": ["owner"], "team": ["team"], "project": ["project"]}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from trainguard.engine.settings.job_settings import (
    MUTED,
    OWNER_SETTINGS,
    QUIET_HOURS,
    SETTING_READERS,
    STAGED,
    STOP_DRY_RUN,
    STOP_GRACE,
    STOP_RULES,
    SettingFault,
    about_stops,
)
from trainguard.engine.settings.resolve import Source

_GROUPS: Mapping[str, Mapping[str, str]] = {
    "alerts": {"staged": STAGED, "muted": MUTED, "quiet_hours": QUIET_HOURS},
    "stops": {"rules": STOP_RULES, "grace": STOP_GRACE, "dry_run": STOP_DRY_RUN},
    "owners": OWNER_SETTINGS,
}
_A_VALUE = "a number, a text, true, false or null"
_AN_OBJECT = 'a JSON object such as {"<Rule>": {"<parameter>": 60}, "evaluate": "all"}'


@dataclass(slots=True)
class _Reading:
    name: str
    parameters: dict[str, str] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)
    faults: list[SettingFault] = field(default_factory=list)

    def fault(self, setting: str, value: object, expected: str, *, stops: bool = False) -> None:
        self.faults.append(SettingFault(self.name, setting, _text(value), expected, stops))


def read_document(name: str, body: str | bytes) -> Source:
    """Return the settings of a document; anything but a JSON object is ignored as a whole, with a fault."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
        return unusable(name, _shown(body), f"{_AN_OBJECT} ({fault})")
    if not isinstance(document, dict):
        return unusable(name, _text(document), _AN_OBJECT)
    reading = _Reading(name)
    for key, value in document.items():
        if key in _GROUPS:
            _read_group(reading, key, value)
        elif key in SETTING_READERS or about_stops(key):
            _read_choice(reading, key, key, value)
        else:
            _read_parameters(reading, key, value)
    return Source(name, reading.parameters, reading.choices, {}, tuple(reading.faults))


def unusable(name: str, value: str, expected: str) -> Source:
    """Return a source of which nothing is known, so that nothing is known of what may stop a job either."""
    return Source(name, faults=(SettingFault(name, "", value, expected, stops=True),))


def _read_group(reading: _Reading, group: str, value: object) -> None:
    names = _GROUPS[group]
    if not isinstance(value, dict):
        return reading.fault(group, value, f"an object with {', '.join(names)}", stops=group == "stops")
    for key, each in value.items():
        if key in names:
            _read_choice(reading, f"{group}.{key}", names[key], each)
        else:
            reading.fault(f"{group}.{key}", each, f"one of {', '.join(names)}", stops=group == "stops")
    return None


def _read_choice(reading: _Reading, setting: str, choice: str, value: object) -> None:
    """Write a value as a tag would: a list's words side by side, its quiet hours joined by a plus."""
    parts = value if isinstance(value, list) else [value]
    if any(isinstance(part, dict | list) or part is None for part in parts):
        reading.fault(setting, value, "a text, or a list of texts", stops=about_stops(choice))
    else:
        joined = " + " if choice == QUIET_HOURS else " "
        text = joined.join(map(_text, parts)) if parts else "none"
        earlier = reading.choices.get(choice, text)
        # Neither of two values counts: together they are one that no choice takes.
        reading.choices[choice] = text if earlier == text else f"{earlier} and {text}"


def _read_parameters(reading: _Reading, key: str, value: object) -> None:
    pairs = (
        {f"{key}_{parameter}": each for parameter, each in value.items()} if isinstance(value, dict) else {key: value}
    )
    for setting, each in pairs.items():
        if isinstance(each, dict | list):
            reading.fault(setting, each, _A_VALUE)
        text = _text(each)
        earlier = reading.parameters.get(setting, text)
        if earlier != text:
            reading.fault(setting, each, f"the same as before, {earlier!r}")
        # Neither of two values counts: together they are one that no parameter takes.
        reading.parameters[setting] = text if earlier == text else f"{earlier} and {text}"


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)


def _shown(body: str | bytes) -> str:
    return body if isinstance(body, str) else body.decode(errors="replace")
