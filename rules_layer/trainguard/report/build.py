"""The ProfilerReport from state alone: seconds after a fire, and at the job's end.

One JSON file a rule with the five fields of the managed service, and ``report.json``, which holds everything.
"""

from collections.abc import Sequence
from typing import Any

from trainguard.engine.fires import iso_time
from trainguard.engine.job_verdicts import job_verdicts
from trainguard.engine.plan import RulePlan, plan_rules
from trainguard.engine.rows import parameters_shown, shown_status
from trainguard.engine.slots import Verdict
from trainguard.engine.streams import JobStreams, open_streams
from trainguard.records import JobRecord, NodeRecord
from trainguard.report.encode import encode_report
from trainguard.report.managed import managed_files

SCHEMA_VERSION = "1"
REPORT_NAME = "report.json"


def build_report(job: JobRecord, records: Sequence[NodeRecord], *, now: float) -> dict[str, bytes]:
    """Return the report's files by their name under the report's prefix.

    Parameters
    ----------
    job : JobRecord
    records : sequence of NodeRecord
        All items of the job.
    now : float
        Epoch seconds at which the report is made.
    """
    plan = plan_rules(job)
    streams = open_streams(job.job, plan, records)
    verdicts, _ = job_verdicts(job, plan, streams)
    files = managed_files(verdicts, plan)
    files[REPORT_NAME] = encode_report(_document(job, plan, streams, verdicts, now))
    return files


def _document(
    job: JobRecord, plan: RulePlan, streams: JobStreams, verdicts: Sequence[Verdict], now: float
) -> dict[str, Any]:
    fired = [verdict.rule for verdict in verdicts if verdict.episode.times_fired]
    return {
        "schema_version": SCHEMA_VERSION,
        "generated_at": iso_time(now),
        "final": job.closing and streams.closed,
        "healthy": not fired,
        "fired": fired,
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
