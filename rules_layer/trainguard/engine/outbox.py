"""What leaves the engine: an execution for each fire or follow-up, by the outbox of an item, and the rows of verdicts.

::

    evaluator                          store                            Step Functions
    ---------                          -----                            --------------
    save Version+1, Outbox += fire --> written or refused, as one
    start(name from fire) -----------------------------------------> started, or "exists already": both are success
    mark sent ---------------------->

A crash after the save leaves an unsent entry: whoever loads the item next drains it first. A repeated start is refused
by its name. All nodes of a job derive the same name for one rule and episode, so 128 firing nodes start one execution.

The scheduler decides on follow-ups from the verdicts of the whole job: a finding grew in severity, its cause became
known after its fire, or it is over. One
conditional write stores the last notification in ``*#job`` with the outbox, so each is sent once. A finding's severity
here is its own: another finding that it explains is notified too. Once a job has ended its report says how each stands.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import msgspec

from trainguard.core.finding import Finding, Severity, severity_rank
from trainguard.core.job_policy import LAST_EPISODE
from trainguard.core.layout import report_links
from trainguard.core.ports import Services
from trainguard.core.records import (
    JOB_NODE,
    AlertKind,
    JobRecord,
    OutboxEntry,
    RuleRow,
    Status,
    StreamRecord,
    entry_fields,
)
from trainguard.core.text import LONGEST_SENTENCE, one_line
from trainguard.core.timestamps import iso_time
from trainguard.core.units import faults_counted
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobState, Notified
from trainguard.engine.streams.session import DEGRADED, HARMLESS_COUNTERS, AnyStream
from trainguard.engine.verdicts.episodes import Liveness, fire_id
from trainguard.engine.verdicts.findings import RankedFinding, finding_of
from trainguard.engine.verdicts.verdict import Fire, RuleOutcome, merged_episodes, shown_status
from trainguard.ledger.document import ledger_facts
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import PaidTime
from trainguard.rules.registry import spec_of

NAME_LIMIT = 80
ADVICE_LIMIT = 500
LAST_FIRE = f"This is fire {LAST_EPISODE + 1} of the rule on this job, and the last one."

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def enqueue(record: StreamRecord, fires: Iterable[Fire], *, job: JobRecord, plan: RulePlan) -> StreamRecord:
    """Add fires to the record's outbox and drop entries that are known to be sent."""
    entries = []
    for fire in fires:
        rule = fire.verdict.rule
        episode = plan.episode_of(rule)
        identity, finding = fire_id(job.arn, rule, episode), _finding(fire, record, job, plan)
        if episode >= LAST_EPISODE:
            finding = replace(finding, advice=" ".join((LAST_FIRE, finding.advice or "")).strip())
        entries.append(OutboxEntry(fire_id=identity, episode=episode, enqueued_at=fire.at, finding=finding))
    return with_entries(record, entries)


def with_entries(record: StreamRecord, entries: Iterable[OutboxEntry]) -> StreamRecord:
    """Add entries to the record's outbox and drop those that are known to be sent; waiting ones stay."""
    outbox = {entry.alert_id: entry for entry in record.unsent}
    for entry in entries:
        finding = entry.finding
        plain = replace(
            finding,
            reason=one_line(finding.reason, LONGEST_SENTENCE),
            advice=None if finding.advice is None else one_line(finding.advice, ADVICE_LIMIT),
            episodes=tuple(episode.plain for episode in finding.episodes),
        )
        outbox.setdefault(entry.alert_id, replace(entry, finding=plain))
    return replace(record, outbox=outbox)


def _finding(fire: Fire, record: StreamRecord, job: JobRecord, plan: RulePlan) -> Finding:
    """Return a fire's meaning by itself, on its node or, for a rule over the whole job, on all of them."""
    nodes = 1 if record.key.node != JOB_NODE else job.instance_count or 1
    paid_time = PaidTime(job.instance_type, job.started_at, fire.at, nodes, plan.prices)
    episodes, _ = merged_episodes({record.key.node: fire.verdict})
    verdict = replace(fire.verdict, reach=(nodes, nodes), merged=episodes)
    node = None if record.key.node == JOB_NODE else record.key.node
    # A node's stream does not know the price of its instance.
    ledger = None if fire.ledger is None else replace(fire.ledger, hourly=paid_time.hourly)
    found = finding_of(verdict, paid_time, node, ledger=ledger).finding
    return with_ledger(found, fire.ledger)


def with_ledger(finding: Finding, ledger: Ledger | None) -> Finding:
    if ledger is None or not ledger.nodes:
        return finding
    return replace(finding, facts=(*finding.facts, *ledger_facts(ledger.entries())))


def drain(record: StreamRecord, job: JobRecord, services: Services) -> StreamRecord:
    """Start the execution of every unsent entry and mark it sent; a start that is refused by its name is success."""
    unsent = record.unsent
    if not unsent:
        return record
    for entry in unsent:
        started = services.executions.start(execution_name(entry, job.job), fire_payload(entry, job))
        kind = "fires" if entry.kind is AlertKind.FIRE else "news"
        counted = f"{kind}_started" if started else f"{kind}_already_started"
        finding = entry.finding
        services.journal.count(
            counted,
            job=job.job,
            node=finding.where,
            rule=finding.rule,
            kind=entry.kind.value,
            severity=finding.severity.value if finding.severity else "unknown",
        )
    services.nodes.mark_sent(record.key, [entry.alert_id for entry in unsent])
    sent = {entry.alert_id: replace(entry, sent=True) for entry in unsent}
    return replace(record, outbox={**record.outbox, **sent})


def execution_name(entry: OutboxEntry, job: str) -> str:
    """Return the execution's name: rule, alert id and as much of the job's name as fits into 80 characters."""
    return name_of_execution(f"{entry.finding.rule}-{entry.alert_id}-{job}")


def name_of_execution(words: str) -> str:
    """Return words as Step Functions accepts them for a name: other characters become hyphens."""
    return _NOT_IN_NAMES.sub("-", words)[:NAME_LIMIT]


def fire_payload(entry: OutboxEntry, job: JobRecord) -> Mapping[str, object]:
    """Return the execution's input; the same for every repeat of one entry."""
    return {**job_payload(job), **entry_fields(entry)}


def job_payload(job: JobRecord) -> dict[str, object]:
    links = report_links(job=job.job, arn=job.arn, bucket=job.bucket, prefix=job.prefix)
    return {
        "job": job.job,
        "jobArn": job.arn,
        "jobCreatedAt": None if job.created_at is None else iso_time(job.created_at),
        "tuningJob": job.tuning_job,
        "policy": msgspec.to_builtins(job.policy),
        "bucket": job.bucket,
        "prefix": job.prefix,
        "reportUri": links.document,
        "reportPage": links.page,
        "reportLink": links.console,
        **({"runLinks": dict(job.run_links)} if job.run_links else {}),
        **({"canary": True} if job.canary else {}),
    }


# Minutes between comparisons of the severity of findings, which need the whole ledger. A multiple of the minutes
# between two reconciliations of a job that is polled slowly.
MINUTE_S, ESCALATION_MINUTES = 60.0, 9


def compares_severity(job: str, now: float | None) -> bool:
    """Whether severity is compared at ``now``, epoch seconds: one time in nine, and each without a clock."""
    return now is None or (int(now // MINUTE_S) + crc32(job.encode())) % ESCALATION_MINUTES == 0


def due_notifications(
    job: JobRecord,
    plan: RulePlan,
    verdicts: Sequence[RuleOutcome],
    paid_time: PaidTime,
    state: JobState,
    ledger: Callable[[], Ledger | None] = lambda: None,
    *,
    now: float | None = None,
) -> list[OutboxEntry]:
    """Return a job's due notifications, and record them in ``state``; ``now`` is in epoch seconds."""
    if job.closing or paid_time.watermark_s is None:
        return []
    follow_ups: list[OutboxEntry] = []
    for verdict in verdicts:
        if verdict.history.alerted == plan.episode_of(verdict.rule):
            node = (verdict.result.worst or "").partition("/")[0] or None

            def found(verdict: RuleOutcome = verdict, node: str | None = node) -> Finding:
                return finding_of(verdict, paid_time, node, ledger=ledger()).finding

            at, escalates = paid_time.watermark_s, compares_severity(job.job, now)
            follow_ups.extend(_of_finding(job, verdict, found, state, at=at, escalates=escalates))
    return [replace(entry, finding=with_ledger(entry.finding, ledger())) for entry in follow_ups]


def notified_cleared(state: JobState, rule: str, episode: int) -> bool:
    """Whether a notification said that the job's episode is over: a later condition is another episode."""
    notified = state.notified.get(rule)
    return notified is not None and notified.episode == episode and notified.cleared


def _of_finding(
    job: JobRecord, verdict: RuleOutcome, found: Callable[[], Finding], state: JobState, *, at: float, escalates: bool
) -> Iterator[OutboxEntry]:
    """Yield an escalation, and what the cause is, while the episode is open, and that it is over.

    Nothing once its rule has failed.

    Nothing while its nodes are silent, nor of what began after they fell silent: that gets a fire of its own. Nobody is
    notified that the last episode is over: no fire would report what comes after it.
    """
    rule, history = verdict.rule, verdict.history
    if verdict.liveness is not Liveness.KNOWN or verdict.result.status is Status.ERROR:
        return
    notified = state.notified.get(rule)
    if notified is None or notified.episode != history.alerted:
        severity, has_cause = history.alerted_severity or found().severity, bool(verdict.result.cause)
        notified = Notified(history.alerted, history.fired_at, severity, has_cause=has_cause)
        state.notified[rule] = notified
    if history.is_open:
        if verdict.result.cause and not notified.has_cause:
            notified.has_cause = True
            yield _follow_up(job, verdict, found(), AlertKind.CAUSE, at=at)
        if not escalates or severity_rank(notified.severity) >= severity_rank(Severity.CRITICAL):
            return
        finding = found()
        if severity_rank(finding.severity) > severity_rank(notified.severity):
            previous, notified.severity = notified.severity, finding.severity
            yield _follow_up(job, verdict, finding, AlertKind.ESCALATION, at=at, previous_severity=previous)
    elif history.alerted < LAST_EPISODE and not notified.cleared:
        notified.cleared = True
        lasted_s = None if notified.since is None else max(at - notified.since, 0.0)
        yield _follow_up(job, verdict, found(), AlertKind.CLEARED, at=at, lasted_s=lasted_s)


def _follow_up(
    job: JobRecord,
    verdict: RuleOutcome,
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


LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class RowContext:
    """Common parts of a stream's rows; ``node`` None: the whole job. ``ledger`` gives None where no GPU is known."""

    job: str
    node: str | None
    plan: RulePlan
    watermark_s: float | None
    counters: Mapping[str, int]
    last_fault: str | None
    expires_at: int | None
    paid_time: PaidTime
    generation: int = 0
    ledger: Callable[[], Ledger | None] = lambda: None


def unit_context(
    job: JobRecord, plan: RulePlan, record: StreamRecord, stream: AnyStream, expires_at: int | None
) -> RowContext:
    """Return the common parts of the rows of a unit's stream."""
    watermark_s = stream.state.watermark_s
    paid_time = PaidTime(job.instance_type, job.started_at, watermark_s, 1, plan.prices)
    return RowContext(
        job=job.job,
        node=record.key.node,
        plan=plan,
        watermark_s=watermark_s,
        counters=record.counters,
        last_fault=stream.state.last_fault,
        expires_at=expires_at,
        paid_time=paid_time,
        generation=job.generation,
        ledger=lambda: stream.ledger(paid_time),
    )


def rule_row(context: RowContext, verdict: RuleOutcome, ranked: RankedFinding | None = None) -> RuleRow:
    """Build the row of a rule; it stays FIRED while an episode is open, so that it does not flap."""
    result, history = verdict.result, verdict.history
    measure = spec_of(verdict.rule).measure_of(result)
    status = shown_status(verdict)
    parameters = context.plan.parameters.get(verdict.rule)
    if ranked is None and (history.times_fired or status is Status.FIRED):
        ranked = finding_of(verdict, context.paid_time, ledger=context.ledger())
    unused = {name: amount for name, amount in context.counters.items() if name not in HARMLESS_COUNTERS}
    fired = None if status is not Status.FIRED else ranked
    return RuleRow(
        job=context.job,
        finding=_row_finding(context, verdict, ranked, unused),
        status=status,
        quantity=None if measure is None else _shown_line(measure.what, LONGEST_NAME),
        unit=None if measure is None else _shown_line(measure.unit or None, LONGEST_NAME),
        worst=_shown_line(result.worst, LONGEST_NAME),
        data_points=result.data_points,
        progress=result.progress,
        affected_percent=None if fired is None else fired.affected_percent,
        wasted_percent=None if ranked is None else ranked.wasted_percent,
        violations=history.violations,
        times_fired=history.times_fired,
        evaluated_through=context.watermark_s,
        fired_at=history.fired_at,
        counters=unused,
        parameters={} if parameters is None else parameters.as_given(),
        expires_at=context.expires_at,
        generation=context.generation,
        earlier_episodes=verdict.earlier_episodes,
    )


def _row_finding(
    context: RowContext, verdict: RuleOutcome, ranked: RankedFinding | None, unused: Mapping[str, int]
) -> Finding:
    """Return what the row says: of a finding that is over, its episodes alone, beside what the rule says now."""
    reason = verdict.result.reason + _counted(unused, context.last_fault)
    finding = verdict.finding_on(context.node, one_line(reason, LONGEST_SENTENCE))
    if ranked is not None:
        node, episodes = context.node, ranked.episodes
        placed = episodes if node is None else (replace(each, nodes=(node,)) for each in episodes)
        finding = replace(finding, episodes=tuple(each.plain for each in placed))
    if ranked is None or shown_status(verdict) is not Status.FIRED:
        return finding
    found = ranked.finding
    return replace(
        finding, severity=found.severity, advice=_shown_line(found.advice, LONGEST_SENTENCE), cost=found.cost
    )


def _shown_line(text: str | None, longest: int) -> str | None:
    return None if text is None else one_line(text, longest)


def _counted(counters: Mapping[str, int], last_fault: str | None) -> str:
    degraded = sorted(name for name in counters if name.startswith(DEGRADED))
    unused = [faults_counted(amount, name) for name, amount in sorted(counters.items()) if name not in degraded]
    sentences = ""
    if unused:
        sentences += f" Not used: {', '.join(unused)}" + (f" (last: {last_fault})." if last_fault else ".")
    if degraded:
        sentences += f" State {', '.join(degraded)}: the item had reached its cap."
    return sentences


def parameters_shown(plan: RulePlan, rule: str) -> dict[str, Any]:
    """Return the parameters that a rule runs with; empty when its configuration is at fault."""
    parameters = plan.parameters.get(rule)
    return {} if parameters is None else parameters.in_force()
