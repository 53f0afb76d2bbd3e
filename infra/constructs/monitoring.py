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
from infra.constructs.captures import Captures
from infra.constructs.encryption import own_key
from infra.constructs.evaluation import Evaluation
from infra.constructs.executions import FailedExecutions
from infra.constructs.faults import UNDELIVERED, fault_points
from infra.constructs.function import Platform, TrainGuardFunction
from infra.constructs.measures import PERIOD, depth
from infra.constructs.reports import Reports
from infra.constructs.subscribers import subscribe_address
from trainguard.aws.fault_points import AT_ONCE

RUNBOOK = "docs/operations.md"
EXECUTIONS_FAIL = "ExecutionsFail"
FAULTS_FOUND = "FaultsFound"
_FAULTS_FOUND = {
    UNDELIVERED: "SNS gave up on a subscriber: an alert was not delivered",
    "Scheduler": "Scheduler or ReconcileJob fails, or counts faults: the saved query Faults names them",
}

# Older than two visibility timeouts: a message that failed once and came back is no reason for an alarm.
MESSAGE_AGE_LIMIT_S = 900

_SCHEDULER_RUNS_EXPECTED = 3
_CANARY_PERIOD = Duration.hours(6)
_CANARY_PERIODS = 5


@dataclass(frozen=True, slots=True)
class WatchedParts:
    platform: Platform
    evaluation: Evaluation
    lifecycle: TrainGuardFunction
    actions: Actions
    reports: Reports
    captures: Captures
    canary: TrainGuardFunction | None
    others: tuple[TrainGuardFunction | None, ...] = ()

    @property
    def functions(self) -> tuple[TrainGuardFunction, ...]:
        return (
            self.evaluation.evaluate_objects,
            self.evaluation.scheduler,
            self.evaluation.reconcile_job,
            self.lifecycle,
            *self.actions.functions,
            *self.reports.functions,
            *self.captures.functions,
            *(part for part in (self.canary, *self.others) if part is not None),
        )

    @property
    def table_names(self) -> dict[str, str]:
        storage = self.platform.storage
        tables = {"Jobs": storage.jobs, "RuleState": storage.rule_state, "NodeState": storage.node_state}
        return {title: table.table_name for title, table in tables.items()}


class Monitoring(Construct):
    """The alarms, each of which notifies the operations topic when it goes into ALARM, and when it is OK again."""

    def __init__(self, scope: Construct, parts: WatchedParts) -> None:
        super().__init__(scope, "Monitoring")
        self.alarms: list[cloudwatch.Alarm] = []
        config, ingest, undelivered = parts.platform.config, parts.platform.ingest, parts.platform.undelivered
        self.operations = self._build_operations(config, undelivered)
        self._alarm(
            "DoorbellDeadLettersPresent",
            "Messages that no evaluator could handle: read them, repair, redrive",
            depth(ingest.evaluation_dead_letters),
        )
        self._alarm(
            "EventDeadLettersPresent",
            "Events or notices that were not delivered, or whose function failed: read them and send them again",
            depth(ingest.event_dead_letters),
        )
        self._alarm(
            "DoorbellsWaitTooLong",
            f"The oldest message waits for more than {MESSAGE_AGE_LIMIT_S} s: verdicts are late",
            ingest.evaluation_queue.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum"),
            threshold=MESSAGE_AGE_LIMIT_S,
        )
        self._alarm(
            "SchedulerDoesNotRun",
            "The scheduler runs less often than it should: gaps, silent nodes and unsent fires wait",
            parts.evaluation.scheduler.function.metric_invocations(period=PERIOD, statistic="Sum"),
            threshold=_SCHEDULER_RUNS_EXPECTED,
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            evaluation_periods=2,
            missing=cloudwatch.TreatMissingData.MISSING,
        )
        evaluation = parts.evaluation
        watched = [evaluation.evaluate_objects, evaluation.scheduler, evaluation.reconcile_job, parts.lifecycle]
        watched += [parts.canary] if parts.canary else []
        for words, points in fault_points(self, config.stack_name, watched, parts.actions.delivery.log_group).items():
            found = _FAULTS_FOUND.get(words, f"{words} fails, or counts faults: the saved query Faults names them")
            self._alarm(f"{FAULTS_FOUND}{words}", found, points, threshold=AT_ONCE)
        if parts.canary:
            # A failed canary is a fault of its function.
            self._alarm(
                "CanaryDoesNotRun",
                "The canary was not called for 30 hours: it is unknown whether the deployment detects and alerts",
                parts.canary.function.metric_invocations(period=_CANARY_PERIOD, statistic="Sum"),
                comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
                evaluation_periods=_CANARY_PERIODS,
                missing=cloudwatch.TreatMissingData.MISSING,
            )
        machines = (parts.actions, parts.reports, parts.captures)
        FailedExecutions(
            self,
            EXECUTIONS_FAIL,
            machine_arns=[machine.state_machine_arn for machine in machines],
            topic=self.operations,
            runbook=f"{RUNBOOK}#{EXECUTIONS_FAIL.lower()}",
            undelivered=undelivered,
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

    def _alarm(
        self,
        name: str,
        meaning: str,
        metric: cloudwatch.IMetric,
        *,
        threshold: float = 1,
        comparison: cloudwatch.ComparisonOperator = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        evaluation_periods: int = 1,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        """Make an alarm that sends each change of its state to the operations topic, all with the same description.

        An alarm about silence begins with insufficient data at a first deployment, of which nothing is sent: only
        changes are.
        """
        section = FAULTS_FOUND if name.startswith(FAULTS_FOUND) else name
        tells_of_silence = missing is cloudwatch.TreatMissingData.MISSING
        states = "ALARM or INSUFFICIENT_DATA" if tells_of_silence else "ALARM"
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_description=f"{states}: {meaning}. OK: that is over. What to do: {RUNBOOK}#{section.lower()}",
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=evaluation_periods,
            treat_missing_data=missing,
        )
        operations = cloudwatch_actions.SnsAction(self.operations)
        alarm.add_alarm_action(operations)
        alarm.add_ok_action(operations)
        if tells_of_silence:
            alarm.add_insufficient_data_action(operations)
        self.alarms.append(alarm)
