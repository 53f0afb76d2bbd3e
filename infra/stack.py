"""The stack: storage, ingest, evaluation, lifecycle, fire path, reports and alarms, put together."""

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.actions import Actions
from infra.constructs.evaluation import DOORBELL_VISIBILITY_S, Evaluation
from infra.constructs.function import FunctionPlatform
from infra.constructs.ingest import Ingest
from infra.constructs.layer import RulesLayer
from infra.constructs.lifecycle import Lifecycle
from infra.constructs.monitoring import Monitoring, WatchedParts
from infra.constructs.nag import acknowledge, findings_that_stand
from infra.constructs.reports import Reports
from infra.constructs.storage import Storage
from infra.overlay import Overlay


class TrainGuardStack(Stack):
    """Everything that TrainGuard deploys into an account and region."""

    def __init__(self, scope: Construct, construct_id: str, *, config: DeploymentConfig, overlay: Overlay) -> None:
        super().__init__(scope, construct_id, description="TrainGuard: profiler rules for SageMaker training jobs")
        layer = RulesLayer(self, "RulesLayer", overlay=overlay)
        platform = FunctionPlatform(config=config, overlay=overlay, layer=layer)
        storage = Storage(self, "Storage", config=config)
        ingest = Ingest(self, "Ingest", bucket_name=storage.bucket_name, visibility_s=DOORBELL_VISIBILITY_S)
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
            fire_machine_arn=actions.state_machine_arn,
            report_machine_arn=reports.state_machine_arn,
        )
        lifecycle = Lifecycle(self, "Lifecycle", platform=platform, storage=storage, ingest=ingest)
        watched = WatchedParts(
            ingest=ingest, evaluation=evaluation, lifecycle=lifecycle, actions=actions, reports=reports
        )
        monitoring = Monitoring(self, "Monitoring", config=config, parts=watched)
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
            "AlertTopicArn": actions.alerts.topic_arn,
            "OperationsTopicArn": monitoring.operations.topic_arn,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
        acknowledge(self, findings_that_stand(storage))
