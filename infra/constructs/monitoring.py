"""Alarms about TrainGuard itself, on a topic of their own: who reads alerts about training need not hear of queues."""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Aws, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as cloudwatch_actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.actions import Actions
from infra.constructs.evaluation import Evaluation
from infra.constructs.function import METRICS_NAMESPACE, TrainGuardFunction
from infra.constructs.ingest import Ingest
from infra.constructs.lifecycle import Lifecycle
from infra.constructs.reports import Reports

DOORBELL_AGE_LIMIT_S = 900
"""Older than two visibility timeouts: a doorbell that failed once and came back is no reason to wake anybody."""

_PERIOD = Duration.minutes(5)
_TICKS_EXPECTED = 3

_MISSING_IS_FINE = cloudwatch.TreatMissingData.NOT_BREACHING
_MISSING_IS_BAD = cloudwatch.TreatMissingData.BREACHING


@dataclass(frozen=True, slots=True)
class WatchedParts:
    """What the alarms watch."""

    ingest: Ingest
    evaluation: Evaluation
    lifecycle: Lifecycle
    actions: Actions
    reports: Reports


class Monitoring(Construct):
    """The alarms, each with the operations topic as its action.

    Attributes
    ----------
    operations : aws_sns.Topic
        Where alarms go.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: DeploymentConfig,
        parts: WatchedParts,
    ) -> None:
        super().__init__(scope, construct_id)
        self.operations = self._build_operations(config, parts.ingest.event_dead_letters)
        self._build_queue_alarms(parts)
        self._build_function_alarms(parts)
        self._build_execution_alarms(parts)
        self._build_product_alarms(parts)

    def _build_operations(self, config: DeploymentConfig, undelivered: sqs.IQueue) -> sns.Topic:
        topic = sns.Topic(self, "Operations", display_name="TrainGuard operations", enforce_ssl=True)
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
            topic.add_subscription(subscriptions.EmailSubscription(address, dead_letter_queue=undelivered))
        return topic

    def _build_queue_alarms(self, parts: WatchedParts) -> None:
        dead_letters = {
            "DoorbellDeadLettersPresent": (
                parts.ingest.doorbell_dead_letters,
                "Doorbells that no evaluator could handle: read them, repair, redrive",
            ),
            "EventDeadLettersPresent": (
                parts.ingest.event_dead_letters,
                "Events or notices that were not delivered, or whose function failed: read them and send them again",
            ),
        }
        for name, (queue, meaning) in dead_letters.items():
            self._alarm(name, meaning, _depth(queue))
        self._alarm(
            "DoorbellsWaitTooLong",
            f"The oldest doorbell waits for more than {DOORBELL_AGE_LIMIT_S} s: verdicts are late",
            parts.ingest.doorbells.metric_approximate_age_of_oldest_message(period=_PERIOD, statistic="Maximum"),
            threshold=DOORBELL_AGE_LIMIT_S,
        )

    def _build_function_alarms(self, parts: WatchedParts) -> None:
        evaluate, tick = parts.evaluation.evaluate_objects, parts.evaluation.tick
        lifecycle = parts.lifecycle.job_lifecycle
        for name, part in {"EvaluateObjectsFails": evaluate, "TickFails": tick, "JobLifecycleFails": lifecycle}.items():
            self._alarm(
                name,
                f"Invocations of {part.service_name} end in an error: see its log",
                part.function.metric_errors(period=_PERIOD, statistic="Sum"),
            )
        self._alarm(
            "TickDoesNotRun",
            "The tick runs less often than it should: gaps, silent nodes and unsent fires are not looked after",
            tick.function.metric_invocations(period=_PERIOD, statistic="Sum"),
            threshold=_TICKS_EXPECTED,
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            evaluation_periods=2,
            missing=_MISSING_IS_BAD,
        )
        throttles = [
            part.function.metric_throttles(period=_PERIOD, statistic="Sum") for part in (evaluate, tick, lifecycle)
        ]
        self._alarm("FunctionsAreThrottled", "The account's Lambda concurrency is used up", _sum_of(throttles))

    def _build_execution_alarms(self, parts: WatchedParts) -> None:
        machines = {
            "FireExecutionsFail": (
                parts.actions.state_machine_arn,
                "A step of the fire path failed: the execution's cause says which of stop, alert, report or record",
            ),
            "ReportExecutionsFail": (
                parts.reports.state_machine_arn,
                "A full report was not made, or not of all there is: the execution's cause says which step failed",
            ),
        }
        for name, (arn, meaning) in machines.items():
            self._alarm(name, meaning, _sum_of(_bad_ends(arn)))

    def _build_product_alarms(self, parts: WatchedParts) -> None:
        evaluators = (parts.evaluation.evaluate_objects, parts.evaluation.tick)
        meanings = {
            "StateConflictsExhausted": "Writers of one node kept displacing each other, and messages were given back",
            "RuleErrors": "A rule raised an error and its row says ERROR: its verdict is missing",
        }
        for name, meaning in meanings.items():
            self._alarm(name, meaning, _sum_of([_product_metric(name, part) for part in evaluators]))

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
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_description=meaning,
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=evaluation_periods,
            treat_missing_data=missing,
        )
        alarm.add_alarm_action(cloudwatch_actions.SnsAction(self.operations))


def _depth(queue: sqs.Queue) -> cloudwatch.Metric:
    return queue.metric_approximate_number_of_messages_visible(period=_PERIOD, statistic="Maximum")


def _bad_ends(state_machine_arn: str) -> list[cloudwatch.Metric]:
    """Return the metrics of a state machine's executions that did not succeed."""
    of_machine = {"StateMachineArn": state_machine_arn}
    return [
        cloudwatch.Metric(
            namespace="AWS/States", metric_name=name, dimensions_map=of_machine, period=_PERIOD, statistic="Sum"
        )
        for name in ("ExecutionsFailed", "ExecutionsTimedOut", "ExecutionsAborted")
    ]


def _product_metric(name: str, part: TrainGuardFunction) -> cloudwatch.Metric:
    """Return a metric that the functions themselves emit; Powertools adds the dimension ``service``."""
    return cloudwatch.Metric(
        namespace=METRICS_NAMESPACE,
        metric_name=name,
        dimensions_map={"service": part.service_name},
        period=_PERIOD,
        statistic="Sum",
    )


def _sum_of(metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.MathExpression:
    named = {f"m{number}": metric for number, metric in enumerate(metrics)}
    terms = " + ".join(f"FILL({name}, 0)" for name in named)
    return cloudwatch.MathExpression(expression=terms, using_metrics=named, period=_PERIOD)
