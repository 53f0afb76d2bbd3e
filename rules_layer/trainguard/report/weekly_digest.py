"""What the jobs that ended in one week wasted, and whose they were: for a mail once a week.

A job counts in the week in which it ended, and in no other: so no money is counted twice over the weeks. What still
runs is summed up beside it.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from trainguard.pricing.table import packaged_prices
from trainguard.records import JobRecord, RuleRow
from trainguard.report.fleet import Fleet
from trainguard.report.fleet_document import FleetOwner
from trainguard.report.fleet_facts import JobFacts
from trainguard.report.fleet_owners import owners_by_kind
from trainguard.report.fleet_sums import hours_of, monday_of, money_of, wasted_share_of, with_findings
from trainguard.timestamps import iso_time

SCHEMA_VERSION: Literal["1"] = "1"
JOBS_SHOWN = 10
OWNERS_SHOWN = 5
WEEK = timedelta(days=7)


class DigestSum(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs summed up; ``unpriced`` ones have no part in ``spent`` and ``lost``."""

    jobs: int
    judged: int
    with_findings: int
    instance_hours: float
    wasted_share: float | None
    spent: float | None
    lost: float | None
    unpriced: int


class DigestJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job with findings; ``owners`` is by kind, ``rules`` what wastes most first."""

    job: str
    status: str
    rules: list[str]
    wasted_share: float | None
    spent: float | None
    lost: float | None
    owners: dict[str, str]


class WeeklyDigest(msgspec.Struct, frozen=True, kw_only=True):
    """One week of a deployment.

    Attributes
    ----------
    monday, sunday : str
        The first and the last day of the week, in UTC.
    ended : DigestSum
        The jobs that ended in it.
    jobs : list of DigestJob
        Those with findings, that lost most first; bounded.
    owners : list of FleetOwner
        Users, teams and projects of jobs with findings, that lost most first; bounded, without weeks.
    running : DigestSum
        The jobs that run when the digest is made, from their start until now.
    """

    schema_version: Literal["1"] = SCHEMA_VERSION
    kind: Literal["digest"] = "digest"
    generated_at: str
    stack: str
    region: str
    monday: str
    sunday: str
    currency: str
    ended: DigestSum
    jobs: list[DigestJob]
    owners: list[FleetOwner]
    running: DigestSum


def last_week(now: float) -> datetime:
    """Return the Monday, 00:00 UTC, of the last week that is over at ``now``, epoch seconds."""
    return monday_of(now) - WEEK


def fleet_of_week(monday: datetime, *, stack: str, region: str) -> Fleet:
    """Return the jobs that may have a part in a week's digest, before their rows are read."""
    return Fleet(stack=stack, region=region, since=monday.timestamp())


def weekly_digest(
    fleet: Fleet, jobs: Iterable[tuple[JobRecord, Sequence[RuleRow]]], *, monday: datetime, now: float
) -> WeeklyDigest:
    """Return the digest of the week that begins on ``monday``, 00:00 UTC.

    Parameters
    ----------
    fleet : Fleet
    jobs : iterable of (JobRecord, rows)
        Jobs with their rows; those that the fleet does not want are passed over.
    monday : datetime
    now : float
        Epoch seconds at which the digest is made.
    """
    prices = packaged_prices() if fleet.prices is None else fleet.prices
    facts = [JobFacts.of(job, rows, prices) for job, rows in jobs if fleet.wants(job)]
    start, end = monday.timestamp(), (monday + WEEK).timestamp()
    ended = [each for each in facts if (at := _ended_at(each)) is not None and start <= at < end]
    return WeeklyDigest(
        generated_at=iso_time(now),
        stack=fleet.stack,
        region=fleet.region,
        monday=monday.astimezone(UTC).date().isoformat(),
        sunday=(monday + WEEK - timedelta(days=1)).astimezone(UTC).date().isoformat(),
        currency=prices.currency,
        ended=_sum(ended),
        jobs=[_job(each) for each in sorted(filter(lambda each: each.fired, ended), key=_waste)[:JOBS_SHOWN]],
        owners=[owner for owners in owners_by_kind(ended).values() for owner in _most_wasteful(owners)],
        running=_sum([each for each in facts if _ended_at(each) is None]),
    )


def _ended_at(facts: JobFacts) -> float | None:
    """Return when a job ended, epoch seconds; None while it runs."""
    if facts.job.ended_at is not None:
        return facts.job.ended_at
    return None if facts.job.active else facts.last_at


def _sum(facts: Sequence[JobFacts]) -> DigestSum:
    return DigestSum(
        jobs=len(facts),
        judged=sum(each.judged for each in facts),
        with_findings=with_findings(facts),
        instance_hours=hours_of(facts),
        wasted_share=wasted_share_of(facts),
        spent=money_of(each.spent for each in facts),
        lost=money_of(each.lost for each in facts),
        unpriced=sum(each.spent is None for each in facts),
    )


def _waste(facts: JobFacts) -> tuple[float, float, float, str]:
    return -(facts.lost or 0.0), -(facts.wasted_hours or 0.0), -(facts.wasted_share or 0.0), facts.job.job


def _job(facts: JobFacts) -> DigestJob:
    return DigestJob(
        job=facts.job.job,
        status=facts.job.status.value,
        rules=[row.rule for row in facts.fired],
        wasted_share=facts.wasted_share,
        spent=money_of([facts.spent]),
        lost=money_of([facts.lost]),
        owners=dict(facts.job.owners),
    )


def _most_wasteful(owners: Sequence[FleetOwner]) -> list[FleetOwner]:
    found = [msgspec.structs.replace(each, weeks=[]) for each in owners if each.with_findings]
    named = [each for each in found if each.name is not None]
    return named[:OWNERS_SHOWN] + found[len(named) :]
