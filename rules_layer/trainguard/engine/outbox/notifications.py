"""Notifications after a fire: its finding grew in severity, or is over.

The tick decides it from the verdicts of the whole job, and what it told last is stored in ``*#job`` with the outbox, in
one conditional write: so each is told once, and nothing is lost half-way. A finding's severity here is its own, as in
the alert of its fire; that it explains another finding makes it no graver, for of that one people are told too. Once a
job has ended its report says how each finding stands, and nothing more is told.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from trainguard.engine.outbox.fires import with_ledger
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobState, Notified
from trainguard.engine.verdicts.episodes import Liveness, fire_id
from trainguard.engine.verdicts.findings import finding_of
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.finding import Finding, Severity, severity_rank
from trainguard.job_limits import LAST_EPISODE
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import Account
from trainguard.records import AlertKind, JobRecord, OutboxEntry, Status


def due_notifications(
    job: JobRecord,
    plan: RulePlan,
    verdicts: Sequence[Verdict],
    account: Account,
    state: JobState,
    ledger: Callable[[], Ledger | None] = lambda: None,
) -> list[OutboxEntry]:
    """Return a job's due notifications, and record them in ``state``.

    ``ledger`` is asked where people are to be told something, or a finding could have grown in severity.
    """
    if job.closing or account.watermark_s is None:
        return []
    news: list[OutboxEntry] = []
    for verdict in verdicts:
        if verdict.history.alerted == plan.episode_of(verdict.rule):
            node = (verdict.result.worst or "").partition("/")[0] or None

            def found(verdict: Verdict = verdict, node: str | None = node) -> Finding:
                return finding_of(verdict, account, node, ledger=ledger()).finding

            news.extend(_of_finding(job, verdict, found, state, at=account.watermark_s))
    return [replace(entry, finding=with_ledger(entry.finding, ledger())) for entry in news]


def notified_cleared(state: JobState, rule: str, episode: int) -> bool:
    """Whether a notification said that the job's episode is over: a later condition is another episode."""
    notified = state.notified.get(rule)
    return notified is not None and notified.episode == episode and notified.cleared


def _of_finding(
    job: JobRecord, verdict: Verdict, found: Callable[[], Finding], state: JobState, *, at: float
) -> Iterator[OutboxEntry]:
    """Yield an escalation while the episode is open, and that it is over when it is: nothing once its rule has failed.

    Nothing while its nodes are silent, nor of what began after they fell silent: that has a fire of its own to come.
    Nobody is told that the last episode is over: of what comes after it no fire would tell.
    """
    rule, history = verdict.rule, verdict.history
    if verdict.liveness is not Liveness.KNOWN or verdict.result.status is Status.ERROR:
        return
    notified = state.notified.get(rule)
    if notified is None or notified.episode != history.alerted:
        notified = Notified(history.alerted, history.fired_at, history.alerted_severity or found().severity)
        state.notified[rule] = notified
    if history.is_open:
        if severity_rank(notified.severity) >= severity_rank(Severity.CRITICAL):
            return
        finding = found()
        if severity_rank(finding.severity) > severity_rank(notified.severity):
            previous, notified.severity = notified.severity, finding.severity
            yield _entry(job, verdict, finding, AlertKind.ESCALATION, at=at, previous_severity=previous)
    elif history.alerted < LAST_EPISODE and not notified.cleared:
        notified.cleared = True
        lasted_s = None if notified.since is None else max(at - notified.since, 0.0)
        yield _entry(job, verdict, found(), AlertKind.CLEARED, at=at, lasted_s=lasted_s)


def _entry(
    job: JobRecord,
    verdict: Verdict,
    finding: Finding,
    kind: AlertKind,
    *,
    at: float,
    previous_severity: str | None = None,
    lasted_s: float | None = None,
) -> OutboxEntry:
    return OutboxEntry(
        fire_id=fire_id(job.arn, verdict.rule, verdict.history.alerted),
        episode=verdict.history.alerted,
        enqueued_at=at,
        finding=replace(finding, episodes=finding.episodes[-1:]),
        kind=kind,
        previous_severity=previous_severity,
        lasted_s=lasted_s,
    )
