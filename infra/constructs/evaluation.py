"""The functions that bring the rules' state up to date: at each message, and once a minute for each active job."""

from collections.abc import Mapping
from functools import partial
from typing import cast

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import overlay
from infra.constructs.function import Platform, TrainGuardFunction
from infra.constructs.policy import allow, describe_training_jobs
from infra.constructs.rollout import LIVE, publish
from trainguard.aws.dynamodb.bookkeeping import MET_JOBS, TUNING_JOB
from trainguard.aws.dynamodb.jobs import ACTIVE_JOBS_INDEX
from trainguard.engine.installed import FAMILIES
from trainguard.hangs.files import KEPT_HANG

EVALUATOR_TIMEOUT_S = 60
BATCH_SIZE = 100

# A message stays hidden once received for six evaluations, as Lambda recommends, and the batch's window.
MESSAGE_VISIBILITY_S = 6 * EVALUATOR_TIMEOUT_S + overlay.AWS.batching_window_s

_LEAST_EVENT_AGE = Duration.seconds(60)


class Evaluation(Construct):
    """`evaluate_objects` behind its queue, `scheduler` behind a clock, and `reconcile_job` behind `scheduler`.

    ``machines`` are ARNs by the functions' variables; ``poll_source`` polls sources of jobs where there are some.

    Attributes
    ----------
    live : dict of aws_lambda.Alias
        By their functions: what queue and scheduler call.
    """

    def __init__(
        self,
        scope: Construct,
        platform: Platform,
        *,
        machines: Mapping[str, str],
        poll_source: TrainGuardFunction | None,
    ) -> None:
        super().__init__(scope, "Evaluation")
        function = partial(TrainGuardFunction, self, platform=platform)
        storage, settings = platform.storage, platform.settings
        queue, kept = platform.ingest.evaluation_queue, platform.undelivered
        fires, reports, kernels = (machines[f"{name}_STATE_MACHINE_ARN"] for name in ("FIRE", "REPORT", "KERNELS"))
        common = [
            allow("PublishRuleState", ["dynamodb:UpdateItem"], [storage.rule_state.table_arn]),
            allow("SendTasks", ["sqs:SendMessage"], [queue.queue_arn]),
            allow("StartExecutions", ["states:StartExecution"], [fires, reports]),
            describe_training_jobs(self),
            allow("ReadJobFiles", ["s3:GetObject"], [f"{storage.bucket_arn}/*/job.json"]),
            allow("ReadHang", ["s3:GetObject"], [f"{storage.bucket_arn}/{KEPT_HANG}"]),
            allow("ListProfileObjects", ["s3:ListBucket"], [storage.bucket_arn]),
            settings.read(),
            settings.read_brakes(),
        ]
        environment = {
            **storage.variables(
                "JOBS_TABLE", "NODE_STATE_TABLE", "RULE_STATE_TABLE", "BOOKKEEPING_TABLE", "PROFILE_BUCKET"
            ),
            "TASK_QUEUE_URL": queue.queue_url,
            **machines,
            **settings.environment(),
            **settings.environment_of_brakes(),
        }
        objects = [f"{storage.bucket_arn}/{keys}" for family in FAMILIES for keys in family.reads]
        receive = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
        register = ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]
        self.evaluate_objects = function(
            "evaluate_objects",
            statements=[
                allow("ReceiveDoorbells", receive, [queue.queue_arn]),
                allow("ReadProfileObjects", ["s3:GetObject"], objects),
                allow("RegisterJobs", register, [storage.jobs.table_arn]),
                storage.keep_books("CountJobs", ["UpdateItem"], [MET_JOBS, f"{TUNING_JOB}*"]),
                allow("UpdateNodeState", [*register, "dynamodb:Query"], [storage.node_state.table_arn]),
                allow("JudgeCaptures", ["states:StartExecution"], [kernels]),
                *common,
            ],
            environment=environment,
            timeout_s=EVALUATOR_TIMEOUT_S,
            memory_mib=platform.config.evaluator_memory_mb,
        )
        evaluate = publish(self.evaluate_objects, platform.config.role_path)
        doorbells = lambda_.EventSourceMapping(
            self,
            "DoorbellsToEvaluateObjects",
            target=evaluate,
            event_source_arn=queue.queue_arn,
            batch_size=BATCH_SIZE,
            max_batching_window=Duration.seconds(platform.overlay.batching_window_s),
            max_concurrency=platform.config.evaluator_concurrency,
            report_batch_item_failures=True,
        )
        cast("lambda_.CfnEventSourceMapping", doorbells.node.default_child).function_name = evaluate.function_arn
        summarise = ["dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:Query"]
        polling = [allow("PollSources", ["lambda:InvokeFunction"], [poll_source.arn])] if poll_source else []
        asked = {"POLL_SOURCE_FUNCTION": poll_source.function.function_name} if poll_source else {}
        self.reconcile_job = function(
            "reconcile_job",
            statements=[
                allow("UpdateJobs", ["dynamodb:GetItem", "dynamodb:UpdateItem"], [storage.jobs.table_arn]),
                storage.keep_books("SummariseTuningJobs", ["UpdateItem"], [f"{TUNING_JOB}*"]),
                allow("SummariseNodeState", summarise, [storage.node_state.table_arn]),
                *common,
                *polling,
            ],
            environment={**environment, **asked},
            timeout_s=60,
            memory_mib=platform.config.reconcile_memory_mb,
            failures=kept,
            concurrency=platform.config.reconcile_concurrency,
        )
        # The next scheduler run sends the request again. Given as an ARN: CDK would add to the role what it holds
        # already.
        known = sqs.Queue.from_queue_arn(self.reconcile_job, "Failures", kept.queue_arn)
        reconcile = publish(self.reconcile_job, platform.config.role_path)
        lambda_.EventInvokeConfig(
            self.reconcile_job,
            "Asked",
            function=self.reconcile_job.function,
            qualifier=LIVE,
            max_event_age=_LEAST_EVENT_AGE,
            retry_attempts=0,
            on_failure=destinations.SqsDestination(known),
        ).node.add_dependency(reconcile)
        self.live = {"EvaluateObjects": evaluate, "ReconcileJob": reconcile}
        read_default = allow("ReadWhenDeployed", ["ssm:GetParameter"], [settings.default.parameter_arn])
        self.scheduler = function(
            "scheduler",
            statements=[
                allow("FindActiveJobs", ["dynamodb:Query"], [f"{storage.jobs.table_arn}/index/{ACTIVE_JOBS_INDEX}"]),
                allow("ReconcileJobs", ["lambda:InvokeFunction"], [reconcile.function_arn]),
                settings.read_brakes(),
                *([storage.list_canaries(), read_default] if platform.config.canary else []),
            ],
            environment={
                **storage.variables("JOBS_TABLE"),
                **settings.environment_of_brakes(),
                **storage.variables("PROFILE_BUCKET"),
                "CANARY": "on" if platform.config.canary else "off",
                "DEFAULT_SETTINGS_PARAMETER": settings.default.parameter_name,
                "RECONCILE_JOB_FUNCTION": reconcile.function_arn,
            },
            timeout_s=60,
            memory_mib=platform.config.scheduler_memory_mb,
            most_age=_LEAST_EVENT_AGE,
            # The next run does all that a failed one left, so a repeat would only compete with it.
            retries=0,
            audited=True,
        )
        self.scheduler.call_by_rule(
            "EveryMinute",
            "Applies what waits for time rather than for an object",
            schedule=events.Schedule.rate(Duration.minutes(1)),
            retries=1,
        )
