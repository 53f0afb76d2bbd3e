"""Decides whether a fire may stop its training job, and takes one of the hour's stops for it."""

import os
import time
from dataclasses import replace
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.brakes import SsmBrakes
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.cluster_desk import DynamoClusterDesk
from trainguard.aws.dynamodb.fire_path import DynamoStopBudget, region_of
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.environment import load_environment
from trainguard.aws.sagemaker import SageMakerTrainingJobs
from trainguard.aws.ssm import SsmStopSwitch
from trainguard.aws.stop_limit import LambdaStopLimit
from trainguard.aws.stoppable import batch_jobs, instances
from trainguard.stack.actions.cluster_agents import resource_states
from trainguard.stack.actions.request import StopCase
from trainguard.stack.actions.stop_preconditions import StopPreconditions
from trainguard.stack.actions.stop_resources import StopServices, decide_within_stop_rate
from trainguard.stack.organisation.stop_limit import StopRequest, within_organisation

logger = Logger()
environment = load_environment(
    (
        "stop_switch_parameter",
        "stop_switch_override_parameter",
        "brakes_parameter",
        "jobs_table",
        "rule_state_table",
        "stop_budget_table",
        "max_stops_per_hour",
        "stoppable_resources",
    ),
    function="decide_stop",
)
clients = Clients()
training_jobs = SageMakerTrainingJobs(client=lambda: clients.sagemaker)
switch = SsmStopSwitch(
    client=clients.ssm,
    parameter=environment.stop_switch_parameter,
    override=environment.stop_switch_override_parameter,
)
brakes = SsmBrakes(client=lambda: clients.ssm, parameter=environment.brakes_parameter)
rows = DynamoRuleStates(client=clients.dynamodb, table=environment.rule_state_table)
jobs = DynamoJobs(client=clients.dynamodb, table=environment.jobs_table)
budget_region = region_of(environment.stop_budget_table)
budget_client = Clients(region=budget_region).dynamodb if budget_region else clients.dynamodb
budget = DynamoStopBudget(client=budget_client, table=environment.stop_budget_table)
desk = DynamoClusterDesk(client=clients.dynamodb, table=environment.rule_state_table)
limit = int(environment.max_stops_per_hour)
stop_limit = None
if function := os.environ.get("STOP_LIMIT_FUNCTION"):
    stop_limit = LambdaStopLimit(client=Clients(region=region_of(function)).questions, function=function)
services = StopServices(
    training_job=training_jobs.describe,
    resources={
        "batch-job": lambda identities: batch_jobs(clients.batch, identities),
        "instance": lambda identities: instances(clients.ec2, identities),
        "workload": lambda identities: resource_states(desk, "workload", identities, time.time()),
        "node": lambda identities: resource_states(desk, "node", identities, time.time()),
    },
    switches=lambda: replace(switch.read(), brakes=brakes.read()),
    kinds=frozenset(environment.stoppable_resources.split(",")) - {"none"},
)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with stop, decision, why, stopAt and optedIn; the log keeps every decision."""
    asker = context.invoked_function_arn
    case = msgspec.convert(event, StopCase)
    known = StopPreconditions.read(case, jobs, rows)
    decision = decide_within_stop_rate(
        case,
        services,
        budget,
        limit,
        known=known,
        now=time.time(),
        last_word=lambda decision, job: within_organisation(
            decision, StopRequest(asker, case.fire_id, job), stop_limit
        ),
    )
    answer: dict[str, Any] = msgspec.to_builtins(decision)
    logger.info("stop decision", extra={"job": case.job, "rule": case.rule, "fire_id": case.fire_id, **answer})
    return answer
