"""One metric of faults in the functions; filters on their logs cost nothing while all is well.

A line that the journal marks as a fault carries its points. A function that dies leaves no such line: the words are
those of Lambda and of its Python runtime.
"""

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.function import TrainGuardFunction
from trainguard.aws.fault_points import AT_ONCE, FAULT_FIELD

FAULTS = "Faults"
"""Points of faults, of all functions together."""

FAULTS_WITHIN = Duration.minutes(15)

MARKED = f"{{ $.{FAULT_FIELD} >= 1 }}"
DIED = r"%^\[ERROR\]\s|^[0-9]\S+\s\S+\sTask\stimed\sout\safter\s|^RequestId.\s\S+\sError.\sRuntime\sexited\s%"
"""End of an invocation that raised, ran out of time or of memory. Each begins a line: no job's name or key can."""


def fault_points(
    stack: Construct, namespace: str, functions: Sequence[TrainGuardFunction], undelivered: logs.ILogGroup
) -> cloudwatch.Metric:
    """Return the points of all faults, summed over a quarter of an hour.

    Two filters are on the log of each function, and one on the log of alerts that were not delivered.
    """
    scope = Construct(stack, "Faults")
    marked, died = logs.FilterPattern.literal(MARKED), logs.FilterPattern.literal(DIED)
    filters: dict[str, tuple[logs.ILogGroup, logs.IFilterPattern, str]] = {}
    for part in functions:
        words = "".join(word.capitalize() for word in part.service_name.split("_"))
        filters[f"Marked{words}"] = part.log_group, marked, f"$.{FAULT_FIELD}"
        filters[f"Died{words}"] = part.log_group, died, str(AT_ONCE)
    filters["Undelivered"] = undelivered, logs.FilterPattern.all_events(), str(AT_ONCE)
    for name, (log, pattern, points) in filters.items():
        logs.MetricFilter(
            scope,
            name,
            log_group=log,
            filter_pattern=pattern,
            metric_namespace=namespace,
            metric_name=FAULTS,
            metric_value=points,
        )
    return cloudwatch.Metric(namespace=namespace, metric_name=FAULTS, period=FAULTS_WITHIN, statistic="Sum")
