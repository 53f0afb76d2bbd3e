"""Values of settings that are no rule's parameters, read from text.

One grammar serves tags and documents. A tag's value has letters, digits, spaces and ``_ . : / = + - @``, so words are
parted by spaces and entries by `` + ``; a comma, which a document can have, parts words too.
"""

import re
from collections.abc import Mapping
from functools import cache
from zoneinfo import ZoneInfo

from trainguard.core.evaluation_interval import LONGEST_EVALUATION_S, SHORTEST_EVALUATION_S
from trainguard.core.job_policy import ALL, DAYS, QuietHours
from trainguard.rules.family_rules import TRAINING_NAMES
from trainguard.rules.parameters import canonical_rule

LONGEST_GRACE_S = 86_400.0
LONGEST_LIMIT_S = 366 * 86_400.0
MOST_STEP_DIGITS = 12

_NONE = "none"
_TRUE, _FALSE = frozenset({"true", "on", "yes"}), frozenset({"false", "off", "no"})
_SECONDS: Mapping[str, float] = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d{1,8}(?:\.\d{1,3})?) ?([smhd]?)", re.ASCII)
_SPAN = re.compile(r"(?P<start>([01]\d|2[0-3]):[0-5]\d)-(?P<end>(([01]\d|2[0-3]):[0-5]\d)|24:00)", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}", re.ASCII)
_ENTRY = re.compile(r"\s\+\s")

RULES_EXPECTED = "names of rules parted by spaces, all, or none"
TRAINING_RULES_EXPECTED = "names of rules of training health parted by spaces, all, or none"
FLAG_EXPECTED = "true or false"
DURATION_EXPECTED = f"a time from 0 to {LONGEST_GRACE_S / 3_600.0:g}h, such as 90s, 10m or 1h"
LIMIT_EXPECTED = f"a time up to {LONGEST_LIMIT_S / 86_400.0:g}d, such as 90m, 24h or 5d"
STEPS_EXPECTED = "a number of steps, such as 20000"
EVALUATION_EVERY_EXPECTED = f"a time from {SHORTEST_EVALUATION_S:g} to {LONGEST_EVALUATION_S:g} seconds, such as 180"
QUIET_EXPECTED = (
    "days, hours and a time zone, such as 'mon-fri 22:00-07:00 Europe/Berlin + sat sun 00:00-24:00', or none"
)


def read_rules(text: str) -> tuple[str, ...] | None:
    """Read names of rules in any case, each once; ``("all",)`` and ``()`` for all and none."""
    words = split_words(text)
    if [word.lower() for word in words] in ([ALL], [_NONE]):
        return (ALL,) if words[0].lower() == ALL else ()
    named = [canonical_rule(word) for word in words]
    known = tuple(dict.fromkeys(name for name in named if name is not None))
    return known if named and None not in named else None


def read_training_rules(text: str) -> tuple[str, ...] | None:
    """Read names of rules of training health; None where one of another family is among them."""
    rules = read_rules(text)
    if rules is None or rules == (ALL,):
        return rules
    return rules if set(rules).issubset(TRAINING_NAMES) else None


def read_flag(text: str) -> bool | None:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def read_duration_s(text: str) -> float | None:
    seconds = _seconds(text)
    return seconds if seconds is not None and seconds <= LONGEST_GRACE_S else None


def _seconds(text: str) -> float | None:
    found = _DURATION.fullmatch(text.strip().lower())
    return None if found is None else float(found[1]) * _SECONDS[found[2]]


def read_time_limit_s(text: str) -> float | None:
    seconds = _seconds(text)
    return seconds if seconds is not None and 0.0 < seconds <= LONGEST_LIMIT_S else None


def read_steps(text: str) -> int | None:
    word = text.strip()
    return int(word) or None if word.isascii() and word.isdecimal() and len(word) <= MOST_STEP_DIGITS else None


def read_evaluation_every_s(text: str) -> float | None:
    seconds = read_duration_s(text)
    return seconds if seconds is not None and SHORTEST_EVALUATION_S <= seconds <= LONGEST_EVALUATION_S else None


def read_quiet_hours(text: str) -> tuple[QuietHours, ...] | None:
    """Read entries of days, a span of the day, and a time zone; by default every day and UTC."""
    if text.strip().lower() == _NONE:
        return ()
    entries = [_quiet_entry(split_words(entry)) for entry in _ENTRY.split(text)]
    read = tuple(entry for entry in entries if entry is not None)
    return read if len(read) == len(entries) else None


def split_words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _quiet_entry(words: list[str]) -> QuietHours | None:
    place = next((place for place, word in enumerate(words) if ":" in word), None)
    if place is None or len(words) > place + 2:
        return None
    span, days = _SPAN.fullmatch(words[place]), _days(words[:place])
    zone = words[place + 1] if len(words) > place + 1 else "UTC"
    if span is None or days is None or not _is_zone(zone):
        return None
    end = "00:00" if span["end"] == "24:00" else span["end"]
    return QuietHours(days=days, start=span["start"], end=end, timezone=zone)


def _days(words: list[str]) -> tuple[str, ...] | None:
    """Read days and spans of days; one that ends before it starts goes over the week's end."""
    if not words:
        return DAYS
    found: set[str] = set()
    for word in words:
        first, dash, last = word.lower().partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            return None
        start = DAYS.index(first)
        length = (DAYS.index(last) - start) % len(DAYS) + 1 if dash else 1
        found.update(DAYS[(start + step) % len(DAYS)] for step in range(length))
    return tuple(day for day in DAYS if day in found)


@cache
def _is_zone(name: str) -> bool:
    if not _ZONE.fullmatch(name):
        return False
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return False
    return True
