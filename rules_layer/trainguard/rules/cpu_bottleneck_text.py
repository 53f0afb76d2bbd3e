"""The words of CPUBottleneck."""

from trainguard.rules.bottleneck_text import CoreWords, words_of
from trainguard.rules.units import show_number, show_percent
from trainguard.rules.words import FactSheet, Words

FULL_NODE = 80.0
"""Cores whose mean is as high, percent, leave little: the rest is what the system itself needs."""


def text(sheet: FactSheet) -> Words:
    """Say how GPUs waited for busy cores."""
    return words_of(sheet, _WORDS)


def _level(sheet: FactSheet) -> float:
    found = sheet.get("mean_core_utilization_found")
    return sheet.number("mean_core_utilization") if found is None else float(found.value)


def _cause(sheet: FactSheet) -> str:
    return f"a core was above {show_percent(sheet['core_limit'].threshold or 0.0)}"


def _cause_of_minutes(sheet: FactSheet) -> str:
    level, full = sheet.number("mean_core_utilization"), sheet.number("cores_full")
    if level >= FULL_NODE:
        return f"the cores were {show_percent(level)} busy on average"
    return f"{show_number(full)} cores were full on average" if full >= 1.5 else "a core was full"


def _at_limit(sheet: FactSheet) -> str:
    limit = sheet["core_at_limit_while_working"].threshold or 0.0
    return f"A core was above {show_percent(limit)}"


def _remedy(sheet: FactSheet) -> str:
    level = _level(sheet)
    busy = f"The cores {'were' if sheet.past else 'are'} {show_percent(level)} busy on average"
    if level >= FULL_NODE:
        return (
            f"{busy}, which leaves little: use fewer or cheaper transforms, preprocess once ahead of training or on "
            "the GPU, or take an instance with more cores for each GPU"
        )
    return (
        f"{busy}, so that others are free: use more data loader processes (num_workers) or prefetching, do less in the "
        "training process itself, or preprocess once ahead of training or on the GPU"
    )


_WORDS = CoreWords(
    clause="the CPU cores could not keep up with the GPUs",
    cause=_cause,
    cause_of_minutes=_cause_of_minutes,
    at_limit=_at_limit,
    remedy=_remedy,
)
