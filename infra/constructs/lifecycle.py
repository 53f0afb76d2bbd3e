"""Follows a training job from its first status to its last."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.constructs.function import FunctionPlatform, FunctionSpec, TrainGuardFunction
from infra.constructs.ingest import Ingest
from infra.constructs.policy import allow, describe_training_jobs
from infra.constructs.settings import Settings
from infra.constructs.storage import Storage

_RETRY_HOURS = 6


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
            "JobLifecycle",
            platform=platform,
            spec=FunctionSpec(
                folder="job_lifecycle",
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
                    "JOBS_TABLE": storage.jobs.table_name,
                    "NODE_STATE_TABLE": storage.node_state.table_name,
                    "TASK_QUEUE_URL": ingest.evaluation_queue.queue_url,
                    "PROFILE_BUCKET": storage.bucket_name,
                    "FIRE_STATE_MACHINE_ARN": fire_machine_arn,
                    **settings.environment(),
                },
                timeout_s=60,
                memory_mib=platform.config.lifecycle_memory_mb,
                dead_letters=ingest.event_dead_letters,
            ),
        )
        self.job_lifecycle.function.configure_async_invoke(max_event_age=Duration.hours(_RETRY_HOURS), retry_attempts=2)
        events.Rule(
            self,
            "TrainingJobStateChanged",
            description="Tells TrainGuard when a training job starts, changes and ends",
            event_pattern=events.EventPattern(
                source=["aws.sagemaker"], detail_type=["SageMaker Training Job State Change"]
            ),
            targets=[
                targets.LambdaFunction(
                    self.job_lifecycle.function,
                    dead_letter_queue=ingest.event_dead_letters,
                    max_event_age=Duration.hours(_RETRY_HOURS),
                )
            ],
        )
