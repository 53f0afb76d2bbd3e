"""Notifications after a fire: its finding grew in severity, or is over.

The scheduler decides it from the verdicts of the whole job. One conditional write stores the last notification in
``*#job`` with the outbox, so each is sent once. A finding's severity here is its own: another finding that it explains
is notified too. Once a job has ended its report says how each finding stands.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from zlib import crc32

from trainguard.core.finding import Finding, Severity, severity_rank
from trainguard.core.job_limits import LAST_EPISODE
from trainguard.core.records import AlertKind, JobRecord, OutboxEntry, Status
from trainguard.engine.outbox.fires import with_ledger
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobState, Notified
from trainguard.engine.verdicts.episodes import Liveness, fire_id
from trainguard.engine.verdicts.findings import finding_of
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import Account

MINUTE_S, ESCALATION_MINUTES = 60.0, 9
"""How often a look compares the severity of findings: that needs the whole ledger. A multiple of the minutes between
two looks at a job that is polled slowly.
"""


def compares_severity(job: str, now: float | None) -> bool:
    """Whether the look at ``now`` (epoch seconds) compares severity: one in nine, and each without a clock."""
    return now is None or (int(now // MINUTE_S) + crc32(job.encode())) % ESCALATION_MINUTES == 0


def due_notifications(
    job: JobRecord,
    plan: RulePlan,
    verdicts: Sequence[Verdict],
    account: Account,
    state: JobState,
    ledger: Callable[[], Ledger | None] = lambda: None,
    *,
    now: float | None = None,
) -> list[OutboxEntry]:
    """Return a job's due notifications, and record them in ``state``; ``now`` is in epoch seconds."""
    if job.closing or account.watermark_s is None:
        return []
    follow_ups: list[OutboxEntry] = []
    for verdict in verdicts:
        if verdict.history.alerted == plan.episode_of(verdict.rule):
            node = (verdict.result.worst or "").partition("/")[0] or None

            def found(verdict: Verdict = verdict, node: str | None = node) -> Finding:
                return finding_of(verdict, account, node, ledger=ledger()).finding

            at, escalates = account.watermark_s, compares_severity(job.job, now)
            follow_ups.extend(_of_finding(job, verdict, found, state, at=at, escalates=escalates))
    return [replace(entry, finding=with_ledger(entry.finding, ledger())) for entry in follow_ups]


def notified_cleared(state: JobState, rule: str, episode: int) -> bool:
    """Whether a notification said that the job's episode is over: a later condition is another episode."""
    notified = state.notified.get(rule)
    return notified is not None and notified.episode == episode and notified.cleared


def _of_finding(
    job: JobRecord, verdict: Verdict, found: Callable[[], Finding], state: JobState, *, at: float, escalates: bool
) -> Iterator[OutboxEntry]:
    """Yield an escalation while the episode is open, and that it is over; nothing once its rule has failed.

    Nothing while its nodes are silent, nor of what began after they fell silent: that gets a fire of its own. Nobody is
    notified that the last episode is over: no fire would report what comes after it.
    """
    rule, history = verdict.rule, verdict.history
    if verdict.liveness is not Liveness.KNOWN or verdict.result.status is Status.ERROR:
        return
    notified = state.notified.get(rule)
    if notified is None or notified.episode != history.alerted:
        notified = Notified(history.alerted, history.fired_at, history.alerted_severity or found().severity)
        state.notified[rule] = notified
    if history.is_open:
        if not escalates or severity_rank(notified.severity) >= severity_rank(Severity.CRITICAL):
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
