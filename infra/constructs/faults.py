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


class Faults(Construct):
    """Two filters on the log of each function, and one on the log of alerts that were not delivered.

    ``points`` of all faults are summed over a quarter of an hour.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        namespace: str,
        functions: Sequence[TrainGuardFunction],
        undelivered: logs.ILogGroup,
    ) -> None:
        super().__init__(scope, construct_id)
        self.points = cloudwatch.Metric(namespace=namespace, metric_name=FAULTS, period=FAULTS_WITHIN, statistic="Sum")
        for part in functions:
            words = "".join(word.capitalize() for word in part.service_name.split("_"))
            self._add(f"Marked{words}", part.log_group, logs.FilterPattern.literal(MARKED), f"$.{FAULT_FIELD}")
            self._add(f"Died{words}", part.log_group, logs.FilterPattern.literal(DIED), str(AT_ONCE))
        self._add("Undelivered", undelivered, logs.FilterPattern.all_events(), str(AT_ONCE))

    def _add(self, construct_id: str, log: logs.ILogGroup, pattern: logs.IFilterPattern, points: str) -> None:
        logs.MetricFilter(
            self,
            construct_id,
            log_group=log,
            filter_pattern=pattern,
            metric_namespace=self.points.namespace,
            metric_name=FAULTS,
            metric_value=points,
        )
