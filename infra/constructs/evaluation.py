"""The functions that bring the rules' state up to date: at each message, and once a minute for each active job."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import overlay
from infra.constructs.function import FunctionPlatform, FunctionSpec, TrainGuardFunction
from infra.constructs.ingest import Ingest
from infra.constructs.policy import allow, describe_training_jobs
from infra.constructs.settings import Settings
from infra.constructs.storage import Storage
from trainguard.engine.installed import FAMILIES

EVALUATOR_TIMEOUT_S = 60
BATCH_SIZE = 100

MESSAGE_VISIBILITY_S = 6 * EVALUATOR_TIMEOUT_S + overlay.AWS.batching_window_s
"""A message stays hidden once received for six evaluations, as Lambda recommends, and the batch's window."""

_SCHEDULER_TIMEOUT_S = 60
_LOOK_TIMEOUT_S = 60
_LEAST_EVENT_AGE_S = 60


@dataclass(frozen=True, slots=True)
class Machines:
    """State machines, by their ARNs, and the function that polls sources of jobs, which an evaluation may start."""

    fire_arn: str
    report_arn: str
    kernels_arn: str
    poll_source: TrainGuardFunction | None = None


class Evaluation(Construct):
    """`evaluate_objects` behind its queue, `scheduler` behind a clock, and `reconcile_job` behind `scheduler`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        platform: FunctionPlatform,
        storage: Storage,
        ingest: Ingest,
        settings: Settings,
        machines: Machines,
    ) -> None:
        super().__init__(scope, construct_id)
        self._platform = platform
        self._storage = storage
        self._settings = settings
        self._machines = machines
        self.evaluate_objects = self._build_evaluate_objects(ingest.evaluation_queue)
        self.reconcile_job = self._build_reconcile_job(ingest)
        self.scheduler = self._build_scheduler(ingest)

    def _build_evaluate_objects(self, evaluation_queue: sqs.Queue) -> TrainGuardFunction:
        evaluate = TrainGuardFunction(
            self,
            "EvaluateObjects",
            platform=self._platform,
            spec=FunctionSpec(
                folder="evaluate_objects",
                statements=[
                    allow(
                        "ReceiveDoorbells",
                        ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"],
                        [evaluation_queue.queue_arn],
                    ),
                    allow(
                        "ReadProfileObjects",
                        ["s3:GetObject"],
                        [f"{self._storage.bucket_arn}/{keys}" for family in FAMILIES for keys in family.reads],
                    ),
                    allow(
                        "RegisterJobs",
                        ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"],
                        [self._storage.jobs.table_arn],
                    ),
                    allow(
                        "UpdateNodeState",
                        ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:Query"],
                        [self._storage.node_state.table_arn],
                    ),
                    allow("JudgeCaptures", ["states:StartExecution"], [self._machines.kernels_arn]),
                    *self._evaluation_statements(evaluation_queue),
                ],
                environment=self._environment(evaluation_queue),
                timeout_s=EVALUATOR_TIMEOUT_S,
                memory_mib=self._platform.config.evaluator_memory_mb,
            ),
        )
        lambda_.EventSourceMapping(
            self,
            "DoorbellsToEvaluateObjects",
            target=evaluate.function,
            event_source_arn=evaluation_queue.queue_arn,
            batch_size=BATCH_SIZE,
            max_batching_window=Duration.seconds(self._platform.overlay.batching_window_s),
            max_concurrency=self._platform.config.evaluator_concurrency,
            report_batch_item_failures=True,
        )
        return evaluate

    def _build_reconcile_job(self, ingest: Ingest) -> TrainGuardFunction:
        config = self._platform.config
        look = TrainGuardFunction(
            self,
            "ReconcileJob",
            platform=self._platform,
            spec=FunctionSpec(
                folder="reconcile_job",
                statements=[
                    allow("UpdateJobs", ["dynamodb:GetItem", "dynamodb:UpdateItem"], [self._storage.jobs.table_arn]),
                    allow(
                        "SummariseNodeState",
                        ["dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:Query"],
                        [self._storage.node_state.table_arn],
                    ),
                    *self._evaluation_statements(ingest.evaluation_queue),
                    *self._polling(),
                ],
                environment=self._environment(ingest.evaluation_queue) | self._poll_environment(),
                timeout_s=_LOOK_TIMEOUT_S,
                memory_mib=config.reconcile_memory_mb,
                failures=ingest.event_dead_letters,
                concurrency=config.reconcile_concurrency,
            ),
        )
        # The next scheduler run asks for the look again. Given as an ARN: CDK would add to the role what it holds
        # already.
        kept = sqs.Queue.from_queue_arn(look, "Failures", ingest.event_dead_letters.queue_arn)
        look.function.configure_async_invoke(
            max_event_age=Duration.seconds(_LEAST_EVENT_AGE_S),
            retry_attempts=0,
            on_failure=destinations.SqsDestination(kept),
        )
        return look

    def _build_scheduler(self, ingest: Ingest) -> TrainGuardFunction:
        scheduler = TrainGuardFunction(
            self,
            "Scheduler",
            platform=self._platform,
            spec=FunctionSpec(
                folder="scheduler",
                statements=[
                    allow("FindActiveJobs", ["dynamodb:Query"], [self._storage.active_jobs_arn]),
                    allow("ReconcileJobs", ["lambda:InvokeFunction"], [self.reconcile_job.function.function_arn]),
                ],
                environment={
                    "JOBS_TABLE": self._storage.jobs.table_name,
                    "RECONCILE_JOB_FUNCTION": self.reconcile_job.function.function_name,
                },
                timeout_s=_SCHEDULER_TIMEOUT_S,
                memory_mib=self._platform.config.scheduler_memory_mb,
                dead_letters=ingest.event_dead_letters,
            ),
        )
        # The next run of the scheduler does all that a failed one left, so a repeat would only compete with it.
        scheduler.function.configure_async_invoke(max_event_age=Duration.seconds(_LEAST_EVENT_AGE_S), retry_attempts=0)
        events.Rule(
            self,
            "EveryMinute",
            description="Applies what waits for time rather than for an object",
            schedule=events.Schedule.rate(Duration.minutes(1)),
            targets=[
                targets.LambdaFunction(
                    scheduler.function,
                    dead_letter_queue=ingest.event_dead_letters,
                    max_event_age=Duration.seconds(_LEAST_EVENT_AGE_S),
                    retry_attempts=1,
                )
            ],
        )
        return scheduler

    def _polling(self) -> list[iam.PolicyStatement]:
        poll = self._machines.poll_source
        return [] if poll is None else [allow("PollSources", ["lambda:InvokeFunction"], [poll.function.function_arn])]

    def _poll_environment(self) -> dict[str, str]:
        poll = self._machines.poll_source
        return {} if poll is None else {"POLL_SOURCE_FUNCTION": poll.function.function_name}

    def _evaluation_statements(self, evaluation_queue: sqs.Queue) -> list[iam.PolicyStatement]:
        return [
            allow("PublishRuleState", ["dynamodb:UpdateItem"], [self._storage.rule_state.table_arn]),
            allow("SendTasks", ["sqs:SendMessage"], [evaluation_queue.queue_arn]),
            allow("StartExecutions", ["states:StartExecution"], [self._machines.fire_arn, self._machines.report_arn]),
            describe_training_jobs(self),
            allow("ReadJobFiles", ["s3:GetObject"], [f"{self._storage.bucket_arn}/*/job.json"]),
            allow("ListProfileObjects", ["s3:ListBucket"], [self._storage.bucket_arn]),
            self._settings.read(),
        ]

    def _environment(self, evaluation_queue: sqs.Queue) -> dict[str, str]:
        return {
            "JOBS_TABLE": self._storage.jobs.table_name,
            "NODE_STATE_TABLE": self._storage.node_state.table_name,
            "RULE_STATE_TABLE": self._storage.rule_state.table_name,
            "PROFILE_BUCKET": self._storage.bucket_name,
            "TASK_QUEUE_URL": evaluation_queue.queue_url,
            "FIRE_STATE_MACHINE_ARN": self._machines.fire_arn,
            "REPORT_STATE_MACHINE_ARN": self._machines.report_arn,
            "KERNELS_STATE_MACHINE_ARN": self._machines.kernels_arn,
            **self._settings.environment(),
        }
