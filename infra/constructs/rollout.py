"""How new code of the functions that evaluate rules takes over: at once, or in steps with alarms as the way back."""

from collections.abc import Mapping
from typing import cast

from aws_cdk import CfnCodeDeployLambdaAliasUpdate, CfnUpdatePolicy, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.function import TrainGuardFunction, role_with
from infra.constructs.policy import allow

LIVE = "live"
ENDS_BADLY = ("DEPLOYMENT_FAILURE", "DEPLOYMENT_STOP_ON_ALARM", "DEPLOYMENT_STOP_ON_REQUEST")


def publish(part: TrainGuardFunction, role_path: str | None) -> lambda_.Alias:
    """Return the alias of the function's newest version, which everything calls in place of the function."""
    if role_path is not None and not Token.is_unresolved(role_path):
        # Another path makes another role, and a version keeps the one that it was published with.
        part.function.invalidate_version_based_on(role_path)
    return lambda_.Alias(part, "Live", alias_name=LIVE, version=part.function.current_version)


class Rollout(Construct):
    """Has CodeDeploy move aliases to new versions in steps, and back when one of the alarms is on."""

    def __init__(
        self,
        scope: Construct,
        config: DeploymentConfig,
        aliases: Mapping[str, lambda_.Alias],
        alarms: list[cloudwatch.Alarm],
    ) -> None:
        super().__init__(scope, "Rollout")
        moves = ["lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig"]
        # Named by their functions: each alias waits for this role.
        moved = [f"{alias.lambda_.function_arn}{end}" for alias in aliases.values() for end in ("", f":{LIVE}")]
        role = role_with(
            self,
            "Role",
            config=config,
            principal=iam.ServicePrincipal("codedeploy.amazonaws.com"),
            statements=[
                # The action knows no resources.
                allow("LookAtAlarms", ["cloudwatch:DescribeAlarms"], ["*"]),
                allow("MoveAliases", moves, moved),
            ],
        )
        application = codedeploy.CfnApplication(self, "Application", compute_platform="Lambda")
        group = codedeploy.CfnDeploymentGroup
        for name, alias in aliases.items():
            of_alias = group(
                self,
                name,
                application_name=application.ref,
                service_role_arn=role.role_arn,
                deployment_config_name=f"CodeDeployDefault.Lambda{config.rollout}",
                deployment_style=group.DeploymentStyleProperty(
                    deployment_type="BLUE_GREEN", deployment_option="WITH_TRAFFIC_CONTROL"
                ),
                auto_rollback_configuration=group.AutoRollbackConfigurationProperty(
                    enabled=True, events=list(ENDS_BADLY)
                ),
                alarm_configuration=group.AlarmConfigurationProperty(
                    enabled=True, alarms=[group.AlarmProperty(name=alarm.alarm_name) for alarm in alarms]
                ),
            )
            cast("lambda_.CfnAlias", alias.node.default_child).cfn_options.update_policy = CfnUpdatePolicy(
                code_deploy_lambda_alias_update=CfnCodeDeployLambdaAliasUpdate(
                    application_name=application.ref, deployment_group_name=of_alias.ref
                )
            )
