"""Sums over jobs of a fleet: how many have findings, what they ran and what they lost, and their weeks."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from trainguard.report.fleet_facts import JobFacts


def with_findings(facts: Sequence[JobFacts]) -> int:
    """Return on how many of the jobs a rule has fired."""
    return sum(bool(each.fired) for each in facts)


def hours_of(facts: Sequence[JobFacts]) -> float:
    """Return the jobs' instance hours, as far as their times are known."""
    return round(sum(each.hours or 0.0 for each in facts), 2)


def wasted_share_of(facts: Sequence[JobFacts]) -> float | None:
    """Return the share of the instance hours that was wasted, over the jobs of which both are known."""
    known = [(each.wasted_hours, each.hours) for each in facts if each.wasted_hours is not None]
    hours = sum(all_hours or 0.0 for _, all_hours in known)
    return round(sum(wasted or 0.0 for wasted, _ in known) / hours, 4) if hours else None


def money_of(amounts: Iterable[float | None]) -> float | None:
    """Add up what is known; None when nothing is."""
    known = [amount for amount in amounts if amount is not None]
    return round(sum(known), 2) if known else None


def began_in(facts: JobFacts) -> datetime | None:
    """Return the Monday of the week in which a job began; None where no time of it is known."""
    began = facts.began_at if facts.began_at is not None else facts.last_at
    return None if began is None else monday_of(began)


def monday_of(epoch_s: float) -> datetime:
    """Return the start of the week, Monday 00:00 UTC, of a time in epoch seconds."""
    day = datetime.fromtimestamp(epoch_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())
