"""Follows a training job from its first status to its last."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from constructs import Construct

from infra.constructs.function import Platform, TrainGuardFunction
from infra.constructs.policy import allow, describe_training_jobs


def build_lifecycle(stack: Construct, platform: Platform, fire_machine_arn: str) -> TrainGuardFunction:
    """Build `job_lifecycle`, behind SageMaker's state change events."""
    storage, queue = platform.storage, platform.ingest.evaluation_queue
    register = ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]
    scope = Construct(stack, "Lifecycle")
    lifecycle = TrainGuardFunction(
        scope,
        "job_lifecycle",
        platform=platform,
        statements=[
            allow("RegisterJobs", register, [storage.jobs.table_arn]),
            allow("FindNodes", ["dynamodb:Query"], [storage.node_state.table_arn]),
            allow("SendTasks", ["sqs:SendMessage"], [queue.queue_arn]),
            allow("StartExecutions", ["states:StartExecution"], [fire_machine_arn]),
            platform.settings.read(),
            describe_training_jobs(scope),
        ],
        environment={
            **storage.variables("JOBS_TABLE", "NODE_STATE_TABLE"),
            "TASK_QUEUE_URL": queue.queue_url,
            **storage.variables("PROFILE_BUCKET"),
            "FIRE_STATE_MACHINE_ARN": fire_machine_arn,
            **platform.settings.environment(),
        },
        timeout_s=60,
        memory_mib=platform.config.lifecycle_memory_mb,
        most_age=Duration.hours(6),
    )
    changed = events.EventPattern(source=["aws.sagemaker"], detail_type=["SageMaker Training Job State Change"])
    lifecycle.call_by_rule(
        "TrainingJobStateChanged",
        "Tells TrainGuard when a training job starts, changes and ends",
        pattern=changed,
    )
    return lifecycle
