"""The ProfilerReport from state alone: seconds after a fire, and at the job's end.

One JSON file a rule with the five fields of the managed service, and ``report.json``, which holds everything.
"""

from collections.abc import Sequence
from typing import Any

from trainguard.engine.findings import Finding, rank_findings
from trainguard.engine.fires import iso_time
from trainguard.engine.job_verdicts import account_of, job_verdicts
from trainguard.engine.plan import RulePlan, plan_rules
from trainguard.engine.profiler_report import sentence
from trainguard.engine.rows import parameters_shown
from trainguard.engine.slots import Verdict, shown_status
from trainguard.engine.streams import JobStreams, open_streams
from trainguard.pricing.cost import Account, Bill, Cost
from trainguard.records import JobRecord, NodeRecord
from trainguard.report.encode import encode_report
from trainguard.report.managed import managed_files

SCHEMA_VERSION = "1"
REPORT_NAME = "report.json"


def build_report(
    job: JobRecord, records: Sequence[NodeRecord], *, now: float, plan: RulePlan | None = None
) -> dict[str, bytes]:
    """Return the report's files by their name under the report's prefix.

    Parameters
    ----------
    job : JobRecord
    records : sequence of NodeRecord
        All items of the job.
    now : float
        Epoch seconds at which the report is made.
    plan : RulePlan, optional
        The rules with which the items were made; by default the job's own.
    """
    plan = plan_rules(job) if plan is None else plan
    streams = open_streams(job.job, plan, records)
    verdicts, _ = job_verdicts(job, plan, streams)
    files = managed_files(verdicts, plan)
    files[REPORT_NAME] = encode_report(_document(job, plan, streams, verdicts, now))
    return files


def _document(
    job: JobRecord, plan: RulePlan, streams: JobStreams, verdicts: Sequence[Verdict], now: float
) -> dict[str, Any]:
    fired = [verdict.rule for verdict in verdicts if verdict.episode.times_fired]
    account = account_of(job, plan, streams)
    findings = rank_findings(verdicts, account)
    return {
        "schema_version": SCHEMA_VERSION,
        "generated_at": iso_time(now),
        "final": job.closing and streams.closed,
        "healthy": not fired,
        "verdict": sentence(verdicts, findings),
        "fired": fired,
        "findings": [_finding(finding) for finding in findings],
        "cost": _spent(account),
        "job": {
            "name": job.job,
            "arn": job.arn,
            "status": job.status.value,
            "instance_type": job.instance_type,
            "instance_count": job.instance_count,
            "started_at": _time(job.started_at),
            "ended_at": _time(job.ended_at),
            "evaluated_through": _time(streams.through),
        },
        "rules": [_rule(verdict, plan) for verdict in verdicts],
        "nodes": [_node(record, streams) for record in streams.records.values()],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    affected, of = finding.nodes
    return {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "score": round(finding.score, 1),
        "ongoing": finding.ongoing,
        "affected_share": finding.affected_share,
        "wasted_share": finding.wasted_share,
        "worst": finding.worst,
        "nodes_affected": affected,
        "nodes": of,
        "reason": finding.reason,
        "advice": finding.advice,
        "cost": None if finding.cost is None else _cost(finding.cost),
        "explained_by": finding.explained_by,
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "lost": round(cost.lost, 2),
        "spent": round(cost.spent, 2),
        "currency": cost.currency,
        "sentence": str(cost),
    }


def _spent(account: Account) -> dict[str, Any]:
    """Say what the job has cost so far, or in a note why that is not known."""
    bill = account.bill()
    if not isinstance(bill, Bill):
        return {"spent": None, "note": f"No money is told: {bill.why}."}
    note = f"{bill.nodes} x {bill.hours:.2f} h at {bill.currency} {bill.hourly:g} an hour ({bill.origin})."
    return {"spent": round(bill.spent, 2), "currency": bill.currency, "note": note}


def _rule(verdict: Verdict, plan: RulePlan) -> dict[str, Any]:
    judgement, episode = verdict.judgement, verdict.episode
    return {
        "rule": verdict.rule,
        "status": shown_status(verdict).value,
        "reason": judgement.reason,
        "measured": judgement.measured,
        "threshold": judgement.threshold,
        "worst": judgement.worst,
        "times_fired": episode.times_fired,
        "violations": episode.violations,
        "data_points": judgement.data_points,
        "fired_at": _time(episode.fired_at),
        "parameters": parameters_shown(plan, verdict.rule),
        "details": judgement.details,
    }


def _node(record: NodeRecord, streams: JobStreams) -> dict[str, Any]:
    stream = (streams.system if record.key.stream == "system" else streams.framework)[record.key.node]
    return {
        "node": record.key.node,
        "stream": record.key.stream,
        "evaluated_through": _time(record.through),
        "closed": record.closed,
        "counters": dict(record.counters),
        "last_fault": stream.state.last_fault,
    }


def _time(epoch_s: float | None) -> str | None:
    return None if epoch_s is None else iso_time(epoch_s)
