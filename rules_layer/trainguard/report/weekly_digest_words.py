"""A week's digest for people: the mail and the message for chats. Names of jobs and owners may be anybody's text."""

from collections.abc import Iterator
from typing import Any

from trainguard.plain_text import chat_line, mail_line
from trainguard.report.fleet_document import FleetOwner
from trainguard.report.weekly_digest import DigestJob, DigestSum, WeeklyDigest
from trainguard.rules.units import counted, show_percent

SUBJECT_LIMIT = 99
LONGEST_LINE = 400
_TITLE_LIMIT = 200
_PAGE = "All jobs on one page: trainguard report --fleet --since 14d"


def subject(digest: WeeklyDigest) -> str:
    """Return the mail's subject: ASCII without control characters, under 100 characters, as SNS demands."""
    said = f"TrainGuard: {_wasted(digest)} in the week of {digest.monday} ({digest.stack}, {digest.region})"
    return "".join(each if " " <= each <= "~" else "?" for each in said)[:SUBJECT_LIMIT]


def mail(digest: WeeklyDigest) -> str:
    """Return the text of the mail."""
    return "\n".join(mail_line(line, LONGEST_LINE) for line in _lines(digest))


def chat(digest: WeeklyDigest) -> dict[str, Any]:
    """Return the custom notification for chats (see `trainguard.actions.chat`)."""
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
        yield from (f"- {_job(each, digest.currency)}" for each in digest.jobs)
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


def _summed_up(jobs: DigestSum, currency: str, what: str) -> str:
    if not jobs.jobs:
        return "No job ended, so nothing is known to be wasted."
    said = f"{counted(jobs.jobs, 'job')} {what if jobs.jobs != 1 else what.replace('run', 'runs')}"
    if not jobs.judged:
        return f"{said}; no rule could judge any of them."
    found = f"{jobs.with_findings:,} of {jobs.judged:,} evaluated have findings"
    if not jobs.with_findings:
        return f"{said}; no rule has fired on the {jobs.judged:,} that were evaluated."
    share = "" if jobs.wasted_share is None else f", {show_percent(100.0 * jobs.wasted_share)} of the instance hours"
    if jobs.lost is None or jobs.spent is None:
        return f"{said}; {found}{share}. No price is known of any of them."
    unpriced = f" No price is known of {counted(jobs.unpriced, 'job')}." if jobs.unpriced else ""
    return f"{said}; {found}. They lost at least {currency} {jobs.lost:,.2f} of {jobs.spent:,.2f}{share}.{unpriced}"


def _job(job: DigestJob, currency: str) -> str:
    owners = ", ".join(f"{kind} {name}" for kind, name in job.owners.items())
    said = f"{job.job}: {_cost(job.lost, job.spent, job.wasted_share, currency)}; {', '.join(job.rules)}"
    return f"{said} ({owners})" if owners else said


def _owner(owner: FleetOwner, currency: str) -> str:
    name = f"no {owner.kind} named" if owner.name is None else owner.name
    jobs = f"{owner.with_findings:,} of {counted(owner.jobs, 'job')} with findings"
    return f"{name}: {_cost(owner.lost, owner.spent, owner.wasted_share, currency)}; {jobs}"


def _cost(lost: float | None, spent: float | None, share: float | None, currency: str) -> str:
    if lost is not None and spent is not None:
        return f"{currency} {lost:,.2f} of {spent:,.2f}"
    return "cost not known" if share is None else f"{show_percent(100.0 * share)} of its time"
