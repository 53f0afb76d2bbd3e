"""Tags of a job, as settings: ``trainguard:<Rule>_<parameter>``, and ``trainguard:`` with the name of a choice."""

import re
from collections.abc import Mapping

from trainguard.core.run_links import RUN_URL_TAG
from trainguard.engine.settings.job_settings import SETTING_READERS, SettingFault, about_stops
from trainguard.engine.settings.resolve import Source
from trainguard.engine.settings.tag_names import (
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

_NO_SETTINGS = frozenset({STOP_TAG, FRAMEWORK_TAG, SETTINGS_TAG, PROFILE_TAG, RUN_URL_TAG, *OWNER_TAGS.values()})
_EXACT: Mapping[str, str] = {STOP_TAG: STOP_ALLOWED, FRAMEWORK_TAG: FRAMEWORK_EXPECTED}
_MEANT = frozenset({"allow", "true", "yes", "on", "expect", "1"})
"""Misspelt forms of a yes, which count as a no; any other text is a no on purpose."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+){0,10}", re.ASCII)
_LONGEST_NAME = 500
_PLACE = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/\x00-\x1f]+)*/?", re.ASCII)
"""Without empty folders: the grammar of profile objects has none."""


def tag_source(tags: Mapping[str, str], *, called: str = "tag") -> Source:
    """Return the settings in a job's tags; ``called`` is the source's name for people."""
    named = {
        key.removeprefix(NAMESPACE): value
        for key, value in tags.items()
        if key.startswith(NAMESPACE) and key not in _NO_SETTINGS
    }
    faults = tuple(
        SettingFault(f"{called} {key}", key.removeprefix(NAMESPACE), tags[key], f"{wanted}, to the letter")
        for key, wanted in _EXACT.items()
        if key in tags and tags[key] != wanted and tags[key].strip().lower() in {*_MEANT, wanted}
    )
    if not _PLACE.fullmatch(place := tags.get(PROFILE_TAG, "s3://profiles")):
        expected = "where the job's profile lies, s3://<bucket>/<prefix>"
        faults += (SettingFault(f"{called} {PROFILE_TAG}", "profile-path", place, expected, stops=True),)
    choices = {name: value for name, value in named.items() if name in SETTING_READERS or about_stops(name)}
    return Source(
        name=f"{called}s",
        parameters={name: from_tag(value) for name, value in named.items() if name not in choices},
        choices=choices,
        origins={name: f"{called} {NAMESPACE}{name}" for name in named},
        faults=faults,
    )


def asks(tags: Mapping[str, str]) -> bool:
    """Whether any tag is TrainGuard's."""
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
