"""Why a change stands before one that saves more: an agent sees the order, and cannot know the reason by itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainguard.core.finding import severity_rank
from trainguard.kernels.ranking import SYMPTOMS
from trainguard.report.document import FindingEntry

# Savings are compared in percents, as the order of findings compares them.
_DIGITS = 2

# Of the place of a change, and of a later one that saves more.
Why = Callable[[int, int], str]


def before_larger(saves: Sequence[float], why: Why) -> list[Mapping[str, str]]:
    """Return for each change why it stands before the largest of those behind it; nothing where none saves more."""
    found: list[Mapping[str, str]] = []
    for place, own in enumerate(saves):
        behind = range(place + 1, len(saves))
        largest = max(behind, key=lambda at: saves[at], default=place)
        more = round(saves[largest], _DIGITS) > round(own, _DIGITS)
        found.append({"before_larger": why(place, largest)} if more else {})
    return found


def why_of_jobs(findings: Sequence[FindingEntry]) -> Why:
    """Return the reasons of a job's order: causes, what goes on and what is severe come first."""

    def why(first: int, later: int) -> str:
        one, other = findings[first], findings[later]
        if other.explained_by == one.rule:
            return "is_its_cause"
        if one.ongoing and not other.ongoing:
            return "goes_on"
        if severity_rank(one.severity) > severity_rank(other.severity):
            return "more_severe"
        return "risks_more_than_it_has_lost" if one.wasted_share is None else "loses_more_now"

    return why


def why_of_kernels(findings: Sequence[Mapping[str, Any]]) -> Why:
    """Return the reasons of a trace's order: what is sure, and causes, come first."""

    def why(first: int, later: int) -> str:
        if findings[first]["sure"] and not findings[later]["sure"]:
            return "is_sure"
        is_symptom = findings[later]["rule"].rpartition("/")[2] in SYMPTOMS
        return "larger_is_a_symptom" if is_symptom else "informs_less"

    return why
