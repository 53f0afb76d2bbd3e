"""Bounds the log lines of one kind: whoever writes objects could else write lines without end."""

from collections import Counter
from collections.abc import Callable
from enum import Enum
from time import monotonic

WINDOW_S = 3_600.0
MOST_OF_KIND = 200
"""Of an execution environment within an hour."""

MOST_OF_JOB = 50


SUMMED_EVERY_S = 60.0
"""A line sums up the withheld ones: an alarm on what goes on must not end with the lines."""


class Line(Enum):
    """Whether a line is written, withheld, or written with a sum of the withheld ones."""

    WRITTEN = "written"
    WITHHELD = "withheld"
    SUM_IS_DUE = "sum is due"


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
                return Line.WITHHELD
            self._summed_at[kind] = self._now()
            return Line.SUM_IS_DUE
        self._kinds[kind] += 1
        if job:
            self._jobs[kind, job] = of_job + 1
        return Line.WRITTEN
