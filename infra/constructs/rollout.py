"""How new code of the functions takes over: at once, or by CodeDeploy with alarms as the way back."""

from collections.abc import Mapping, Sequence
from typing import cast

from aws_cdk import CfnCodeDeployLambdaAliasUpdate, CfnUpdatePolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.faults import WITH_ANOTHER
from infra.constructs.function import LIVE, TrainGuardFunction, role_with
from infra.constructs.measures import PERIOD
from infra.constructs.policy import allow

ENDS_BADLY = ("DEPLOYMENT_FAILURE", "DEPLOYMENT_STOP_ON_ALARM", "DEPLOYMENT_STOP_ON_REQUEST")


class Rollout(Construct):
    """Has CodeDeploy move the alias ``live`` of each function to its new version in steps.

    ``faults`` are alarms of the functions' faults by their words. A function without one gets an alarm of
    errors: both versions count in it.
    """

    def __init__(
        self,
        scope: Construct,
        config: DeploymentConfig,
        functions: Sequence[TrainGuardFunction],
        faults: Mapping[str, cloudwatch.Alarm],
    ) -> None:
        super().__init__(scope, "Rollout")
        moves = ["lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig"]
        self._role = role_with(
            self,
            "Role",
            config=config,
            principal=iam.ServicePrincipal("codedeploy.amazonaws.com"),
            statements=[
                # The action knows no resources.
                allow("LookAtAlarms", ["cloudwatch:DescribeAlarms"], ["*"]),
                *(
                    allow(f"Move{part.words}", moves, [arn, f"{arn}:{LIVE}"])
                    for part in functions
                    for arn in [part.function.function_arn]
                ),
            ],
        )
        self._application = codedeploy.CfnApplication(self, "Application", compute_platform="Lambda")
        for part in functions:
            alarm = faults.get(part.words) or faults.get(WITH_ANOTHER.get(part.words, "")) or self._errors_of(part)
            self._move_gradually(part, f"CodeDeployDefault.Lambda{config.rollout}", alarm)

    def _errors_of(self, part: TrainGuardFunction) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            f"ErrorsOf{part.words}",
            alarm_description=f"ALARM: {part.service_name} fails; while it is deployed, the earlier version comes back",
            metric=part.function.metric_errors(period=PERIOD, statistic="Sum"),
            threshold=1,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )

    def _move_gradually(self, part: TrainGuardFunction, strategy: str, alarm: cloudwatch.Alarm) -> None:
        group = codedeploy.CfnDeploymentGroup(
            self,
            f"Of{part.words}",
            application_name=self._application.ref,
            service_role_arn=self._role.role_arn,
            deployment_config_name=strategy,
            deployment_style=codedeploy.CfnDeploymentGroup.DeploymentStyleProperty(
                deployment_type="BLUE_GREEN", deployment_option="WITH_TRAFFIC_CONTROL"
            ),
            auto_rollback_configuration=codedeploy.CfnDeploymentGroup.AutoRollbackConfigurationProperty(
                enabled=True, events=list(ENDS_BADLY)
            ),
            alarm_configuration=codedeploy.CfnDeploymentGroup.AlarmConfigurationProperty(
                enabled=True, alarms=[codedeploy.CfnDeploymentGroup.AlarmProperty(name=alarm.alarm_name)]
            ),
        )
        alias = cast("lambda_.CfnAlias", part.live.node.default_child)
        alias.cfn_options.update_policy = CfnUpdatePolicy(
            code_deploy_lambda_alias_update=CfnCodeDeployLambdaAliasUpdate(
                application_name=self._application.ref, deployment_group_name=group.ref
            )
        )
