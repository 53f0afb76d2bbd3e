"""What CloudWatch has measured in the last minutes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.site import Site

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch.type_defs import DimensionTypeDef, MetricDataQueryTypeDef

_PERIOD_S = 60


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a service, for example ``AWS/Lambda``, ``Invocations`` of one function, its sum each minute."""

    namespace: str
    name: str
    dimensions: Mapping[str, str]
    statistic: str


def metric_values(site: Site, metric: Metric, minutes: int) -> Sequence[float]:
    """Return the values of the last ``minutes``, one for each minute that has any, newest first."""
    dimensions: list[DimensionTypeDef] = [{"Name": name, "Value": value} for name, value in metric.dimensions.items()]
    query: MetricDataQueryTypeDef = {
        "Id": "asked",
        "MetricStat": {
            "Metric": {"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions},
            "Period": _PERIOD_S,
            "Stat": metric.statistic,
        },
    }
    with asking("cloudwatch:GetMetricData"):
        answer = site.clients.cloudwatch.get_metric_data(
            MetricDataQueries=[query],
            StartTime=datetime.fromtimestamp(site.now - minutes * _PERIOD_S, UTC),
            EndTime=datetime.fromtimestamp(site.now, UTC),
            ScanBy="TimestampDescending",
        )
    return answer["MetricDataResults"][0]["Values"]
