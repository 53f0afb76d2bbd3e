"""Decides whether a fire may stop its training job, and takes one of the hour's stops for it."""

import os
import time
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.cluster_desk import DynamoClusterDesk
from trainguard.aws.dynamodb.fire_path import DynamoStopBudget, region_of
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.environment import load_environment
from trainguard.aws.stop_limit import LambdaStopLimit
from trainguard.aws.stoppable import stop_services
from trainguard.stack.actions.request import StopCase, StopDecision
from trainguard.stack.actions.stop import StopPreconditions
from trainguard.stack.actions.stop_resources import decide_within_stop_rate
from trainguard.stack.organisation.stop_limit import StopRequest, within_organisation

logger = Logger()
environment = load_environment(
    (
        "stop_switch_parameter",
        "stop_switch_override_parameter",
        "brakes_parameter",
        "jobs_table",
        "rule_state_table",
        "bookkeeping_table",
        "stop_budget_table",
        "max_stops_per_hour",
        "stoppable_resources",
    ),
    function="decide_stop",
)
clients = Clients()
rows = DynamoRuleStates(client=clients.dynamodb, table=environment.rule_state_table)
jobs = DynamoJobs(client=clients.dynamodb, table=environment.jobs_table)
desk = DynamoClusterDesk(client=clients.dynamodb, table=environment.bookkeeping_table)
limit = int(environment.max_stops_per_hour)
services = stop_services(environment, clients, desk)
# The central account's table and function may lie in another Region.
table, function = environment.stop_budget_table, os.environ.get("STOP_LIMIT_FUNCTION")
budget = DynamoStopBudget(client=clients.in_region(region_of(table)).dynamodb, table=table)
stop_limit = None
if function:
    stop_limit = LambdaStopLimit(client=clients.in_region(region_of(function)).questions, function=function)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with stop, decision, why, stopAt and optedIn; the log keeps every decision."""
    case = msgspec.convert(event, StopCase)

    def last_word(decision: StopDecision, job: str) -> StopDecision:
        return within_organisation(decision, StopRequest(context.invoked_function_arn, case.fire_id, job), stop_limit)

    decision = decide_within_stop_rate(
        case,
        services,
        budget,
        limit,
        known=StopPreconditions.read(case, jobs, rows),
        now=time.time(),
        last_word=last_word,
    )
    answer: dict[str, Any] = msgspec.to_builtins(decision)
    logger.info("stop decision", extra={"job": case.job, "rule": case.rule, "fire_id": case.fire_id, **answer})
    return answer
