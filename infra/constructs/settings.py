"""Settings of jobs that hold for the whole stack, or that a job may name, and the operators' brakes: SSM parameters."""

import json

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.policy import allow


class Settings(Construct):
    """The stack's default settings for every job, and the path of those that a job may name in a tag.

    Attributes
    ----------
    brakes : str
        Name of the operators' parameter with their brakes, which the stack never writes.
    """

    def __init__(self, scope: Construct, config: DeploymentConfig) -> None:
        super().__init__(scope, "Settings")
        stack = config.stack_name
        self.path = f"/{stack}/settings/"
        self.brakes = f"/{stack}/brakes"
        self.default = ssm.StringParameter(
            self,
            "StackDefault",
            parameter_name=f"/{stack}/default-settings",
            simple_name=False,
            description="What holds for every training job that says nothing else, as JSON: docs/configuration.md",
            string_value=json.dumps(_defaults(config)),
        )

    def environment(self) -> dict[str, str]:
        return {"DEFAULT_SETTINGS_PARAMETER": self.default.parameter_name, "SETTINGS_PATH": self.path}

    def environment_of_brakes(self) -> dict[str, str]:
        return {"BRAKES_PARAMETER": self.brakes}

    def read_brakes(self) -> iam.PolicyStatement:
        arn = Stack.of(self).format_arn(service="ssm", resource="parameter", resource_name=self.brakes[1:])
        return allow("ReadBrakes", ["ssm:GetParameter"], [arn])

    def read(self) -> iam.PolicyStatement:
        named = Stack.of(self).format_arn(service="ssm", resource="parameter", resource_name=f"{self.path[1:]}*")
        return allow("ReadSettings", ["ssm:GetParameter"], [self.default.parameter_arn, named])


def _defaults(config: DeploymentConfig) -> dict[str, object]:
    defaults: dict[str, object] = {"evaluate": _evaluate(config)}
    if config.evaluation_every_s is not None:
        defaults["evaluation_every_s"] = config.evaluation_every_s
    return defaults


def _evaluate(config: DeploymentConfig) -> str | list[str]:
    """Return the jobs of the default: all in a bucket of the stack's own, as its writers have asked for it."""
    if config.evaluate is None:
        return "tagged" if config.profile_bucket else "all"
    return config.evaluate.split(",") if "*" in config.evaluate else config.evaluate
