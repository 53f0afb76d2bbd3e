"""Alarms about TrainGuard itself, on a topic of their own.

Each has a section of the runbook, `docs/operations.md`. An alarm costs money for each metric that it reads: EventBridge
and logs come first.
"""

from dataclasses import dataclass

from aws_cdk import Aws, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as cloudwatch_actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.actions import Actions
from infra.constructs.canary import Canary
from infra.constructs.captures import Captures
from infra.constructs.encryption import own_key
from infra.constructs.evaluation import Evaluation
from infra.constructs.executions import FailedExecutions
from infra.constructs.faults import Faults
from infra.constructs.function import TrainGuardFunction
from infra.constructs.ingest import Ingest
from infra.constructs.lifecycle import Lifecycle
from infra.constructs.live_sources import LiveSources
from infra.constructs.measures import PERIOD, depth
from infra.constructs.reports import Reports
from infra.constructs.storage import Storage
from infra.constructs.subscribers import subscribe_address
from infra.constructs.verdict import VerdictEndpoint
from infra.constructs.weekly_digest import WeeklyDigest
from trainguard.aws.fault_points import AT_ONCE

RUNBOOK = "docs/operations.md"
EXECUTIONS_FAIL = "ExecutionsFail"

MESSAGE_AGE_LIMIT_S = 900
"""Older than two visibility timeouts: a message that failed once and came back is no reason for an alarm."""

_SCHEDULER_RUNS_EXPECTED = 3
_CANARY_PERIOD = Duration.hours(6)
_CANARY_PERIODS = 5

_MISSING_IS_FINE = cloudwatch.TreatMissingData.NOT_BREACHING
_MISSING_IS_BAD = cloudwatch.TreatMissingData.BREACHING
_MISSING_IS_BREACHING = cloudwatch.TreatMissingData.MISSING


@dataclass(frozen=True, slots=True)
class WatchedParts:
    """Parts of the stack for the alarms and the dashboard."""

    storage: Storage
    ingest: Ingest
    evaluation: Evaluation
    lifecycle: Lifecycle
    actions: Actions
    reports: Reports
    captures: Captures
    canary: Canary | None
    verdict: VerdictEndpoint | None = None
    digest: WeeklyDigest | None = None
    live: LiveSources | None = None

    @property
    def functions(self) -> tuple[TrainGuardFunction, ...]:
        """All functions of the stack."""
        reports, actions = self.reports, self.actions
        return (
            self.evaluation.evaluate_objects,
            self.evaluation.scheduler,
            self.evaluation.reconcile_job,
            self.lifecycle.job_lifecycle,
            actions.record_fire,
            actions.decide_stop,
            actions.stop_job,
            actions.send_alert,
            reports.plan_report,
            reports.digest_profile,
            reports.build_report,
            *self.captures.functions,
            *(() if self.canary is None else (self.canary.function,)),
            *(() if self.verdict is None else (self.verdict.function,)),
            *(() if self.digest is None else (self.digest.function,)),
            *(() if self.live is None else (self.live.function,)),
        )

    @property
    def table_names(self) -> dict[str, str]:
        """Names of the tables by their titles."""
        storage = self.storage
        return {
            "Jobs": storage.jobs.table_name,
            "RuleState": storage.rule_state.table_name,
            "NodeState": storage.node_state.table_name,
        }


class Monitoring(Construct):
    """The alarms, each of which notifies the operations topic when it goes into ALARM, and when it is OK again."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: DeploymentConfig,
        parts: WatchedParts,
    ) -> None:
        super().__init__(scope, construct_id)
        self.alarms: list[cloudwatch.Alarm] = []
        self.operations = self._build_operations(config, parts.ingest.event_dead_letters)
        self._build_queue_alarms(parts)
        self._build_scheduler_alarm(parts)
        self._build_fault_alarm(config, parts)
        if parts.canary:
            self._build_canary_alarm(parts.canary)
        machines = (parts.actions, parts.reports, parts.captures)
        FailedExecutions(
            self,
            EXECUTIONS_FAIL,
            machine_arns=[machine.state_machine_arn for machine in machines],
            topic=self.operations,
            runbook=f"{RUNBOOK}#{EXECUTIONS_FAIL.lower()}",
            undelivered=parts.ingest.event_dead_letters,
        )

    def _build_operations(self, config: DeploymentConfig, undelivered: sqs.IQueue) -> sns.Topic:
        topic = sns.Topic(
            self,
            "Operations",
            display_name="TrainGuard operations",
            enforce_ssl=True,
            master_key=own_key(self, config),
        )
        # A topic with a policy of its own loses the default one, through which CloudWatch would publish.
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )
        for address in config.operations_emails:
            subscribe_address(topic, address, undelivered=undelivered)
        return topic

    def _build_queue_alarms(self, parts: WatchedParts) -> None:
        dead_letters = {
            "DoorbellDeadLettersPresent": (
                parts.ingest.evaluation_dead_letters,
                "Messages that no evaluator could handle: read them, repair, redrive",
            ),
            "EventDeadLettersPresent": (
                parts.ingest.event_dead_letters,
                "Events or notices that were not delivered, or whose function failed: read them and send them again",
            ),
        }
        for name, (queue, meaning) in dead_letters.items():
            self._alarm(name, meaning, depth(queue))
        self._alarm(
            "DoorbellsWaitTooLong",
            f"The oldest message waits for more than {MESSAGE_AGE_LIMIT_S} s: verdicts are late",
            parts.ingest.evaluation_queue.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum"),
            threshold=MESSAGE_AGE_LIMIT_S,
        )

    def _build_fault_alarm(self, config: DeploymentConfig, parts: WatchedParts) -> None:
        evaluation = parts.evaluation
        watched = [evaluation.evaluate_objects, evaluation.scheduler, evaluation.reconcile_job]
        watched.append(parts.lifecycle.job_lifecycle)
        if parts.canary:
            watched.append(parts.canary.function)
        faults = Faults(
            self,
            "Faults",
            namespace=config.stack_name,
            functions=watched,
            undelivered=parts.actions.delivery.log_group,
        )
        self._alarm(
            "FaultsFound",
            "Functions fail, a rule raises, verdicts are late, jobs are left out, or an alert was not delivered: the "
            "saved query Faults names them",
            faults.points,
            threshold=AT_ONCE,
        )

    def _build_scheduler_alarm(self, parts: WatchedParts) -> None:
        self._alarm(
            "SchedulerDoesNotRun",
            "The scheduler runs less often than it should: gaps, silent nodes and unsent fires wait",
            parts.evaluation.scheduler.function.metric_invocations(period=PERIOD, statistic="Sum"),
            threshold=_SCHEDULER_RUNS_EXPECTED,
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            evaluation_periods=2,
            missing=_MISSING_IS_BAD,
        )

    def _build_canary_alarm(self, canary: Canary) -> None:
        """Alert when the canary's schedule does not call; a failed canary is a fault among the others.

        Then the state is insufficient data: a new deployment begins in that state, and an alarm sends no message about
        its first state.
        """
        self._alarm(
            "CanaryDoesNotRun",
            "The canary was not called for 30 hours: it is unknown whether the deployment detects and alerts",
            canary.function.function.metric_invocations(period=_CANARY_PERIOD, statistic="Sum"),
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            evaluation_periods=_CANARY_PERIODS,
            missing=_MISSING_IS_BREACHING,
        )

    def _alarm(
        self,
        name: str,
        meaning: str,
        metric: cloudwatch.IMetric,
        *,
        threshold: float = 1,
        comparison: cloudwatch.ComparisonOperator = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        evaluation_periods: int = 1,
        missing: cloudwatch.TreatMissingData = _MISSING_IS_FINE,
    ) -> None:
        """Make an alarm that sends each change of its state to the operations topic, all with the same description."""
        states = "ALARM or INSUFFICIENT_DATA" if missing is _MISSING_IS_BREACHING else "ALARM"
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_description=f"{states}: {meaning}. OK: that is over. What to do: {RUNBOOK}#{name.lower()}",
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=evaluation_periods,
            treat_missing_data=missing,
        )
        operations = cloudwatch_actions.SnsAction(self.operations)
        alarm.add_alarm_action(operations)
        alarm.add_ok_action(operations)
        if missing is _MISSING_IS_BREACHING:
            alarm.add_insufficient_data_action(operations)
        self.alarms.append(alarm)
