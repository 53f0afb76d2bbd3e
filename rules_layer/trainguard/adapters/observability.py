"""The journal of a function: log lines and metrics by Powertools, and nowhere else does TrainGuard emit a metric.

Metrics have the dimension ``service``, and a few of them ``RuleName`` beside it; the job and its node go into the log
line, not into dimensions: each value of a dimension is a metric of its own, and costs money.
"""

from collections.abc import Mapping

from aws_lambda_powertools import Logger, Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit

from trainguard.adapters.fault_points import FAULT_FIELD, FAULT_POINTS
from trainguard.adapters.line_budget import Line, LineBudget

QUIET = frozenset(
    {
        "objects_applied",
        "duplicates",
        "lines",
        "events",
        "gzip_objects",
        "active_jobs",
        "fires_already_started",
        "news_already_started",
    }
)
"""What would be a line for every object or every minute."""

ROUTINE = QUIET | {
    "fires_started",
    "news_started",
    "canary_passed",
    "stops_made",
    "stops_announced",
    "stops_in_dry_run",
    "stops_refused",
}
"""What is counted in the course of things; everything else is a warning."""

BY_RULE: Mapping[str, str] = {"fires_started": "fires_of_rule"}
"""What is counted for each rule, too, and the name under which it is."""

RULE_DIMENSION = "RuleName"

_WITHHELD = "there are many lines of this kind: within the next hour the metric alone counts them"


class PowertoolsJournal:
    """Counts into CloudWatch's embedded metric format, and logs what a person may want to look up.

    All is counted; lines of a kind beyond those of a `LineBudget` are withheld, which a line says once an hour.
    """

    def __init__(self, *, logger: Logger, metrics: Metrics, budget: LineBudget | None = None) -> None:
        self._logger = logger
        self._metrics = metrics
        self._budget = budget or LineBudget()

    def count(self, what: str, amount: int = 1, **where: object) -> None:
        """Count ``what`` and log where; names become ``CamelCase`` metrics, and the line of a fault has its points."""
        self._metrics.add_metric(name=metric_name(what), unit=MetricUnit.Count, value=amount)
        points = FAULT_POINTS.get(what, 0) * amount
        if what in BY_RULE and "rule" in where:
            self._count_of_rule(BY_RULE[what], amount, str(where["rule"]))
        if what in QUIET:
            self._logger.debug(what, extra={"amount": amount, **where})
            return
        line = self._budget.take(what, str(where.get("job") or ""))
        if line is Line.FIRST_WITHHELD:
            self._logger.warning("lines_withheld", extra={**where, "withheld": what, "reason": _WITHHELD})
        elif line is Line.WRITTEN:
            log = self._logger.info if what in ROUTINE else self._logger.warning
            log(what, extra={"amount": amount, **where, **({FAULT_FIELD: points} if points else {})})

    def measure(self, what: str, seconds: float) -> None:
        """Emit a time in seconds; the name ``what`` ends in ``_seconds``."""
        self._metrics.add_metric(name=metric_name(what), unit=MetricUnit.Seconds, value=seconds)

    def _count_of_rule(self, what: str, amount: int, rule: str) -> None:
        service = {"service": self._metrics.service or ""}
        with single_metric(metric_name(what), MetricUnit.Count, amount, default_dimensions=service) as metric:
            metric.add_dimension(RULE_DIMENSION, rule)


def metric_name(what: str) -> str:
    """Return the metric's name: ``state_conflicts`` is ``StateConflicts``."""
    return "".join(word.capitalize() for word in what.split("_"))
