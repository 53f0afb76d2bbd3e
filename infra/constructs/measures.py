"""Metrics as alarms and the dashboard name them, and one of faults for each function, so that none hides another.

A line that the journal marks as a fault carries its points. A function that dies leaves no such line: the words are
those of Lambda and of its Python runtime. Filters cost nothing while all is well.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.function import TrainGuardFunction
from trainguard.aws.fault_points import AT_ONCE, FAULT_FIELD

PERIOD = Duration.minutes(5)
_ARRIVALS_WITHIN = Duration.minutes(15)

BAD_ENDS = ("ExecutionsFailed", "ExecutionsTimedOut", "ExecutionsAborted")


def metric(namespace: str, name: str, dimensions: Mapping[str, str], **how: Any) -> cloudwatch.Metric:
    """Return a metric, by default the sum of five minutes."""
    values = {"period": PERIOD, "statistic": "Sum", **how}
    return cloudwatch.Metric(namespace=namespace, metric_name=name, dimensions_map=dimensions, **values)


def product_metric(name: str, part: TrainGuardFunction, **how: Any) -> cloudwatch.Metric:
    """Return a metric that the functions themselves emit; Powertools adds the dimension ``service``."""
    return metric(part.metrics_namespace, name, {"service": part.service_name}, **how)


def of_machine(name: str, state_machine_arn: str, **how: Any) -> cloudwatch.Metric:
    return metric("AWS/States", name, {"StateMachineArn": state_machine_arn}, **how)


def of_table(name: str, table_name: str, *, index: str | None = None, **how: Any) -> cloudwatch.Metric:
    named = {"TableName": table_name} | ({"GlobalSecondaryIndexName": index} if index else {})
    return metric("AWS/DynamoDB", name, named, **how)


def arrivals(queue: sqs.Queue) -> cloudwatch.MathExpression:
    """Return by how many messages a queue has grown; one in which nothing happens for six hours has no metric."""
    return cloudwatch.MathExpression(
        expression="DIFF(FILL(messages, 0))", using_metrics={"messages": depth(queue)}, period=_ARRIVALS_WITHIN
    )


def depth(queue: sqs.Queue, *, label: str | None = None) -> cloudwatch.Metric:
    return queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum", label=label)


# Points of faults: with the function's name in words behind, as CloudWatch takes no dimension from a line of text.
FAULTS = "Faults"

# Whose faults count with those of the function that calls it: the free tier holds ten metrics of alarms.
WITH_ANOTHER = {"ReconcileJob": "Scheduler"}

CANARY = "Canary"

# The scheduler's line about it.
SILENT = '{ $.message = "canary_silent" }'

# Ends the name of the metric of alerts that were not delivered.
UNDELIVERED = "Undelivered"

FAULTS_WITHIN = Duration.minutes(15)

MARKED = f"{{ $.{FAULT_FIELD} >= 1 }}"
# End of an invocation that raised, ran out of time or of memory. Each begins a line: no job's name or key can.
DIED = r"%^\[ERROR\]\s|^[0-9]\S+\s\S+\sTask\stimed\sout\safter\s|^RequestId.\s\S+\sError.\sRuntime\sexited\s%"


def fault_points(
    stack: Construct,
    namespace: str,
    functions: Sequence[TrainGuardFunction],
    undelivered: logs.ILogGroup,
    canary_silence: logs.ILogGroup | None,
) -> Mapping[str, cloudwatch.Metric]:
    """Return the points of faults, summed over a quarter of an hour: by function, and of alerts not delivered.

    Two filters are on the log of each function, one on the log of alerts that were not delivered, and one on the log of
    who notices that the canary is silent.
    """
    scope = Construct(stack, "Faults")
    marked, died = logs.FilterPattern.literal(MARKED), logs.FilterPattern.literal(DIED)
    every = logs.FilterPattern.all_events()
    filters = [(UNDELIVERED, UNDELIVERED, undelivered, every, str(AT_ONCE))]
    if canary_silence:
        silent = logs.FilterPattern.literal(SILENT)
        filters.append((CANARY, "SilentCanary", canary_silence, silent, str(AT_ONCE)))
    for part in functions:
        words = "".join(word.capitalize() for word in part.service_name.split("_"))
        counted = WITH_ANOTHER.get(words, words)
        filters.append((counted, f"Marked{words}", part.log_group, marked, f"$.{FAULT_FIELD}"))
        filters.append((counted, f"Died{words}", part.log_group, died, str(AT_ONCE)))
    for counted, name, log, pattern, points in filters:
        logs.MetricFilter(
            scope,
            name,
            log_group=log,
            filter_pattern=pattern,
            metric_namespace=namespace,
            metric_name=f"{FAULTS}{counted}",
            metric_value=points,
        )
    return {
        counted: cloudwatch.Metric(
            namespace=namespace, metric_name=f"{FAULTS}{counted}", period=FAULTS_WITHIN, statistic="Sum"
        )
        for counted in dict.fromkeys(each[0] for each in filters)
    }
