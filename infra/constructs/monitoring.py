"""Alarms about TrainGuard itself, on a topic of their own.

Each has a section of the runbook, `docs/operations.md`. An alarm costs money for each metric that it reads: EventBridge
and logs come first.
"""

from dataclasses import dataclass

from aws_cdk import Aws
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as cloudwatch_actions
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.actions import Actions
from infra.constructs.captures import Captures
from infra.constructs.encryption import own_key
from infra.constructs.evaluation import Evaluation
from infra.constructs.function import Platform, TrainGuardFunction
from infra.constructs.measures import PERIOD, UNDELIVERED, arrivals, fault_points
from infra.constructs.reports import Reports
from infra.constructs.topics import Notices, ended_badly, recovered, subscribe_address
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

# They run once a week, or for a broken GPU.
_RARE = frozenset({"open_ops_items", "weekly_digest"})


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
    def shown(self) -> tuple[TrainGuardFunction, ...]:
        """Those that the dashboard shows: a parameter of a release cannot change its text by what it adds."""
        return tuple(part for part in self.functions if part.service_name not in _RARE)

    @property
    def table_names(self) -> dict[str, str]:
        storage = self.platform.storage
        tables = {
            "Jobs": storage.jobs,
            "RuleState": storage.rule_state,
            "NodeState": storage.node_state,
            "Bookkeeping": storage.bookkeeping,
        }
        return {title: table.table_name for title, table in tables.items()}


class Monitoring(Construct):
    """The alarms, each of which notifies the operations topic when it goes into ALARM, and when that is over."""

    def __init__(self, scope: Construct, parts: WatchedParts) -> None:
        super().__init__(scope, "Monitoring")
        self.alarms: list[cloudwatch.Alarm] = []
        self.faults: dict[str, cloudwatch.Alarm] = {}
        self._of_arrivals: list[cloudwatch.Alarm] = []
        config, ingest, undelivered = parts.platform.config, parts.platform.ingest, parts.platform.undelivered
        self.operations = self._build_operations(config, undelivered)
        self._alarm_of_arrivals(
            "DoorbellDeadLettersPresent",
            "Messages that no evaluator could handle: read them, repair, redrive",
            ingest.evaluation_dead_letters,
        )
        self._alarm_of_arrivals(
            "EventDeadLettersPresent",
            "Events or notices that were not delivered, or whose function failed: read them and send them again",
            ingest.event_dead_letters,
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
        silence = evaluation.scheduler.log_group if parts.canary else None
        counted = fault_points(self, config.stack_name, watched, parts.actions.delivery.log_group, silence)
        for words, points in counted.items():
            found = _FAULTS_FOUND.get(words, f"{words} fails, or counts faults: the saved query Faults names them")
            self.faults[words] = self._alarm(f"{FAULTS_FOUND}{words}", found, points, threshold=AT_ONCE)
        machines = (parts.actions, parts.reports, parts.captures)
        value = events.EventField.from_path
        ended = f"{value('$.detail.executionArn')} ended as {value('$.detail.status')}"
        section = f"{RUNBOOK}#{EXECUTIONS_FAIL.lower()}"
        Notices(
            self,
            EXECUTIONS_FAIL,
            pattern=ended_badly([machine.state_machine_arn for machine in machines]),
            what="executions that failed",
            notice=(
                f":warning: TrainGuard: {EXECUTIONS_FAIL}",
                f"{ended}. What it means, and what to do: {section}",
            ),
            topic=self.operations,
            undelivered=undelivered,
        )
        Notices(
            self,
            "AlarmsEnd",
            pattern=recovered([alarm.alarm_arn for alarm in self.alarms if alarm not in self._of_arrivals]),
            what="alarms that are over",
            notice=(
                f":white_check_mark: TrainGuard: {value('$.detail.alarmName')} is OK",
                f"Since {value('$.detail.state.timestamp')}. {value('$.detail.state.reason')}",
            ),
            topic=self.operations,
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
    ) -> cloudwatch.Alarm:
        """Make an alarm that notifies the operations topic.

        An alarm about silence begins with insufficient data at a first deployment, of which nothing is sent: only
        changes are.
        """
        section = FAULTS_FOUND if name.startswith(FAULTS_FOUND) else name
        tells_of_silence = missing is cloudwatch.TreatMissingData.MISSING
        states = "ALARM or INSUFFICIENT_DATA" if tells_of_silence else "ALARM"
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_description=f"{states}: {meaning}. What to do: {RUNBOOK}#{section.lower()}",
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=evaluation_periods,
            treat_missing_data=missing,
        )
        operations = cloudwatch_actions.SnsAction(self.operations)
        alarm.add_alarm_action(operations)
        if tells_of_silence:
            alarm.add_insufficient_data_action(operations)
        self.alarms.append(alarm)
        return alarm

    def _alarm_of_arrivals(self, name: str, meaning: str, queue: sqs.Queue) -> None:
        """Make an alarm of each further dead letter: one lies for 14 days, and its number would hide the next.

        The end says nothing: the letters still lie there.
        """
        self._of_arrivals.append(self._alarm(name, meaning, arrivals(queue)))
