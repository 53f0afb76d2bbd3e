"""One dashboard of the deployment: how far behind, what came in, what fired, what failed, what it costs."""

from collections.abc import Callable, Sequence
from functools import partial

from aws_cdk import Aws
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.measures import BAD_ENDS, PERIOD, depth, of_machine, of_table, product_metric
from infra.constructs.monitoring import WatchedParts
from infra.constructs.operating_cost import cost_an_hour
from trainguard.aws.fault_points import LATE_S, RULE_DIMENSION, SEVERITY_DIMENSION

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


# Makes a widget of a ``width``.
Chart = Callable[..., cloudwatch.GraphWidget]


def _chart(
    title: str, left: Sequence[cloudwatch.IMetric], right: Sequence[cloudwatch.IMetric] = (), limit: float | None = None
) -> Chart:
    """Return metrics over time; those of ``right`` have an axis of their own, ``limit`` is a line across."""
    lines = [] if limit is None else [cloudwatch.HorizontalAnnotation(value=limit, label="alarm")]
    return partial(
        cloudwatch.GraphWidget,
        title=title,
        left=list(left),
        right=list(right),
        left_annotations=lines,
        height=_HEIGHT,
    )


class Dashboard(Construct):
    """The dashboard; its widgets stand in rows of one topic each."""

    def __init__(self, scope: Construct, parts: WatchedParts, alarms: list[cloudwatch.Alarm]) -> None:
        super().__init__(scope, "Dashboard")
        self._parts = parts
        cost = "What TrainGuard itself costs an hour (USD, estimated at list prices)"
        rows = [
            self._verdicts(),
            self._input(),
            self._findings(),
            self._alerts(),
            self._machines(),
            self._queues(),
            self._functions(),
            self._tables(),
            [*self._canary(), _chart(cost, [cost_an_hour(parts)])],
        ]
        states = cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=_COLUMNS, height=4)
        # Dashboards belong to the account, not to a Region.
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=f"{parts.platform.config.stack_name}-{Aws.REGION}",
            widgets=[[states], *([chart(width=_COLUMNS // len(row)) for chart in row] for row in rows)],
        )

    def _verdicts(self) -> list[Chart]:
        evaluation = self._parts.evaluation
        evaluate, scheduler, reconcile = evaluation.evaluate_objects, evaluation.scheduler, evaluation.reconcile_job
        lag = [
            product_metric("EvaluationLagSeconds", evaluate, statistic=statistic, label=statistic)
            for statistic in ("p50", "p90", "Maximum")
        ]
        return [
            _chart("Verdicts behind the clock (s)", lag, limit=LATE_S),
            _chart(
                "Jobs evaluated each minute",
                [
                    product_metric("ActiveJobs", scheduler, statistic="Maximum", label="active"),
                    product_metric("ReconcileFailures", reconcile, label="evaluations that failed"),
                    product_metric("ReconcileFailures", scheduler, label="evaluations that Lambda refused"),
                    product_metric("SchedulerUnfinished", scheduler, label="runs without time for all"),
                    reconcile.function.metric(
                        "AsyncEventsDropped", period=PERIOD, statistic="Sum", label="evaluations that were dropped"
                    ),
                ],
            ),
        ]

    def _input(self) -> list[Chart]:
        evaluate = self._parts.evaluation.evaluate_objects
        return [
            _chart("Objects", [product_metric(name, evaluate) for name in USED]),
            _chart("What could not be used", [product_metric(name, evaluate) for name in UNUSED]),
            _chart("What was in the way", [product_metric(name, evaluate) for name in TROUBLE]),
        ]

    def _findings(self) -> list[Chart]:
        return [
            _chart("Fires, by rule and who saw them", [self._of_each("FiresOfRule", RULE_DIMENSION)]),
            _chart("Fires, by severity", [self._of_each("FiresOfSeverity", SEVERITY_DIMENSION)]),
            _chart("Money lost, by rule, of jobs that ended", [self._of_each("MoneyLostOfRule", RULE_DIMENSION)]),
        ]

    def _alerts(self) -> list[Chart]:
        actions, alerts = self._parts.actions, self._parts.actions.alerts
        return [
            _chart(
                "Alerts",
                [
                    alerts.metric_number_of_messages_published(period=PERIOD, label="published"),
                    alerts.metric_number_of_notifications_delivered(period=PERIOD, label="delivered"),
                    alerts.metric_number_of_notifications_failed(period=PERIOD, label="not delivered"),
                    alerts.metric_number_of_notifications_filtered_out(period=PERIOD, label="filtered out"),
                ],
            ),
            _chart("Stops", [product_metric(name, actions.send_alert) for name in STOPS]),
        ]

    def _of_each(self, metric: str, dimension: str) -> cloudwatch.MathExpression:
        """Return a metric of each function and value of a dimension."""
        namespace = self._parts.evaluation.evaluate_objects.metrics_namespace
        # A stack's name with a hyphen must stand in quotation marks.
        search = f"SEARCH('{{\"{namespace}\",service,{dimension}}} MetricName=\"{metric}\"', 'Sum', 300)"
        return cloudwatch.MathExpression(expression=search, using_metrics={}, label="", period=PERIOD)

    def _machines(self) -> list[Chart]:
        machines = {
            "Fire machine": self._parts.actions.state_machine_arn,
            "Report machine": self._parts.reports.state_machine_arn,
            "Kernel machine": self._parts.captures.state_machine_arn,
        }
        return [
            _chart(
                title,
                [of_machine(name, arn, label=name) for name in ("ExecutionsStarted", *BAD_ENDS)],
                [of_machine("ExecutionTime", arn, statistic="p90", label="p90 (ms)")],
            )
            for title, arn in machines.items()
        ]

    def _queues(self) -> list[Chart]:
        ingest = self._parts.platform.ingest
        age = ingest.evaluation_queue.metric_approximate_age_of_oldest_message(
            period=PERIOD, statistic="Maximum", label="oldest (s)"
        )
        return [
            _chart("Doorbells", left=[depth(ingest.evaluation_queue, label="waiting")], right=[age]),
            _chart(
                "Dead letters",
                [
                    depth(ingest.evaluation_dead_letters, label="messages"),
                    depth(ingest.event_dead_letters, label="events and notices"),
                ],
            ),
        ]

    def _functions(self) -> list[Chart]:
        functions = {part.service_name: part.function for part in self._parts.shown}
        duration = [
            each.metric_duration(period=PERIOD, statistic="p90", label=name) for name, each in functions.items()
        ]
        running = [
            each.metric("ConcurrentExecutions", period=PERIOD, statistic="Maximum", label=name)
            for name, each in functions.items()
        ]
        return [
            _chart("Duration, p90 (ms)", duration),
            _chart("Errors", [each.metric_errors(period=PERIOD, label=name) for name, each in functions.items()]),
            _chart("Throttles", [each.metric_throttles(period=PERIOD, label=name) for name, each in functions.items()]),
            _chart("Running at once", running),
        ]

    def _tables(self) -> list[Chart]:
        tables = self._parts.table_names

        def used(metric: str) -> list[cloudwatch.Metric]:
            return [of_table(metric, table, label=name) for name, table in tables.items()]

        refused = [
            of_table(each, table, label=f"{name} {each[:5].lower()}")
            for name, table in tables.items()
            for each in ("WriteThrottleEvents", "ReadThrottleEvents")
        ]
        return [
            _chart("Write units", used("ConsumedWriteCapacityUnits")),
            _chart("Read units", used("ConsumedReadCapacityUnits")),
            _chart("Requests refused by DynamoDB", refused),
        ]

    def _canary(self) -> list[Chart]:
        if self._parts.canary is None:
            return []
        canary = self._parts.canary
        latency = product_metric("CanaryLatencySeconds", canary, statistic="Maximum", label="until the alert (s)")
        ends = [product_metric(name, canary) for name in ("CanaryPassed", "CanaryFailed")]
        return [_chart("Canary", ends, [latency])]
