"""Which counters are faults of TrainGuard; a function's alarm fires at `AT_ONCE` points in a quarter of an hour."""

from collections.abc import Mapping

from trainguard.core.ports import Journal

# Dimensions of the product's metrics, which the dashboard names without what writes them.
RULE_DIMENSION, SEVERITY_DIMENSION = "RuleName", "Severity"

FAULT_FIELD = "fault"

AT_ONCE = 9

# Three batches within a quarter of an hour.
_SOON = 3

_WHEN_MANY = 1

FAULT_POINTS: Mapping[str, int] = {
    "rule_errors": AT_ONCE,
    "state_conflicts_exhausted": AT_ONCE,
    "canary_failed": AT_ONCE,
    "verdicts_behind": _SOON,
    "reconcile_failures": _WHEN_MANY,
    "scheduler_unfinished": _WHEN_MANY,
    "port_failures": _WHEN_MANY,
}


LAG = "evaluation_lag_seconds"

# Verdicts of a healthy deployment are a few minutes behind the clock.
LATE_S = 900.0

_ONE_IN = 10


class LateVerdicts:
    """A journal that also keeps how far behind the clock each evaluation of a batch was."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lags_s: list[float] = []

    def count(self, what: str, amount: float = 1, **where: object) -> None:
        self._journal.count(what, amount, **where)

    def measure(self, what: str, seconds: float) -> None:
        self._journal.measure(what, seconds)
        if what == LAG:
            self._lags_s.append(seconds)

    def end_batch(self) -> None:
        """Count the batch where one evaluation in ten of it, or more, was over `LATE_S` behind the clock."""
        lags_s, self._lags_s = self._lags_s, []
        late = sum(lag > LATE_S for lag in lags_s)
        if late and late * _ONE_IN >= len(lags_s):
            reason = f"{late} of {len(lags_s)} evaluations, the latest by {max(lags_s):.0f} s"
            self._journal.count("verdicts_behind", reason=reason)
