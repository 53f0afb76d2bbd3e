"""One effect for one fire or follow-up: the outbox, and the execution that each entry starts.

::

    evaluator                          store                            Step Functions
    ---------                          -----                            --------------
    save Version+1, Outbox += fire --> written or refused, as one
    start(name from fire) -----------------------------------------> started, or "exists already": both are success
    mark sent ---------------------->

A crash after the save leaves an unsent entry: whoever loads the item next drains it first. A repeated start is refused
by its name. All nodes of a job derive the same name for one rule and episode, so 128 firing nodes start one execution.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from trainguard.core.execution_input import entry_fields
from trainguard.core.finding import Finding
from trainguard.core.job_limits import LAST_EPISODE
from trainguard.core.links import report_links
from trainguard.core.ports import Executions, Journal
from trainguard.core.records import JOB_NODE, AlertKind, JobRecord, NodeRecord, OutboxEntry
from trainguard.core.stores import NodeStates
from trainguard.core.text import LONGEST_SENTENCE, one_line
from trainguard.core.timestamps import iso_time
from trainguard.engine.plan import RulePlan
from trainguard.engine.verdicts.episodes import fire_id
from trainguard.engine.verdicts.findings import finding_of
from trainguard.engine.verdicts.verdict import Fire, Reach, merged_episodes
from trainguard.ledger.document import ledger_facts
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import Account

NAME_LIMIT = 80
ADVICE_LIMIT = 500
LAST_FIRE = f"This is fire {LAST_EPISODE + 1} of the rule on this job, and the last one."

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def enqueue(record: NodeRecord, fires: Iterable[Fire], *, job: JobRecord, plan: RulePlan) -> NodeRecord:
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


def with_entries(record: NodeRecord, entries: Iterable[OutboxEntry]) -> NodeRecord:
    """Add entries to the record's outbox and drop those that are known to be sent; waiting ones stay."""
    outbox = {entry.alert_id: entry for entry in record.unsent}
    for entry in entries:
        outbox.setdefault(entry.alert_id, replace(entry, finding=_plain(entry.finding)))
    return replace(record, outbox=outbox)


def _plain(finding: Finding) -> Finding:
    """Return a finding with plain texts, no longer than an alert has room for."""
    return replace(
        finding,
        reason=one_line(finding.reason, LONGEST_SENTENCE),
        advice=None if finding.advice is None else one_line(finding.advice, ADVICE_LIMIT),
        episodes=tuple(episode.plain for episode in finding.episodes),
    )


def _finding(fire: Fire, record: NodeRecord, job: JobRecord, plan: RulePlan) -> Finding:
    """Return a fire's meaning by itself, on its node or, for a rule over the whole job, on all of them."""
    nodes = 1 if record.key.node != JOB_NODE else job.instance_count or 1
    account = Account(job.instance_type, job.started_at, fire.at, nodes, plan.prices)
    episodes = merged_episodes({record.key.node: fire.verdict}).episodes
    verdict = replace(fire.verdict, reach=Reach(nodes, nodes), merged=episodes)
    node = None if record.key.node == JOB_NODE else record.key.node
    found = finding_of(verdict, account, node, ledger=_priced(fire.ledger, account)).finding
    return with_ledger(found, fire.ledger)


def with_ledger(finding: Finding, ledger: Ledger | None) -> Finding:
    """Return a finding with the ledger among its facts."""
    if ledger is None or not ledger.nodes:
        return finding
    return replace(finding, facts=(*finding.facts, *ledger_facts(ledger.entries())))


def _priced(ledger: Ledger | None, account: Account) -> Ledger | None:
    """Return a node's ledger with the price of its instance: its stream does not know it."""
    hourly = None if account.instance_type is None else account.table.hourly(account.instance_type)
    return None if ledger is None else replace(ledger, hourly=hourly)


def drain(
    record: NodeRecord, *, job: JobRecord, executions: Executions, nodes: NodeStates, journal: Journal
) -> NodeRecord:
    """Start the execution of every unsent entry and mark it sent; a start that is refused by its name is success."""
    unsent = record.unsent
    if not unsent:
        return record
    for entry in unsent:
        started = executions.start(execution_name(entry, job.job), fire_payload(entry, job))
        what = "fires" if entry.kind is AlertKind.FIRE else "news"
        counted = f"{what}_started" if started else f"{what}_already_started"
        journal.count(counted, job=job.job, node=entry.finding.where, rule=entry.finding.rule, kind=entry.kind.value)
    nodes.mark_sent(record.key, [entry.alert_id for entry in unsent])
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
    """Return a fire's input about the job: its description and its owner's settings."""
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
    }
