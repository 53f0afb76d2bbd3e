"""Verdicts made by hand, as rules would give them."""

from typing import Any

from tests.support.ledgers import HOUR_S
from trainguard.core.finding import Episode
from trainguard.core.records import Status
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.rules.registry import spec_of
from trainguard.rules.rule_result import RuleResult

# From hour, to hour; None of what goes on.
Hours = tuple[float, float | None]

ALWAYS: Hours = (0.0, None)


def fired(rule: str, *hours: Hours, nodes: tuple[int, int] = (1, 1), **said: Any) -> RuleOutcome:
    """Return the verdict of a rule that fires on so many of a job's nodes, and held in ``hours``.

    It is of the first of the rule's kinds that claims lost time, unless ``kind`` says another.
    """
    result = RuleResult(Status.FIRED, f"{rule} fired.", **{"kind": claiming_kind(rule), **said})
    history = FiringHistory(is_open=True, violations=3, judged=4, times_fired=1, fired_at=60.0)
    return RuleOutcome(rule, result, history, reach=nodes, merged=held(*hours) or None)


def over(rule: str, *hours: Hours, **said: Any) -> RuleOutcome:
    """Return the verdict of a rule that has fired and whose episode has ended."""
    result = RuleResult(Status.OK, f"{rule} is fine again.", **{"kind": claiming_kind(rule), **said})
    history = FiringHistory(violations=1, judged=4, times_fired=1, fired_at=60.0)
    return RuleOutcome(rule, result, history, merged=held(*hours) or None)


def quiet(rule: str, status: Status = Status.OK, **said: Any) -> RuleOutcome:
    """Return the verdict of a rule that has never fired."""
    return RuleOutcome(rule, RuleResult(status, f"{rule} is quiet.", **said), FiringHistory())


def held(*hours: Hours, start: float = 0.0, **of: Any) -> tuple[Episode, ...]:
    """Return episodes from hour to hour after ``start``, epoch seconds."""
    return tuple(
        Episode(start + HOUR_S * begin, None if end is None else start + HOUR_S * end, **of) for begin, end in hours
    )


def claiming_kind(rule: str) -> str:
    """Return the first kind of a rule's findings that claims lost time; empty where none does."""
    return next((str(kind) for kind, buckets in spec_of(rule).claims.items() if buckets), "")
