"""Counts batches whose verdicts are far behind the clock."""

from trainguard.core.ports import Journal

LAG = "evaluation_lag_seconds"

LATE_S = 900.0
"""Verdicts of a healthy deployment are a few minutes behind the clock."""

_ONE_IN = 10


class LateVerdicts:
    """A journal that also keeps how far behind the clock each evaluation of a batch was."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lags_s: list[float] = []

    def count(self, what: str, amount: int = 1, **where: object) -> None:
        """Count ``what``."""
        self._journal.count(what, amount, **where)

    def measure(self, what: str, seconds: float) -> None:
        """Emit a time in seconds."""
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
