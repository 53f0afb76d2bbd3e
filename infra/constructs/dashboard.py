"""One dashboard of the deployment: how far behind, what came in, what fired, what failed, what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Aws
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.measures import BAD_ENDS, PERIOD, depth, of_machine, of_table, product_metric
from infra.constructs.monitoring import WatchedParts
from infra.constructs.operating_cost import cost_an_hour
from trainguard.aws.fault_points import LATE_S

_COLUMNS = 24
_HEIGHT = 6

USED = ("ObjectsApplied", "Duplicates", "ForeignKeys", "SlowObjects")
UNUSED = ("Late", "Gaps", "BadObjects", "BadLines", "BadEvents", "TruncatedObjects", "WrongNode")
TROUBLE = (
    "StateConflicts",
    "StateConflictsExhausted",
    "PortFailures",
    "EvaluationFailures",
    "EvaluationsUnfinished",
    "RuleErrors",
)
STOPS = ("StopsMade", "StopsFailed", "StopsRefused", "StopsAnnounced", "StopsInDryRun")


@dataclass(frozen=True, slots=True)
class Chart:
    """Metrics over time; those of ``right`` have an axis of their own, ``limit`` is a line across."""

    title: str
    left: Sequence[cloudwatch.IMetric]
    right: Sequence[cloudwatch.IMetric] = ()
    limit: float | None = None

    def widget(self, width: int) -> cloudwatch.GraphWidget:
        """Return the chart as a widget."""
        lines = [] if self.limit is None else [cloudwatch.HorizontalAnnotation(value=self.limit, label="alarm")]
        return cloudwatch.GraphWidget(
            title=self.title,
            left=list(self.left),
            right=list(self.right),
            left_annotations=lines,
            width=width,
            height=_HEIGHT,
        )


class Dashboard(Construct):
    """The dashboard; its widgets stand in rows of one topic each."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: DeploymentConfig,
        parts: WatchedParts,
        alarms: list[cloudwatch.Alarm],
    ) -> None:
        super().__init__(scope, construct_id)
        self._parts = parts
        rows = [
            self._verdicts(),
            self._input(),
            self._findings(),
            self._machines(),
            self._queues(),
            self._functions(),
            self._tables(),
            [*self._canary(), self._cost()],
        ]
        states = cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=_COLUMNS, height=4)
        # Dashboards belong to the account, not to a Region.
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=f"{config.stack_name}-{Aws.REGION}",
            widgets=[[states], *([chart.widget(_COLUMNS // len(row)) for chart in row] for row in rows)],
        )

    def _verdicts(self) -> list[Chart]:
        evaluation = self._parts.evaluation
        evaluate, scheduler, look = evaluation.evaluate_objects, evaluation.scheduler, evaluation.reconcile_job
        lag = [
            product_metric("EvaluationLagSeconds", evaluate, statistic=statistic, label=statistic)
            for statistic in ("p50", "p90", "Maximum")
        ]
        return [
            Chart("Verdicts behind the clock (s)", lag, limit=LATE_S),
            Chart(
                "Jobs evaluated each minute",
                [
                    product_metric("ActiveJobs", scheduler, statistic="Maximum", label="active"),
                    product_metric("ReconcileFailures", look, label="evaluations that failed"),
                    product_metric("ReconcileFailures", scheduler, label="evaluations that Lambda refused"),
                    product_metric("SchedulerUnfinished", scheduler, label="runs without time for all"),
                    look.function.metric(
                        "AsyncEventsDropped", period=PERIOD, statistic="Sum", label="evaluations that were dropped"
                    ),
                ],
            ),
        ]

    def _input(self) -> list[Chart]:
        evaluate = self._parts.evaluation.evaluate_objects
        return [
            Chart("Objects", [product_metric(name, evaluate) for name in USED]),
            Chart("What could not be used", [product_metric(name, evaluate) for name in UNUSED]),
            Chart("What was in the way", [product_metric(name, evaluate) for name in TROUBLE]),
        ]

    def _findings(self) -> list[Chart]:
        evaluation, actions = self._parts.evaluation, self._parts.actions
        namespace = evaluation.evaluate_objects.metrics_namespace
        # A stack's name with a hyphen must stand in quotation marks.
        search = f"SEARCH('{{\"{namespace}\",service,RuleName}} MetricName=\"FiresOfRule\"', 'Sum', 300)"
        fires = cloudwatch.MathExpression(expression=search, using_metrics={}, label="", period=PERIOD)
        alerts = actions.alerts
        return [
            Chart("Fires, by rule and who saw them", [fires]),
            Chart(
                "Alerts",
                [
                    alerts.metric_number_of_messages_published(period=PERIOD, label="published"),
                    alerts.metric_number_of_notifications_delivered(period=PERIOD, label="delivered"),
                    alerts.metric_number_of_notifications_failed(period=PERIOD, label="not delivered"),
                    alerts.metric_number_of_notifications_filtered_out(period=PERIOD, label="filtered out"),
                ],
            ),
            Chart("Stops", [product_metric(name, actions.send_alert) for name in STOPS]),
        ]

    def _machines(self) -> list[Chart]:
        machines = {
            "Fire machine": self._parts.actions.state_machine_arn,
            "Report machine": self._parts.reports.state_machine_arn,
            "Kernel machine": self._parts.captures.state_machine_arn,
        }
        return [
            Chart(
                title=title,
                left=[of_machine(name, arn, label=name) for name in ("ExecutionsStarted", *BAD_ENDS)],
                right=[of_machine("ExecutionTime", arn, statistic="p90", label="p90 (ms)")],
            )
            for title, arn in machines.items()
        ]

    def _queues(self) -> list[Chart]:
        ingest = self._parts.ingest
        age = ingest.evaluation_queue.metric_approximate_age_of_oldest_message(
            period=PERIOD, statistic="Maximum", label="oldest (s)"
        )
        return [
            Chart("Doorbells", left=[depth(ingest.evaluation_queue, label="waiting")], right=[age]),
            Chart(
                "Dead letters",
                [
                    depth(ingest.evaluation_dead_letters, label="messages"),
                    depth(ingest.event_dead_letters, label="events and notices"),
                ],
            ),
        ]

    def _functions(self) -> list[Chart]:
        functions = {part.service_name: part.function for part in self._parts.functions}
        return [
            Chart(
                "Duration, p90 (ms)",
                [each.metric_duration(period=PERIOD, statistic="p90", label=name) for name, each in functions.items()],
            ),
            Chart("Errors", [each.metric_errors(period=PERIOD, label=name) for name, each in functions.items()]),
            Chart("Throttles", [each.metric_throttles(period=PERIOD, label=name) for name, each in functions.items()]),
            Chart(
                "Running at once",
                [
                    each.metric("ConcurrentExecutions", period=PERIOD, statistic="Maximum", label=name)
                    for name, each in functions.items()
                ],
            ),
        ]

    def _tables(self) -> list[Chart]:
        tables = self._parts.table_names
        return [
            Chart(
                "Write units",
                [of_table("ConsumedWriteCapacityUnits", each, label=name) for name, each in tables.items()],
            ),
            Chart(
                "Read units", [of_table("ConsumedReadCapacityUnits", each, label=name) for name, each in tables.items()]
            ),
            Chart(
                "Requests refused by DynamoDB",
                [
                    of_table(each, table, label=f"{name} {each[:5].lower()}")
                    for name, table in tables.items()
                    for each in ("WriteThrottleEvents", "ReadThrottleEvents")
                ],
            ),
        ]

    def _canary(self) -> list[Chart]:
        if self._parts.canary is None:
            return []
        canary = self._parts.canary.function
        return [
            Chart(
                title="Canary",
                left=[product_metric(name, canary) for name in ("CanaryPassed", "CanaryFailed")],
                right=[
                    product_metric("CanaryLatencySeconds", canary, statistic="Maximum", label="until the alert (s)")
                ],
            )
        ]

    def _cost(self) -> Chart:
        return Chart(
            title="What TrainGuard itself costs an hour (USD, estimated at list prices)",
            left=[cost_an_hour(self._parts)],
        )
