"""The rows of a job that was evaluated at once: those that the deployed stack leaves at the job's end."""

from trainguard.engine.diagnosis.case import case_of
from trainguard.engine.outbox.rows import RowContext, rule_row
from trainguard.engine.streams.job_streams import JobStreams
from trainguard.engine.summary import job_rows
from trainguard.engine.verdicts.final import final
from trainguard.families.installed import FAMILIES
from trainguard.local.engine import Evaluation
from trainguard.pricing.cost import Account
from trainguard.records import RuleRow, StreamKey


def evaluation_rows(evaluation: Evaluation, *, expires_at: int) -> list[RuleRow]:
    """Return the rows of every node, then those of the whole job, the report's last.

    ``expires_at`` (epoch seconds) says of each row that its job is closed, and when it may be deleted.
    """
    job, plan = evaluation.job, evaluation.plan
    streams = FAMILIES.open(job.job, plan, evaluation.records)
    rows = [row for key in streams.records for row in _node_rows(evaluation, streams, key, expires_at)]
    case, _ = case_of(job, plan, streams)
    context = RowContext(
        job=job.job,
        node=None,
        plan=plan,
        watermark_s=streams.watermark_s,
        counters=streams.counters,
        last_fault=streams.last_fault,
        expires_at=expires_at,
        account=case.account,
        ledger=lambda: case.ledger,
    )
    return [*rows, *job_rows(context, case)]


def _node_rows(evaluation: Evaluation, streams: JobStreams, key: StreamKey, expires_at: int) -> list[RuleRow]:
    job, plan = evaluation.job, evaluation.plan
    stream = streams.stream_of(key)
    context = RowContext(
        job=job.job,
        node=key.node,
        plan=plan,
        watermark_s=stream.state.watermark_s,
        counters=streams.records[key].counters,
        last_fault=stream.state.last_fault,
        expires_at=expires_at,
        account=(account := Account(job.instance_type, job.started_at, stream.state.watermark_s, 1, plan.prices)),
        ledger=lambda: stream.ledger(account),
    )
    verdicts = [final(verdict, context.watermark_s) for verdict in stream.verdicts(closed=True)]
    return [rule_row(context, verdict) for verdict in verdicts]
