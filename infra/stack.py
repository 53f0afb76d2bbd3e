"""The stack: storage, ingest, evaluation, lifecycle, fire path, reports and alarms, put together."""

from importlib.metadata import version

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.actions import Actions
from infra.constructs.canary import Canary
from infra.constructs.dashboard import Dashboard
from infra.constructs.evaluation import DOORBELL_VISIBILITY_S, Evaluation, Machines
from infra.constructs.forwarding import Forwarding
from infra.constructs.function import FunctionPlatform
from infra.constructs.ingest import Ingest
from infra.constructs.layer import RulesLayer
from infra.constructs.lifecycle import Lifecycle
from infra.constructs.monitoring import Monitoring, WatchedParts
from infra.constructs.nag import acknowledge, findings_that_stand
from infra.constructs.network import Network
from infra.constructs.policy import bound_roles
from infra.constructs.queries import Queries
from infra.constructs.reports import Reports
from infra.constructs.settings import Settings
from infra.constructs.storage import Storage
from infra.overlay import Overlay


class TrainGuardStack(Stack):
    """Everything that TrainGuard deploys into an account and region."""

    def __init__(self, scope: Construct, construct_id: str, *, config: DeploymentConfig, overlay: Overlay) -> None:
        super().__init__(scope, construct_id, description="TrainGuard: profiler rules for SageMaker training jobs")
        layer = RulesLayer(self, "RulesLayer", overlay=overlay, rules_package=config.rules_package)
        network = Network(self, "Network", config=config)
        platform = FunctionPlatform(config=config, overlay=overlay, layer=layer, placement=network.placement)
        storage = Storage(self, "Storage", config=config)
        settings = Settings(self, "Settings", config=config)
        ingest = Ingest(
            self, "Ingest", config=config, bucket_name=storage.bucket_name, visibility_s=DOORBELL_VISIBILITY_S
        )
        reports = Reports(self, "Reports", platform=platform, storage=storage)
        actions = Actions(
            self,
            "Actions",
            platform=platform,
            storage=storage,
            undelivered=ingest.event_dead_letters,
            build_report=reports.build_report,
        )
        evaluation = Evaluation(
            self,
            "Evaluation",
            platform=platform,
            storage=storage,
            ingest=ingest,
            settings=settings,
            machines=Machines(fire_arn=actions.state_machine_arn, report_arn=reports.state_machine_arn),
        )
        lifecycle = Lifecycle(
            self,
            "Lifecycle",
            platform=platform,
            storage=storage,
            ingest=ingest,
            settings=settings,
            fire_machine_arn=actions.state_machine_arn,
        )
        canary = None
        if config.canary:
            canary = Canary(self, "Canary", platform=platform, storage=storage, undelivered=ingest.event_dead_letters)
        watched = WatchedParts(
            storage=storage,
            ingest=ingest,
            evaluation=evaluation,
            lifecycle=lifecycle,
            actions=actions,
            reports=reports,
            canary=canary,
        )
        monitoring = Monitoring(self, "Monitoring", config=config, parts=watched)
        if config.dashboard:
            Dashboard(self, "Dashboard", parts=watched, alarms=monitoring.alarms)
        Queries(self, "Queries", functions=watched.functions)
        if config.central_bus_arn:
            Forwarding(
                self,
                "Forwarding",
                config=config,
                central_bus_arn=config.central_bus_arn,
                undelivered=ingest.event_dead_letters,
            )
        outputs = {
            "ProfilerOutputUri": f"s3://{storage.bucket_name}/",
            "JobsTable": storage.jobs.table_name,
            "RuleStateTable": storage.rule_state.table_name,
            "NodeStateTable": storage.node_state.table_name,
            "DoorbellQueueUrl": ingest.doorbells.queue_url,
            "DoorbellDeadLetterQueueUrl": ingest.doorbell_dead_letters.queue_url,
            "EventDeadLetterQueueUrl": ingest.event_dead_letters.queue_url,
            "FireStateMachineArn": actions.state_machine_arn,
            "ReportStateMachineArn": reports.state_machine_arn,
            "StopSwitchParameter": actions.stop_switch.parameter_name,
            "DefaultSettingsParameter": settings.default.parameter_name,
            "SettingsPath": settings.path,
            "AlertTopicArn": actions.alerts.topic_arn,
            "ChatTopicArn": actions.chat.topic_arn,
            "OperationsTopicArn": monitoring.operations.topic_arn,
            "Version": version("trainguard"),
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
        bound_roles(self, config)
        acknowledge(self, findings_that_stand(storage, canary=config.canary))
