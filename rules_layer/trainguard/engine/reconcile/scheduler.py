"""Evaluates each active job every minute although no object comes, each in its own invocation."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from zlib import crc32

from trainguard.core.ports import Journal, ReconcileRequest, ReconcileRequests, Timing
from trainguard.core.stores import Jobs

SCHEDULE_S = 60.0

SLOW_POLL_EVERY = 3
"""A job is evaluated in every so many runs of the scheduler, and in each one while a rule is near a change."""

STALE_EVERY = 2 * SLOW_POLL_EVERY
"""Runs between two questions to SageMaker about a job that is long silent, or was met without SageMaker."""

MOST_STALE = 100
"""Jobs with a turn in one run: SageMaker answers a few calls a second, for the whole account."""

WAVE = 20
"""Looks that are asked for between two questions for the time that is left."""


@dataclass(frozen=True, slots=True)
class ScheduledRequests:
    """Number of active jobs, and why no request was taken for some of them."""

    jobs: int
    failed: dict[str, str]


class Scheduler:
    """Asks for looks at active jobs: each time at those that are polled fast, at a third of the others."""

    def __init__(self, *, jobs: Jobs, looks: ReconcileRequests, timing: Timing, journal: Journal) -> None:
        self._jobs = jobs
        self._looks = looks
        self._timing = timing
        self._journal = journal

    def run(self) -> ScheduledRequests:
        """Ask for the due looks, invented names last; one that is not accepted waits for the job's next turn."""
        failed: dict[str, str] = {}
        polled_fast, polled_slowly = self._jobs.polled_fast(), self._jobs.polled_slowly()
        looks = self._due(sorted(polled_fast), sorted(polled_slowly))
        for start in range(0, len(looks), WAVE):
            if not self._timing.has_time():
                reason = f"no time for job {looks[start].job} and those after it"
                self._journal.count("scheduler_unfinished", reason=reason)
                break
            failed.update(self._looks.send(looks[start : start + WAVE]))
        for name, reason in failed.items():
            self._journal.count("reconcile_failures", job=name, reason=reason)
        if polled_fast or polled_slowly:
            self._journal.count("active_jobs", len(polled_fast) + len(polled_slowly))
        return ScheduledRequests(len(polled_fast) + len(polled_slowly), failed)

    def _due(self, polled_fast: Sequence[str], polled_slowly: Sequence[str]) -> list[ReconcileRequest]:
        """Return the looks; SageMaker is asked in a multiple of the turns of slowly polled jobs."""
        now = self._timing.now()
        names = sorted({*polled_fast, *(name for name in polled_slowly if is_turn(name, now, SLOW_POLL_EVERY))})
        first = int(now // SCHEDULE_S) % max(len(names), 1)
        shares = ceil((len(polled_fast) + len(polled_slowly)) / MOST_STALE)
        every = STALE_EVERY if shares <= STALE_EVERY else SLOW_POLL_EVERY * ceil(shares / SLOW_POLL_EVERY)
        turned = [*names[first:], *names[:first]]
        # Anybody may invent a place's name, with an at sign: SageMaker's jobs come first.
        return [ReconcileRequest(name, now, every) for name in sorted(turned, key=lambda name: "@" in name)]


def is_turn(job: str, at: float, every: int) -> bool:
    """Whether the run at ``at``, epoch seconds, is the job's turn: one of ``every``, spread over jobs."""
    return (int(at // SCHEDULE_S) + crc32(job.encode())) % every == 0
