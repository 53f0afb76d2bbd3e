"""What the jobs that ended in one week wasted, and whose they were.

A job counts in the week in which it ended, and in no other, so that no money is counted twice over the weeks.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from trainguard.core.records import JobRecord, RuleRow
from trainguard.core.text import chat_line, mail_line
from trainguard.core.timestamps import iso_time
from trainguard.core.units import counted, show_percent
from trainguard.pricing.table import packaged_prices
from trainguard.report.fleet.document import FleetGroup, FleetJob
from trainguard.report.fleet.facts import JobFacts, fleet_job, group_of, monday_of, owners_by_kind
from trainguard.report.fleet.fleet import Fleet

SCHEMA_VERSION: Literal["1"] = "1"
JOBS_SHOWN = 10
OWNERS_SHOWN = 5
WEEK = timedelta(days=7)


class WeeklyDigest(msgspec.Struct, frozen=True, kw_only=True):
    """One week of a deployment, in UTC: ``jobs`` and ``owners`` are bounded, those that lost most come first."""

    schema_version: Literal["1"] = SCHEMA_VERSION
    kind: Literal["digest"] = "digest"
    generated_at: str
    stack: str
    region: str
    monday: str
    sunday: str
    currency: str
    ended: FleetGroup
    jobs: list[FleetJob]
    owners: list[FleetGroup]
    running: FleetGroup


def last_week(now: float) -> datetime:
    """Return the Monday, 00:00 UTC, of the last week that is over at ``now``, epoch seconds."""
    return monday_of(now) - WEEK


def fleet_of_week(monday: datetime, *, stack: str, region: str) -> Fleet:
    """Return the jobs that may have a part in a week's digest, before their rows are read."""
    return Fleet(stack=stack, region=region, since=monday.timestamp())


def weekly_digest(
    fleet: Fleet, jobs: Iterable[tuple[JobRecord, Sequence[RuleRow]]], *, monday: datetime, now: float
) -> WeeklyDigest:
    """Return the digest of the week from ``monday``, 00:00 UTC; ``now`` is in epoch seconds."""
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
        ended=group_of(ended),
        jobs=[fleet_job(each) for each in sorted(filter(lambda each: each.fired, ended), key=_waste)[:JOBS_SHOWN]],
        owners=[owner for owners in owners_by_kind(ended).values() for owner in _most_wasteful(owners)],
        running=group_of([each for each in facts if _ended_at(each) is None]),
    )


def _ended_at(facts: JobFacts) -> float | None:
    if facts.job.ended_at is not None:
        return facts.job.ended_at
    return None if facts.job.active else facts.last_at


def _waste(facts: JobFacts) -> tuple[float, float, float, str]:
    return -(facts.lost or 0.0), -(facts.wasted_hours or 0.0), -(facts.wasted_share or 0.0), facts.job.job


def _most_wasteful(owners: Sequence[FleetGroup]) -> list[FleetGroup]:
    found = [msgspec.structs.replace(each, weeks=[]) for each in owners if each.with_findings]
    named = [each for each in found if each.name is not None]
    return named[:OWNERS_SHOWN] + found[len(named) :]


SUBJECT_LIMIT = 99
LONGEST_LINE = 400
_TITLE_LIMIT = 200
_PAGE = "All jobs on one page: trainguard report --since 14d"


def subject(digest: WeeklyDigest) -> str:
    """Return the mail's subject: ASCII without control characters, under 100 characters, as SNS demands."""
    text = f"TrainGuard: {_wasted(digest)} in the week of {digest.monday} ({digest.stack}, {digest.region})"
    return "".join(each if " " <= each <= "~" else "?" for each in text)[:SUBJECT_LIMIT]


def mail(digest: WeeklyDigest) -> str:
    return "\n".join(mail_line(line, LONGEST_LINE) for line in _lines(digest))


def chat(digest: WeeklyDigest) -> dict[str, Any]:
    """Return the custom notification for chats (see `trainguard.stack.actions.wording`)."""
    lines = [chat_line(line, LONGEST_LINE) for line in _lines(digest)]
    title = chat_line(f"{_wasted(digest)} in the week of {digest.monday}", _TITLE_LIMIT)
    return {
        "version": "1.0",
        "source": "custom",
        "content": {"textType": "client-markdown", "title": f":bar_chart: {title}", "description": "\n".join(lines)},
        "metadata": {"summary": title, "eventType": "TrainGuard-digest", "additionalContext": {"Week": digest.monday}},
    }


def _wasted(digest: WeeklyDigest) -> str:
    ended = digest.ended
    if not ended.jobs:
        return "no job ended"
    if not ended.judged:
        return "no verdict on any job"
    if not ended.with_findings:
        return "nothing found"
    if ended.lost is not None:
        return f"{digest.currency} {ended.lost:,.2f} wasted"
    return f"{counted(ended.with_findings, 'job')} with findings"


def _lines(digest: WeeklyDigest) -> Iterator[str]:
    yield f"{digest.stack} in {digest.region}, Monday {digest.monday} to Sunday {digest.sunday} (UTC)."
    yield _summed_up(digest.ended, digest.currency, "ended")
    if digest.jobs:
        yield ""
        yield "What wasted most:"
        yield from (f"- {_words_job(each, digest.currency)}" for each in digest.jobs)
        left = digest.ended.with_findings - len(digest.jobs)
        if left:
            yield f"- {counted(left, 'more job')} with findings"
    for kind in dict.fromkeys(each.kind for each in digest.owners):
        yield ""
        yield f"By {kind}:"
        yield from (f"- {_owner(each, digest.currency)}" for each in digest.owners if each.kind == kind)
    yield ""
    if digest.running.jobs:
        yield _summed_up(digest.running, digest.currency, "run now")
    yield _PAGE


def _summed_up(jobs: FleetGroup, currency: str, what: str) -> str:
    if not jobs.jobs:
        return "No job ended, so nothing is known to be wasted."
    text = f"{counted(jobs.jobs, 'job')} {what if jobs.jobs != 1 else what.replace('run', 'runs')}"
    if not jobs.judged:
        return f"{text}; no rule could judge any of them."
    found = f"{jobs.with_findings:,} of {jobs.judged:,} evaluated have findings"
    if not jobs.with_findings:
        return f"{text}; no rule has fired on the {jobs.judged:,} that were evaluated."
    share = "" if jobs.wasted_share is None else f", {show_percent(100.0 * jobs.wasted_share)} of the instance hours"
    if jobs.lost is None or jobs.spent is None:
        return f"{text}; {found}{share}. No price is known of any of them."
    unpriced = f" No price is known of {counted(jobs.unpriced, 'job')}." if jobs.unpriced else ""
    return f"{text}; {found}. They lost at least {currency} {jobs.lost:,.2f} of {jobs.spent:,.2f}{share}.{unpriced}"


def _words_job(job: FleetJob, currency: str) -> str:
    owners = ", ".join(f"{kind} {name}" for kind, name in job.owners.items())
    text = f"{job.job}: {_cost(job.lost, job.spent, job.wasted_share, currency)}; {', '.join(job.fired)}"
    return f"{text} ({owners})" if owners else text


def _owner(owner: FleetGroup, currency: str) -> str:
    name = f"no {owner.kind} named" if owner.name is None else owner.name
    jobs = f"{owner.with_findings:,} of {counted(owner.jobs, 'job')} with findings"
    return f"{name}: {_cost(owner.lost, owner.spent, owner.wasted_share, currency)}; {jobs}"


def _cost(lost: float | None, spent: float | None, share: float | None, currency: str) -> str:
    if lost is not None and spent is not None:
        return f"{currency} {lost:,.2f} of {spent:,.2f}"
    return "cost not known" if share is None else f"{show_percent(100.0 * share)} of its time"
