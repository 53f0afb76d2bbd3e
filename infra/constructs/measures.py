"""Metrics as alarms and the dashboard name them."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs

from infra.constructs.function import TrainGuardFunction

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
