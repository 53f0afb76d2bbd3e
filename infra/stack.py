"""The stack: storage, ingest, evaluation, lifecycle, fire path, reports and alarms, put together."""

from aws_cdk import CfnOutput, IStackSynthesizer, Stack
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.actions import Actions
from infra.constructs.canary import Canary
from infra.constructs.captures import Captures
from infra.constructs.dashboard import Dashboard
from infra.constructs.evaluation import MESSAGE_VISIBILITY_S, Evaluation
from infra.constructs.forwarding import Forwarding
from infra.constructs.function import FunctionPlatform
from infra.constructs.ingest import Ingest
from infra.constructs.layer import RulesLayer
from infra.constructs.lifecycle import Lifecycle
from infra.constructs.live_sources import LiveSources
from infra.constructs.monitoring import Monitoring, WatchedParts
from infra.constructs.nag import acknowledge, findings_that_stand
from infra.constructs.network import Network
from infra.constructs.policy import bound_roles
from infra.constructs.queries import Queries
from infra.constructs.reports import Reports
from infra.constructs.settings import Settings
from infra.constructs.storage import Storage
from infra.constructs.verdict import VerdictEndpoint
from infra.constructs.weekly_digest import WeeklyDigest
from infra.constructs.writers import let_accounts_write
from infra.overlay import Overlay
from trainguard import __version__


class TrainGuardStack(Stack):
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: DeploymentConfig,
        overlay: Overlay,
        synthesizer: IStackSynthesizer | None = None,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description="TrainGuard: profiler rules for SageMaker training jobs",
            synthesizer=synthesizer,
        )
        layer = RulesLayer(
            self, "RulesLayer", overlay=overlay, rules_package=config.rules_package, prices=config.prices
        )
        network = Network(self, "Network", config=config)
        platform = FunctionPlatform(config=config, overlay=overlay, layer=layer, placement=network.placement)
        storage = Storage(self, "Storage", config=config)
        if storage.bucket:
            let_accounts_write(storage.bucket, config)
        settings = Settings(self, "Settings", config=config)
        ingest = Ingest(self, "Ingest", config=config, storage=storage, visibility_s=MESSAGE_VISIBILITY_S)
        undelivered = ingest.event_dead_letters
        reports = Reports(self, "Reports", platform=platform, storage=storage)
        actions = Actions(
            self,
            "Actions",
            platform=platform,
            storage=storage,
            undelivered=undelivered,
            build_report=reports.build_report,
        )
        captures = Captures(self, "Captures", platform=platform, storage=storage, task_queue=ingest.evaluation_queue)
        live = None
        if config.live_sources:
            live = LiveSources(self, "LiveSources", platform=platform, storage=storage, ingest=ingest)
        evaluation = Evaluation(
            self,
            "Evaluation",
            platform=platform,
            storage=storage,
            ingest=ingest,
            settings=settings,
            machines={
                "FIRE_STATE_MACHINE_ARN": actions.state_machine_arn,
                "REPORT_STATE_MACHINE_ARN": reports.state_machine_arn,
                "KERNELS_STATE_MACHINE_ARN": captures.state_machine_arn,
            },
            poll_source=live.function if live else None,
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
            canary = Canary(self, "Canary", platform=platform, storage=storage, undelivered=undelivered)
        verdict = None
        if config.verdict_endpoint:
            verdict = VerdictEndpoint(self, "Verdict", platform=platform, storage=storage)
            CfnOutput(self, "VerdictUrl", value=verdict.url)
        digest = None
        if config.weekly_digest:
            digest = WeeklyDigest(
                self, "WeeklyDigest", platform=platform, storage=storage, actions=actions, undelivered=undelivered
            )
        watched = WatchedParts(
            storage=storage,
            ingest=ingest,
            evaluation=evaluation,
            lifecycle=lifecycle,
            actions=actions,
            reports=reports,
            captures=captures,
            canary=canary,
            verdict=verdict,
            digest=digest,
            live=live,
        )
        monitoring = Monitoring(self, "Monitoring", config=config, parts=watched)
        if config.dashboard:
            Dashboard(self, "Dashboard", config=config, parts=watched, alarms=monitoring.alarms)
        Queries(self, "Queries", stack_name=config.stack_name, functions=watched.functions)
        if config.central_bus_arn:
            Forwarding(
                self, "Forwarding", config=config, central_bus_arn=config.central_bus_arn, undelivered=undelivered
            )
        self._tell(watched, settings, monitoring)
        bound_roles(self, config)
        acknowledge(self, findings_that_stand(storage, config, watched.functions))

    def _tell(self, parts: WatchedParts, settings: Settings, monitoring: Monitoring) -> None:
        outputs = {
            "ProfilerOutputUri": f"s3://{parts.storage.bucket_name}/",
            "JobsTable": parts.storage.jobs.table_name,
            "RuleStateTable": parts.storage.rule_state.table_name,
            "NodeStateTable": parts.storage.node_state.table_name,
            "DoorbellQueueUrl": parts.ingest.evaluation_queue.queue_url,
            "DoorbellDeadLetterQueueUrl": parts.ingest.evaluation_dead_letters.queue_url,
            "EventDeadLetterQueueUrl": parts.ingest.event_dead_letters.queue_url,
            "FireStateMachineArn": parts.actions.state_machine_arn,
            "ReportStateMachineArn": parts.reports.state_machine_arn,
            "KernelsStateMachineArn": parts.captures.state_machine_arn,
            "StopSwitchParameter": parts.actions.stop_switch.parameter_name,
            "StopSwitchOverrideParameter": parts.actions.stop_switch_override,
            "DefaultSettingsParameter": settings.default.parameter_name,
            "SettingsPath": settings.path,
            "AlertTopicArn": parts.actions.alerts.topic_arn,
            "ChatTopicArn": parts.actions.topics["CHAT_TOPIC_ARN"],
            "OperationsTopicArn": monitoring.operations.topic_arn,
            "Version": __version__,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
