"""The stack: storage, ingest, evaluation, lifecycle, fire path, reports and alarms, put together."""

from aws_cdk import CfnOutput, Environment, IStackSynthesizer, Stack
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.actions import Actions
from infra.constructs.canary import build_canary
from infra.constructs.captures import Captures
from infra.constructs.dashboard import Dashboard
from infra.constructs.evaluation import MESSAGE_VISIBILITY_S, Evaluation
from infra.constructs.event_schemas import build_event_schemas
from infra.constructs.extras import build_ops_items, build_verdict, build_weekly_digest
from infra.constructs.forwarding import Forwarding
from infra.constructs.function import Platform
from infra.constructs.ingest import Ingest
from infra.constructs.layer import RulesLayer
from infra.constructs.lifecycle import build_lifecycle
from infra.constructs.live_sources import build_live_sources
from infra.constructs.monitoring import Monitoring, WatchedParts
from infra.constructs.nag import acknowledge, findings_that_stand
from infra.constructs.network import Network
from infra.constructs.policy import bound_roles
from infra.constructs.queries import Queries
from infra.constructs.reports import Reports
from infra.constructs.rollout import Rollout
from infra.constructs.settings import Settings
from infra.constructs.storage import Storage
from infra.constructs.webhook import Webhook
from infra.constructs.writers import let_accounts_write
from infra.context import feature_flags
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
        stack_name: str | None = None,
        env: Environment | None = None,
        synthesizer: IStackSynthesizer | None = None,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description="TrainGuard: profiler rules for SageMaker training jobs",
            stack_name=stack_name,
            env=env,
            synthesizer=synthesizer,
            termination_protection=config.keeps_itself,
        )
        for flag, value in feature_flags().items():
            self.node.set_context(flag, value)
        layer = RulesLayer(
            self, "RulesLayer", overlay=overlay, rules_package=config.rules_package, prices=config.prices
        )
        network, storage = Network(self, config), Storage(self, config)
        if storage.bucket:
            let_accounts_write(storage.bucket, config)
        settings = Settings(self, config)
        ingest = Ingest(self, config=config, storage=storage, visibility_s=MESSAGE_VISIBILITY_S)
        platform = Platform(
            config=config,
            overlay=overlay,
            layer=layer,
            placement=network.placement,
            storage=storage,
            undelivered=ingest.event_dead_letters,
            settings=settings,
            ingest=ingest,
        )
        actions = Actions(self, platform)
        reports = Reports(self, platform, actions.record_fire)
        captures = Captures(self, platform)
        live = build_live_sources(self, platform) if config.live_sources else None
        machines = {
            "FIRE_STATE_MACHINE_ARN": actions.state_machine_arn,
            "REPORT_STATE_MACHINE_ARN": reports.state_machine_arn,
            "KERNELS_STATE_MACHINE_ARN": captures.state_machine_arn,
        }
        evaluation = Evaluation(self, platform, machines=machines, poll_source=live)
        lifecycle = build_lifecycle(self, platform, actions.state_machine_arn)
        canary = build_canary(self, platform, actions) if config.canary else None
        verdict = build_verdict(self, platform) if config.verdict_endpoint else None
        digest = build_weekly_digest(self, platform, actions.topics) if config.weekly_digest else None
        stated = Forwarding(self, platform, config.central_bus_arn).function if config.central_bus_arn else None
        if config.webhook_secret:
            Webhook(self, platform, config.webhook_secret)
        ops_items = build_ops_items(self, platform) if config.ops_items else None
        if config.event_schemas:
            build_event_schemas(self, config.stack_name)
        others = (verdict, digest, live, ops_items)
        watched = WatchedParts(platform, evaluation, lifecycle, actions, reports, captures, canary, others)
        monitoring = Monitoring(self, watched)
        if config.gradual:
            faults = [monitoring.faults[name] for name in ("EvaluateObjects", "Scheduler")]
            Rollout(self, config, evaluation.live, faults)
        if config.dashboard:
            Dashboard(self, watched, monitoring.alarms)
        Queries(self, watched)
        self._tell(watched, monitoring)
        ingest.event_dead_letters.let_rules_send()
        bound_roles(self, config)
        # The dashboard of a release has one choice alone: it does not show this function.
        functions = (*watched.functions, *((stated,) if stated else ()))
        acknowledge(self, findings_that_stand(storage, config, functions))

    def _tell(self, parts: WatchedParts, monitoring: Monitoring) -> None:
        storage, settings, ingest = parts.platform.storage, parts.platform.settings, parts.platform.ingest
        outputs = {
            "ProfilerOutputUri": f"s3://{storage.bucket_name}/",
            "JobsTable": storage.jobs.table_name,
            "RuleStateTable": storage.rule_state.table_name,
            "NodeStateTable": storage.node_state.table_name,
            "BookkeepingTable": storage.bookkeeping.table_name,
            "DoorbellQueueUrl": ingest.evaluation_queue.queue_url,
            "DoorbellDeadLetterQueueUrl": ingest.evaluation_dead_letters.queue_url,
            "EventDeadLetterQueueUrl": ingest.event_dead_letters.queue_url,
            "FireStateMachineArn": parts.actions.state_machine_arn,
            "ReportStateMachineArn": parts.reports.state_machine_arn,
            "KernelsStateMachineArn": parts.captures.state_machine_arn,
            "StopSwitchParameter": parts.actions.stop_switch.parameter_name,
            "StopSwitchOverrideParameter": parts.actions.stop_switch_override,
            "BrakesParameter": settings.brakes,
            "DefaultSettingsParameter": settings.default.parameter_name,
            "SettingsPath": settings.path,
            "AlertTopicArn": parts.actions.alerts.topic_arn,
            "ChatTopicArn": parts.actions.topics["CHAT_TOPIC_ARN"],
            "OperationsTopicArn": monitoring.operations.topic_arn,
            "Version": __version__,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
