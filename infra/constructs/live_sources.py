"""The function that brings running jobs' data from other services, and its rights."""

from collections.abc import Mapping, Sequence

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.config import RUN_FILES
from infra.constructs.function import FunctionPlatform, TrainGuardFunction
from infra.constructs.ingest import Ingest
from infra.constructs.policy import allow, describe_training_jobs
from infra.constructs.storage import Storage

LIVE_KEYS = ("*/profiler-output/system/*", "*/tensorboard-output/live-source/*", "*/live-source/*.json")

RUN_FILE_KEYS = "*/wandb/*.wandb"

TRAINING_JOB_LOGS = "/aws/sagemaker/TrainingJobs"

_MOST_AGE = Duration.seconds(300)


class LiveSources(Construct):
    """`poll_source`, which `reconcile_job` asks for polls and which S3 starts for run files of W&B."""

    def __init__(
        self, scope: Construct, construct_id: str, *, platform: FunctionPlatform, storage: Storage, ingest: Ingest
    ) -> None:
        super().__init__(scope, construct_id)
        services, secret = services_by_kind(platform.config.live_sources), platform.config.live_source_secret
        read = [*LIVE_KEYS[1:], *((RUN_FILE_KEYS,) if RUN_FILES in services else ())]
        self.function = TrainGuardFunction(
            self,
            "poll_source",
            platform=platform,
            statements=[
                allow("ReadJobs", ["dynamodb:GetItem"], [storage.jobs.table_arn]),
                allow("ReadWhatIsThere", ["s3:GetObject"], [f"{storage.bucket_arn}/{keys}" for keys in read]),
                allow("WriteProfiles", ["s3:PutObject"], [f"{storage.bucket_arn}/{keys}" for keys in LIVE_KEYS]),
                allow("KnowWhatIsMissing", ["s3:ListBucket"], [storage.bucket_arn]),
                *self._reading(services),
                *([allow("ReadTokens", ["secretsmanager:GetSecretValue"], [secret])] if secret else []),
            ],
            environment={
                **storage.variables("JOBS_TABLE"),
                "LIVE_SOURCES": " ".join(f"{kind}+{each}" for kind, listed in services.items() for each in listed),
                **({"LIVE_SOURCE_SECRET": secret} if secret else {}),
            },
            timeout_s=60,
            memory_mib=1024,
            dead_letters=ingest.event_dead_letters,
        )
        if RUN_FILES in services:
            key = [{"wildcard": "*/wandb/*run-*.wandb"}]
            self.function.call_by_rule(
                "RunFileWritten",
                "Has each version of a run file of Weights & Biases read",
                pattern=events.EventPattern(
                    source=["aws.s3"],
                    detail_type=["Object Created"],
                    detail={"bucket": {"name": [storage.bucket_name]}, "object": {"key": key}},
                ),
                most_age=_MOST_AGE,
                retries=2,
            )
        # The next run of the scheduler asks for what a failed poll left.
        self.function.function.configure_async_invoke(max_event_age=_MOST_AGE, retry_attempts=0)

    def _reading(self, services: Mapping[str, Sequence[str]]) -> list[iam.PolicyStatement]:
        """Return the rights to read services that AWS guards; others have tokens or none."""
        stack = Stack.of(self)
        statements = []
        workspaces = [
            stack.format_arn(service="aps", resource="workspace", resource_name=server.rstrip("/").rpartition("/")[2])
            for server in services.get("prometheus", ())
            if "://aps-workspaces." in server
        ]
        if workspaces:
            statements.append(allow("QueryWorkspaces", ["aps:QueryMetrics"], workspaces))
        if any("://monitoring." in server for server in services.get("prometheus", ())):
            statements.append(allow("QueryMetrics", ["cloudwatch:GetMetricData", "cloudwatch:ListMetrics"], ["*"]))
        servers = [server for server in services.get("mlflow", ()) if server.startswith("arn:")]
        if servers:
            actions = [f"sagemaker-mlflow:{name}" for name in ("GetRun", "GetMetricHistory")]
            statements.append(allow("ReadRuns", actions, servers))
        groups = [
            stack.format_arn(
                service="logs",
                resource="log-group",
                resource_name=f"{name}:*",
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            )
            for name in services.get("logs", ())
        ]
        if groups:
            statements.append(allow("ReadLogs", ["logs:FilterLogEvents"], groups))
            statements.append(describe_training_jobs(self))
        return statements


def services_by_kind(listed: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return the services of a list such as ``prometheus+https://host``, ``logs``, ``wandb`` by their kinds."""
    services: dict[str, list[str]] = {}
    for each in listed:
        kind, _, server = each.partition("+")
        services.setdefault(kind, []).append(server or (TRAINING_JOB_LOGS if kind == "logs" else kind))
    return services
