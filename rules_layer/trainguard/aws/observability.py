"""The journal of a function: log lines and metrics, without job and node as dimensions, which cost money."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Literal

from aws_lambda_powertools import Logger, Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit

from trainguard.aws.fault_points import FAULT_FIELD, FAULT_POINTS, RULE_DIMENSION, SEVERITY_DIMENSION

WINDOW_S = 3_600.0
# Of an execution environment within an hour.
MOST_OF_KIND = 200

MOST_OF_JOB = 50


# A line sums up the withheld ones: an alarm on what goes on must not end with the lines.
SUMMED_EVERY_S = 60.0


# Whether a line is written, withheld, or written with a sum of the withheld ones.
Line = Literal["written", "withheld", "sum is due"]


class LineBudget:
    """Lines of an hour, by kind and by job; ``now`` gives seconds of a monotonic clock."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._since = now()
        self._kinds: Counter[str] = Counter()
        self._jobs: Counter[tuple[str, str]] = Counter()
        self._summed_at: dict[str, float] = {}

    def take(self, kind: str, job: str) -> Line:
        """Admit a line about a job; ``job`` is empty for none."""
        if self._now() - self._since >= WINDOW_S:
            self._since = self._now()
            self._kinds.clear()
            self._jobs.clear()
        of_job = self._jobs.get((kind, job), 0)
        if self._kinds[kind] >= MOST_OF_KIND or (job and of_job >= MOST_OF_JOB):
            summed_at = self._summed_at.get(kind)
            if summed_at is not None and self._now() - summed_at < SUMMED_EVERY_S:
                return "withheld"
            self._summed_at[kind] = self._now()
            return "sum is due"
        self._kinds[kind] += 1
        if job:
            self._jobs[kind, job] = of_job + 1
        return "written"


# These would be a line for every object or every minute.
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
        "statements_kept",
    }
)

# Normal counters; everything else is a warning.
ROUTINE = QUIET | {
    "fires_started",
    "news_started",
    "money_lost",
    "canary_passed",
    "stops_made",
    "stops_announced",
    "stops_in_dry_run",
    "stops_refused",
    "brakes_in_force",
    "alerts_silenced",
    "statements_late",
}

# Metrics with a dimension beside the function, by what is counted and by the field that it is the value of.
BY_RULE: Mapping[str, str] = {"fires_started": "fires_of_rule", "money_lost": "money_lost_of_rule"}
BY_SEVERITY: Mapping[str, str] = {"fires_started": "fires_of_severity"}

_DIMENSIONS = (("rule", RULE_DIMENSION, BY_RULE), ("severity", SEVERITY_DIMENSION, BY_SEVERITY))

_WITHHELD = "there are many lines of this kind: one a minute sums them up"


class PowertoolsJournal:
    """Counts into embedded metrics, and logs; lines beyond a `LineBudget` are summed up in one line a minute."""

    def __init__(self, *, logger: Logger, metrics: Metrics, budget: LineBudget | None = None) -> None:
        self._logger = logger
        self._metrics = metrics
        self._budget = budget or LineBudget()
        self._withheld: defaultdict[str, float] = defaultdict(float)

    def count(self, what: str, amount: float = 1, **where: object) -> None:
        """Count ``what`` as a ``CamelCase`` metric and log where; the line of a fault has its points."""
        self._metrics.add_metric(name=metric_name(what), unit=MetricUnit.Count, value=amount)
        for field, dimension, metrics in _DIMENSIONS:
            if what in metrics and field in where:
                service, name = {"service": self._metrics.service or ""}, metric_name(metrics[what])
                with single_metric(name, MetricUnit.Count, amount, default_dimensions=service) as metric:
                    metric.add_dimension(dimension, str(where[field]))
        if what in QUIET:
            self._logger.debug(what, extra={"amount": amount, **where})
            return
        line = self._budget.take(what, str(where.get("job") or ""))
        if line == "written":
            log = self._logger.info if what in ROUTINE else self._logger.warning
            log(what, extra={"amount": amount, **where, **_points(what, amount)})
            return
        self._withheld[what] += amount
        if line == "sum is due":
            withheld = self._withheld.pop(what)
            sums = {"withheld": what, "amount": withheld, "reason": _WITHHELD, **_points(what, withheld)}
            self._logger.warning("lines_withheld", extra={**where, **sums})

    def measure(self, what: str, seconds: float) -> None:
        self._metrics.add_metric(name=metric_name(what), unit=MetricUnit.Seconds, value=seconds)


def _points(what: str, amount: float) -> dict[str, float]:
    points = FAULT_POINTS.get(what, 0) * amount
    return {FAULT_FIELD: points} if points else {}


def metric_name(what: str) -> str:
    """Return the metric's name: ``state_conflicts`` is ``StateConflicts``."""
    return "".join(word.capitalize() for word in what.split("_"))
