"""Synthesises a release's template, and what CDK makes of the settings that its parameters can give."""

from collections.abc import Mapping
from pathlib import Path

from infra import app, overlay
from infra.config import DeploymentConfig
from infra.release.template import STACK, release_template
from infra.stack import TrainGuardStack

KEY = "arn:aws:kms:eu-west-1:111122223333:key/0b6a1f0e-5f4c-4c53-9a9f-7d1c1f1f8d10"
THEIR_KEY = "arn:aws:kms:eu-west-1:444455556666:key/mrk-7d1c1f1f8d100b6a1f0e5f4c4c539a9f"
BUS = "arn:aws:events:eu-west-1:444455556666:event-bus/findings"
BOUNDARY = "arn:aws:iam::111122223333:policy/platform/Boundary"
VPC = {"subnet_ids": "subnet-0123456789abcdef0,subnet-0123456789abcdef1", "security_group_ids": "sg-0123456789abcdef0"}

ORGANISATION = {
    "organization_id": "o-a1b2c3d4e5",
    "stop_limit_function": "arn:aws:lambda:eu-west-1:444455556666:function:TrainGuardCentral-StopLimit",
    "role_path": "/trainguard/",
    "code_signing_config_arn": "arn:aws:lambda:eu-west-1:111122223333:code-signing-config:csc-0123456789abcdef0",
}

SWITCHED = (
    *("weekly_digest", "ops_items", "event_schemas"),
    *("stop_batch_jobs", "stop_instances", "stop_workloads", "act_on_nodes"),
)

# Settings that the release was not made of, alone and together.
CHOSEN: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "all-with-own-bucket": {
        "stack_name": "Everything",
        "alert_emails": "ml@example.com",
        "operations_emails": "platform@example.com",
        "central_bus_arn": BUS,
        "kms_key_arn": KEY,
        "permissions_boundary": BOUNDARY,
        **ORGANISATION,
        **{f"{name}_memory_mb": "1769" for name in ("scheduler", "reconcile", "lifecycle", "plan_report")},
        **{f"kernel_{name}_memory_mb": "4096" for name in ("digest", "join")},
        "profile_retention_days": "7",
        "log_retention_days": "90",
        "evaluator_concurrency": "5",
        "evaluator_memory_mb": "1536",
        "report_memory_mb": "3008",
        "evaluate": "tagged",
        "canary_image": "111122223333.dkr.ecr.eu-west-1.amazonaws.com/sleeper@sha256:" + 64 * "0",
        "stop_switch": "dry-run",
        "max_stops_per_hour": "0",
        "rollout": "Linear10PercentEvery3Minutes",
        **dict.fromkeys(SWITCHED, "true"),
        "tracing": "active",
        **VPC,
    },
    "least": {"canary": "false", "dashboard": "false", "stop_switch": "disabled", "evaluate": "off"},
    "existing-bucket": {
        "profile_bucket": "our-profiles",
        "alert_emails": "ml@example.com",
        "stop_instances": "true",
    },
    "existing-bucket-and-its-key": {
        "weekly_digest": "true",
        "profile_bucket": "our-profiles",
        "profile_key_arn": THEIR_KEY,
        "profile_notifications": "queue",
        "canary": "false",
        **VPC,
    },
    "existing-bucket-and-own-key": {
        "profile_bucket": "our-profiles",
        "profile_notifications": "queue",
        "kms_key_arn": KEY,
        "dashboard": "false",
        "permissions_boundary": BOUNDARY,
        "evaluate": "all",
    },
    "existing-bucket-and-both-keys": {
        "profile_bucket": "our-profiles",
        "profile_key_arn": THEIR_KEY,
        "kms_key_arn": KEY,
        "central_bus_arn": BUS,
        "permissions_boundary": BOUNDARY,
        "operations_emails": "platform@example.com",
    },
    "own-key-without-canary": {"kms_key_arn": KEY, "canary": "false", "operations_emails": "platform@example.com"},
}


def synthesise(folder: Path) -> None:
    """Leave ``release.json``, judged by the rule packs, and ``<name>.json`` for each of `CHOSEN`."""
    text, _ = release_template(DeploymentConfig(), folder / "staging")
    (folder / "release.json").write_text(text, encoding="utf-8")
    for name, context in CHOSEN.items():
        config = DeploymentConfig.from_context(context)
        synthesised = app.new_app(str(folder / name))
        # The construct's name is part of logical ids, the stack's is in all other names.
        TrainGuardStack(synthesised, STACK, config=config, overlay=overlay.AWS)
        app.write(synthesised, judged=False)
        (folder / name / f"{STACK}.template.json").rename(folder / f"{name}.json")
