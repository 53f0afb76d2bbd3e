"""Puts the AWS adapters together for a function."""

import time

from trainguard.aws.brakes import KnownBrakes, SsmBrakes
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.bookkeeping import DynamoBookkeeping
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.node_states import DynamoNodeStates
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.environment import Environment
from trainguard.aws.lambda_invocations import LambdaInvocations
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.aws.sagemaker import SageMakerTrainingJobs
from trainguard.aws.sqs import SqsTaskQueue
from trainguard.aws.ssm import SsmSettingDocuments
from trainguard.aws.stepfunctions import StepFunctionsExecutions
from trainguard.core.ports import JobServices, Journal, Services
from trainguard.engine.family import Families
from trainguard.engine.jobs.job_registry import JobRegistry


def evaluation_services(
    environment: Environment, *, clients: Clients, journal: Journal, poll_function: str = ""
) -> Services:
    """Return the ports of an evaluator and of a job's evaluation; ``poll_function`` polls the sources of jobs."""
    client = clients.stepfunctions
    brakes = SsmBrakes(client=lambda: clients.ssm, parameter=environment.brakes_parameter)
    return Services(
        **vars(_job_services(environment, clients, journal)),
        rows=DynamoRuleStates(client=clients.dynamodb, table=environment.rule_state_table),
        bookkeeping=DynamoBookkeeping(client=clients.dynamodb, table=environment.bookkeeping_table),
        objects=S3ProfileObjects(client=clients.s3),
        reports=StepFunctionsExecutions(client=client, state_machine_arn=environment.report_state_machine_arn),
        captures=StepFunctionsExecutions(client=client, state_machine_arn=environment.kernels_state_machine_arn),
        polls=LambdaInvocations(client=clients.functions, function=poll_function) if poll_function else None,
        brakes=KnownBrakes(brakes, journal),
    )


def job_registry(environment: Environment, *, clients: Clients, journal: Journal, families: Families) -> JobRegistry:
    return JobRegistry(_job_services(environment, clients, journal), families, time.time)


def _job_services(environment: Environment, clients: Clients, journal: Journal) -> JobServices:
    return JobServices(
        jobs=DynamoJobs(client=clients.dynamodb, table=environment.jobs_table),
        nodes=DynamoNodeStates(client=clients.dynamodb, table=environment.node_state_table),
        executions=StepFunctionsExecutions(
            client=clients.stepfunctions, state_machine_arn=environment.fire_state_machine_arn
        ),
        training_jobs=SageMakerTrainingJobs(client=lambda: clients.sagemaker),
        tasks=SqsTaskQueue(client=clients.sqs, queue_url=environment.task_queue_url),
        journal=journal,
        settings=SsmSettingDocuments(
            client=lambda: clients.ssm, default=environment.default_settings_parameter, path=environment.settings_path
        ),
    )
