"""Synthesises the application and its variants in one process, whose start takes longer than a synthesis.

``python -m tests.infra.variants FOLDER`` leaves the cloud assembly of the default settings in ``FOLDER/production``,
that of each variant in ``FOLDER/<name>``, what stopped it, if anything did, in ``FOLDER/<name>.error``, and what
`releases` makes in ``FOLDER/releases``. Variants and releases share an empty layer, which saves seconds more.
"""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from aws_cdk import Annotations

from infra import app, stack
from infra.central import __main__ as central
from infra.config import DeploymentConfig
from infra.constructs import layer
from infra.constructs.nag import Accepted, findings_that_stand
from infra.stack import TrainGuardStack
from tests.infra import releases

PERSON = {
    "profile_bucket": "our-profiles",
    "retain_data": "false",
    "alert_emails": "ml@example.com,oncall@example.com",
    "operations_emails": ["platform@example.com"],
    "stop_switch": "dry-run",
}
CHINA_KEY = "arn:aws-cn:kms:cn-north-1:111122223333:key/0b6a1f0e-5f4c-4c53-9a9f-7d1c1f1f8d10"
THEIR_KEY = "arn:aws:kms:eu-west-1:444455556666:key/mrk-7d1c1f1f8d100b6a1f0e5f4c4c539a9f"
WRITERS = ("444455556666", "777788889999")
SHARED_BUDGET = "arn:aws:dynamodb:us-east-1:111122223333:table/TrainGuard-StorageBookkeepingA1B2C3D4"
GOVCLOUD_BUS = "arn:aws-us-gov:events:us-gov-west-1:444455556666:event-bus/findings"

WORKSPACE = "https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1a2b"
TRACKING_SERVER = "arn:aws:sagemaker:eu-west-1:111122223333:mlflow-tracking-server/research"
LIVE_SOURCES = f"prometheus+{WORKSPACE},mlflow+{TRACKING_SERVER},mlflow+https://mlflow.example.com,logs,wandb"
WEBHOOK_SECRET = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:webhook-a1b2c3"
CANARY_IMAGE = "763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.5.1-cpu-py311-ubuntu22.04-sagemaker"
LIVE_SECRET = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:tokens-a1b2c3"

# Context of each variant that must synthesise without a finding.
CONTEXTS: Mapping[str, Mapping[str, object]] = {
    "emulator": {"emulator": "true"},
    "person": PERSON,
    "sized": {
        "evaluator_memory_mb": "1536",
        "scheduler_memory_mb": "256",
        "reconcile_memory_mb": "1769",
        "lifecycle_memory_mb": "640",
        "plan_report_memory_mb": "1200",
        "report_memory_mb": "3008",
        "kernel_digest_memory_mb": "2560",
        "kernel_join_memory_mb": "1792",
        "reconcile_concurrency": "20",
        "canary_image": CANARY_IMAGE,
    },
    "second": {"stack_name": "TrainGuard-Research", "dashboard": "true"},
    "without-canary": {"canary": "false"},
    "verdict": {"verdict_endpoint": "true"},
    "watched": {"tracing": "active", "dashboard": "true", "stop_batch_jobs": "true", "stop_instances": "true"},
    "digest": {"weekly_digest": "true", "ops_items": "true", "stop_instances": "true"},
    "stops": {
        "stop_batch_jobs": "true",
        "stop_instances": "true",
        "stop_workloads": "true",
        "act_on_nodes": "true",
    },
    "webhook": {"webhook_secret": WEBHOOK_SECRET, "webhook_service": "pagerduty"},
    "opsgenie": {"webhook_secret": WEBHOOK_SECRET, "webhook_service": "opsgenie", "event_schemas": "true"},
    "live": {"live_sources": LIVE_SOURCES, "live_source_secret": LIVE_SECRET},
    "all-rules": {
        "live_sources": "wandb",
        "webhook_secret": WEBHOOK_SECRET,
        "webhook_service": "opsgenie",
        "ops_items": "true",
        "weekly_digest": "true",
        "central_bus_arn": "arn:aws:events:eu-west-1:444455556666:event-bus/findings",
        "alert_emails": "ml@example.com,oncall@example.com",
        "operations_emails": "platform@example.com",
    },
    "china": {"kms_key_arn": CHINA_KEY, "architecture": "x86_64", "operations_emails": "platform@example.com"},
    "their-bucket": {"profile_bucket": "our-profiles", "profile_key_arn": THEIR_KEY},
    "writers": {"writer_accounts": ",".join(WRITERS)},
    "organisation": {
        "organization_id": "o-a1b2c3d4e5",
        "central_bus_arn": "arn:aws:events:eu-west-1:444455556666:event-bus/TrainGuardCentral",
        "stop_limit_function": "arn:aws:lambda:eu-west-1:444455556666:function:TrainGuardCentral-StopLimit",
        "rollout": "Canary10Percent15Minutes",
    },
    "writers-and-key": {"writer_accounts": list(WRITERS), "kms_key_arn": CHINA_KEY},
    "govcloud": {
        "central_bus_arn": GOVCLOUD_BUS,
        "permissions_boundary": "PlatformBoundary",
        "vpc_id": "vpc-0123456789abcdef0",
        "subnet_ids": "subnet-0123456789abcdef0,subnet-0123456789abcdef1",
        "route_table_ids": ["rtb-0123456789abcdef0"],
    },
    "everything": {
        "stack_name": "Everything",
        "retain_data": "false",
        "profile_bucket": "our-profiles",
        "profile_key_arn": THEIR_KEY,
        "profile_notifications": "queue",
        "evaluate": "prod-*,llm-*",
        "kms_key_arn": CHINA_KEY.replace("aws-cn", "aws").replace("cn-north-1", "eu-west-1"),
        "permissions_boundary": "arn:aws:iam::111122223333:policy/platform/Boundary",
        "subnet_ids": ["subnet-0123456789abcdef0"],
        "security_group_ids": "sg-0123456789abcdef0",
        "central_bus_arn": "arn:aws:events:eu-west-1:444455556666:event-bus/findings",
        "stop_budget_table": SHARED_BUDGET,
        "alert_emails": "ml@example.com",
        "operations_emails": "platform@example.com",
        "dashboard": "true",
    },
}

# Context of each variant of the central stack.
ORGANIZATION = "o-a1b2c3d4e5"
CENTRAL: Mapping[str, Mapping[str, object]] = {
    "central": {"organization_id": ORGANIZATION},
    "central-with-all": {
        "organization_id": ORGANIZATION,
        "tracing": "active",
        "kms_key_arn": CHINA_KEY.replace("aws-cn", "aws").replace("cn-north-1", "eu-west-1"),
        "permissions_boundary": "PlatformBoundary",
        "alert_emails": "ml@example.com",
        "operations_emails": "platform@example.com",
        "retain_data": "false",
    },
}

# The finding that one variant leaves open; a pack calls it a warning.
WARNING = ("Evaluation/Scheduler/Role/Resource", "Serverless::Serverless-LambdaStarPermissions")


TRACED = {"tracing": "active"}
# Context of each variant whose findings are compared with what is acknowledged.
OPEN = {"all-open": {}, "all-open-traced": TRACED}


def main(folder: Path) -> None:
    """Synthesise all of them."""
    app.synthesise(str(folder / "production"))
    # Of the assets, tests read no more than the hashes: the copy of the layer takes 70 MB.
    for copy in (folder / "production").glob("asset.*"):
        shutil.rmtree(copy)
    empty = folder / "empty-layer"
    (empty / "python").mkdir(parents=True)
    with mock.patch.object(layer, "layer_folder", return_value=empty):
        for name, context in CONTEXTS.items():
            _synthesise(folder / name, context)
        for name, context in CENTRAL.items():
            _synthesise(folder / name, context, central.synthesise)
        with mock.patch.object(stack, "findings_that_stand", _without_one):
            _synthesise(folder / "one-warning-open", TRACED)
        with mock.patch.object(stack, "bound_roles", _warn):
            _synthesise(folder / "cdk-warns", {})
        for name, context in OPEN.items():
            with mock.patch.object(stack, "acknowledge") as acknowledge:
                _synthesise(folder / name, context)
            ((_, findings),) = (call.args for call in acknowledge.call_args_list)
            (folder / f"{name}.acknowledged.json").write_text(json.dumps(findings), encoding="utf-8")
        releases.synthesise(folder / "releases")


def _without_one(*given: Any) -> tuple[Accepted, ...]:
    return tuple(each for each in findings_that_stand(*given) if each[:2] != WARNING)


def _warn(scope: TrainGuardStack, config: DeploymentConfig) -> None:
    """Let CDK itself warn of something, as it does of an expression that names no metric."""
    Annotations.of(scope).add_warning_v2("Cdk:Warns", "look at this")


def _synthesise(
    outdir: Path, context: Mapping[str, object], synthesise: Callable[..., object] = app.synthesise
) -> None:
    try:
        synthesise(str(outdir), context)
    except Exception as error:
        outdir.with_name(f"{outdir.name}.error").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
