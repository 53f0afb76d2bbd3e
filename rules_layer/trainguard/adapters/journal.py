"""The journal of a function: log lines and metrics by Powertools.

Metrics have one dimension, the service; the job and its node go into the log line, not into dimensions: each value of a
dimension is a metric of its own, and costs money.
"""

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

ROUTINE = frozenset(
    {"objects_applied", "duplicates", "lines", "events", "gzip_objects", "fires_started", "fires_already_started"}
)
"""What is counted in the course of things; everything else is a warning."""

QUIET = ROUTINE - {"fires_started"}
"""What would be a line for every object."""


class PowertoolsJournal:
    """Counts into CloudWatch's embedded metric format, and logs what a person may want to look up."""

    def __init__(self, *, logger: Logger, metrics: Metrics) -> None:
        self._logger = logger
        self._metrics = metrics

    def count(self, what: str, amount: int = 1, **where: object) -> None:
        """Count ``what`` and log where; names become ``CamelCase`` metrics."""
        self._metrics.add_metric(name=metric_name(what), unit=MetricUnit.Count, value=amount)
        log = self._logger.debug if what in QUIET else self._logger.info if what in ROUTINE else self._logger.warning
        log(what, extra={"amount": amount, **where})


def metric_name(what: str) -> str:
    """Return the metric's name: ``state_conflicts`` is ``StateConflicts``."""
    return "".join(word.capitalize() for word in what.split("_"))
