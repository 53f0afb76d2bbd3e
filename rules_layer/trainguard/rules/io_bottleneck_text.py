"""The words of IOBottleneck."""

from trainguard.rules.bottleneck_text import CoreWords, words_of
from trainguard.rules.units import show_percent
from trainguard.rules.words import FactSheet, Words


def text(sheet: FactSheet) -> Words:
    """Say how GPUs waited while cores waited for storage or network."""
    return words_of(sheet, _WORDS)


def _cause(sheet: FactSheet) -> str:
    return f"a core waited for I/O more than {show_percent(sheet['core_limit'].threshold or 0.0)} of its time"


def _cause_of_minutes(sheet: FactSheet) -> str:
    first, mean = (show_percent(sheet.number(name)) for name in ("highest_io_wait", "mean_io_wait"))
    return f"cores waited for I/O, the first of them {first} of its time and all {mean}"


def _at_limit(sheet: FactSheet) -> str:
    limit = sheet["core_at_limit_while_working"].threshold or 0.0
    return f"A core waited for I/O more than {show_percent(limit)} of its time"


def _remedy(_: FactSheet) -> str:
    return (
        "Prefetch, pack the data set into fewer and larger files of a binary format, or keep it on a faster volume or "
        "file system"
    )


_WORDS = CoreWords(
    clause="the GPUs waited for storage or other I/O",
    cause=_cause,
    cause_of_minutes=_cause_of_minutes,
    at_limit=_at_limit,
    remedy=_remedy,
)
