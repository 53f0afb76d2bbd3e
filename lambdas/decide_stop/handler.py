"""Decides whether a fire may stop its training job, and takes one of the hour's stops for it."""

import time
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.fire_path import DynamoStopBudget, region_of
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.environment import DECISION, load_environment
from trainguard.aws.stoppable import central_limit, stop_services
from trainguard.stack.actions.request import StopCase
from trainguard.stack.actions.stop import StopPreconditions
from trainguard.stack.actions.stop_resources import decide_within_stop_rate
from trainguard.stack.organisation.stop_limit import within_organisation

logger = Logger()
environment = load_environment(DECISION, function="decide_stop")
clients = Clients()
rows = DynamoRuleStates(client=clients.dynamodb, table=environment.rule_state_table)
jobs = DynamoJobs(client=clients.dynamodb, table=environment.jobs_table)
limit = int(environment.max_stops_per_hour)
services = stop_services(environment, clients)
# The central account's table may lie in another Region.
table = environment.stop_budget_table
budget = DynamoStopBudget(client=clients.in_region(region_of(table)).dynamodb, table=table)
stop_limit = central_limit(clients)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with stop, decision, why, stopAt and optedIn; the log keeps every decision."""
    case = StopCase.read(event)
    known = StopPreconditions.read(case, jobs, rows)
    decision, identity = decide_within_stop_rate(case, services, budget, limit, known=known, now=time.time())
    decision = within_organisation(stop_limit, context.invoked_function_arn, case.fire_id, decision, identity)
    answer: dict[str, Any] = msgspec.to_builtins(decision)
    logger.info("stop decision", extra={"job": case.job, "rule": case.rule, "fire_id": case.fire_id, **answer})
    return answer
