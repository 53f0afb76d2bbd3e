"""Follows a training job from its first status to its last."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from constructs import Construct

from infra.constructs.function import FunctionPlatform, TrainGuardFunction
from infra.constructs.ingest import Ingest
from infra.constructs.policy import allow, describe_training_jobs
from infra.constructs.settings import Settings
from infra.constructs.storage import Storage

_MOST_AGE = Duration.hours(6)


class Lifecycle(Construct):
    """`job_lifecycle`, behind SageMaker's state change events."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        platform: FunctionPlatform,
        storage: Storage,
        ingest: Ingest,
        settings: Settings,
        fire_machine_arn: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self.job_lifecycle = TrainGuardFunction(
            self,
            "job_lifecycle",
            platform=platform,
            statements=[
                allow(
                    "RegisterJobs",
                    ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"],
                    [storage.jobs.table_arn],
                ),
                allow("FindNodes", ["dynamodb:Query"], [storage.node_state.table_arn]),
                allow("SendTasks", ["sqs:SendMessage"], [ingest.evaluation_queue.queue_arn]),
                allow("StartExecutions", ["states:StartExecution"], [fire_machine_arn]),
                settings.read(),
                describe_training_jobs(self),
            ],
            environment={
                **storage.variables("JOBS_TABLE", "NODE_STATE_TABLE"),
                "TASK_QUEUE_URL": ingest.evaluation_queue.queue_url,
                **storage.variables("PROFILE_BUCKET"),
                "FIRE_STATE_MACHINE_ARN": fire_machine_arn,
                **settings.environment(),
            },
            timeout_s=60,
            memory_mib=platform.config.lifecycle_memory_mb,
            dead_letters=ingest.event_dead_letters,
        )
        self.job_lifecycle.function.configure_async_invoke(max_event_age=_MOST_AGE, retry_attempts=2)
        changed = events.EventPattern(source=["aws.sagemaker"], detail_type=["SageMaker Training Job State Change"])
        self.job_lifecycle.call_by_rule(
            "TrainingJobStateChanged",
            "Tells TrainGuard when a training job starts, changes and ends",
            pattern=changed,
            most_age=_MOST_AGE,
        )
