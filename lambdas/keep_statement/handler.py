"""Keeps what an account states of a job in the central tables, unless a later statement is there."""

import time
from typing import Any

import msgspec
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.central import DynamoCentralTables
from trainguard.aws.environment import load_environment
from trainguard.aws.observability import PowertoolsJournal
from trainguard.core.errors import StateCodecError
from trainguard.stack.organisation.statement import StatedEvent

logger = Logger()
metrics = Metrics()
environment = load_environment(("jobs_table", "rule_state_table"), function="keep_statement")
journal = PowertoolsJournal(logger=logger, metrics=metrics)
tables = DynamoCentralTables(client=Clients().dynamodb, jobs=environment.jobs_table, rows=environment.rule_state_table)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer whether it was kept; one that cannot be read is counted, as no repetition would help."""
    del context
    try:
        stated = msgspec.convert(event, StatedEvent)
        kept = tables.keep(stated, now=time.time())
    except (ValueError, StateCodecError) as fault:
        account = str(msgspec.convert(event, dict[str, Any]).get("account"))
        journal.count("bad_statements", account=account, reason=str(fault))
        return {"kept": False}
    if stated.detail.rows_left_out:
        journal.count("rows_left_out", stated.detail.rows_left_out, job=stated.name)
    journal.count("statements_kept" if kept else "statements_late", job=stated.name)
    return {"kept": kept}
