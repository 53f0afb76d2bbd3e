"""The function that brings running jobs' data from other services, and its rights."""

from collections.abc import Mapping, Sequence

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.config import RUN_FILES
from infra.constructs.function import Platform, TrainGuardFunction
from infra.constructs.policy import allow, describe_training_jobs

LIVE_KEYS = ("*/profiler-output/system/*", "*/tensorboard-output/live-source/*", "*/live-source/*.json")

RUN_FILE_KEYS = "*/wandb/*.wandb"

TRAINING_JOB_LOGS = "/aws/sagemaker/TrainingJobs"


def build_live_sources(stack: Construct, platform: Platform) -> TrainGuardFunction:
    """Build `poll_source`, which `reconcile_job` asks for polls and which S3 starts for run files of W&B."""
    storage, secret = platform.storage, platform.config.live_source_secret
    services = services_by_kind(platform.config.live_sources)
    read = [*LIVE_KEYS[1:], *((RUN_FILE_KEYS,) if RUN_FILES in services else ())]
    scope = Construct(stack, "LiveSources")
    poll_source = TrainGuardFunction(
        scope,
        "poll_source",
        platform=platform,
        statements=[
            allow("ReadJobs", ["dynamodb:GetItem"], [storage.jobs.table_arn]),
            allow("ReadWhatIsThere", ["s3:GetObject"], [f"{storage.bucket_arn}/{keys}" for keys in read]),
            allow("WriteProfiles", ["s3:PutObject"], [f"{storage.bucket_arn}/{keys}" for keys in LIVE_KEYS]),
            allow("KnowWhatIsMissing", ["s3:ListBucket"], [storage.bucket_arn]),
            *_reading(scope, services),
            *([allow("ReadTokens", ["secretsmanager:GetSecretValue"], [secret])] if secret else []),
        ],
        environment={
            **storage.variables("JOBS_TABLE"),
            "LIVE_SOURCES": " ".join(f"{kind}+{each}" for kind, listed in services.items() for each in listed),
            **({"LIVE_SOURCE_SECRET": secret} if secret else {}),
        },
        timeout_s=60,
        memory_mib=1024,
        most_age=Duration.seconds(300),
        # The next run of the scheduler asks for what a failed poll left.
        retries=0,
    )
    if RUN_FILES in services:
        key = [{"wildcard": "*/wandb/*run-*.wandb"}]
        poll_source.call_by_rule(
            "RunFileWritten",
            "Has each version of a run file of Weights & Biases read",
            pattern=events.EventPattern(
                source=["aws.s3"],
                detail_type=["Object Created"],
                detail={"bucket": {"name": [storage.bucket_name]}, "object": {"key": key}},
            ),
            retries=2,
        )
    return poll_source


def _reading(scope: Construct, services: Mapping[str, Sequence[str]]) -> list[iam.PolicyStatement]:
    """Return the rights to read services that AWS guards; others have tokens or none."""
    stack = Stack.of(scope)
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
        statements.append(describe_training_jobs(scope))
    return statements


def services_by_kind(listed: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return the services of a list such as ``prometheus+https://host``, ``logs``, ``wandb`` by their kinds."""
    services: dict[str, list[str]] = {}
    for each in listed:
        kind, _, server = each.partition("+")
        services.setdefault(kind, []).append(server or (TRAINING_JOB_LOGS if kind == "logs" else kind))
    return services
