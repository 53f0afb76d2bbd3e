"""Metrics as alarms and the dashboard name them."""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs

from infra.constructs.function import TrainGuardFunction

PERIOD = Duration.minutes(5)

BAD_ENDS = ("ExecutionsFailed", "ExecutionsTimedOut", "ExecutionsAborted")


def product_metric(
    name: str, part: TrainGuardFunction, *, statistic: str = "Sum", period: Duration = PERIOD, label: str | None = None
) -> cloudwatch.Metric:
    """Return a metric that the functions themselves emit; Powertools adds the dimension ``service``."""
    return cloudwatch.Metric(
        namespace=part.metrics_namespace,
        metric_name=name,
        dimensions_map={"service": part.service_name},
        period=period,
        statistic=statistic,
        label=label,
    )


def of_machine(
    name: str, state_machine_arn: str, *, statistic: str = "Sum", period: Duration = PERIOD, label: str | None = None
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/States",
        metric_name=name,
        dimensions_map={"StateMachineArn": state_machine_arn},
        period=period,
        statistic=statistic,
        label=label,
    )


def of_table(
    name: str, table_name: str, *, period: Duration = PERIOD, label: str | None = None, index: str | None = None
) -> cloudwatch.Metric:
    named = {"TableName": table_name} | ({"GlobalSecondaryIndexName": index} if index else {})
    return cloudwatch.Metric(
        namespace="AWS/DynamoDB", metric_name=name, dimensions_map=named, period=period, statistic="Sum", label=label
    )


def depth(queue: sqs.Queue, *, label: str | None = None) -> cloudwatch.Metric:
    return queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum", label=label)
