"""What happens every minute although no object comes: each active job is evaluated, in its own invocation."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from zlib import crc32

from trainguard.ports import JobLook, JobLooks, Journal, Timing
from trainguard.stores import Jobs

TICK_S = 60.0

CALM_EVERY = 3
"""A job is looked at in every so many ticks, and in each one while a rule is near a change."""

DOUBTED_EVERY = 2 * CALM_EVERY
"""In every so many ticks SageMaker is asked about a job that has long been silent, or that was met without it."""

MOST_DOUBTED = 100
"""So many of the active jobs have their turn in one tick, and the turns come more rarely when there are many jobs.

SageMaker answers a few calls in a second, and one account's share is for all who ask.
"""

WAVE = 20
"""Looks that are asked for between two questions for the time that is left."""


@dataclass(frozen=True, slots=True)
class TickOutcome:
    """What one tick did: how many jobs are active, and for which of them no look came about, with the reason."""

    jobs: int
    failed: dict[str, str]


class Tick:
    """Asks for looks at active jobs: at the urgent ones each time, at a third of the others."""

    def __init__(self, *, jobs: Jobs, looks: JobLooks, timing: Timing, journal: Journal) -> None:
        self._jobs = jobs
        self._looks = looks
        self._timing = timing
        self._journal = journal

    def run(self) -> TickOutcome:
        """Ask for the looks that are due; one that is not taken is counted and left to the job's next turn.

        Each tick begins with another job, so that none is always the one for which there is no time; jobs that are
        named by their place come after all others, so that no number of invented ones takes SageMaker's jobs' time.
        """
        failed: dict[str, str] = {}
        urgent, calm = self._jobs.urgent(), self._jobs.calm()
        looks = self._due(sorted(urgent), sorted(calm))
        for start in range(0, len(looks), WAVE):
            if not self._timing.has_time():
                reason = f"no time for job {looks[start].job} and those after it"
                self._journal.count("ticks_unfinished", reason=reason)
                break
            failed.update(self._looks.send(looks[start : start + WAVE]))
        for name, reason in failed.items():
            self._journal.count("tick_failures", job=name, reason=reason)
        if urgent or calm:
            self._journal.count("active_jobs", len(urgent) + len(calm))
        return TickOutcome(len(urgent) + len(calm), failed)

    def _due(self, urgent: Sequence[str], calm: Sequence[str]) -> list[JobLook]:
        """Return the looks; SageMaker is asked in a multiple of the calm jobs' turns."""
        now = self._timing.now()
        names = sorted({*urgent, *(name for name in calm if is_turn(name, now, CALM_EVERY))})
        first = int(now // TICK_S) % max(len(names), 1)
        shares = ceil((len(urgent) + len(calm)) / MOST_DOUBTED)
        every = DOUBTED_EVERY if shares <= DOUBTED_EVERY else CALM_EVERY * ceil(shares / CALM_EVERY)
        turned = [*names[first:], *names[:first]]
        # A name with an at sign is of a place that anybody may have made up: SageMaker's jobs come first.
        return [JobLook(name, now, every) for name in sorted(turned, key=lambda name: "@" in name)]


def is_turn(job: str, at: float, every: int) -> bool:
    """Whether it is the job's turn in the tick at ``at``, epoch seconds, of every so many: each tick other jobs'."""
    return (int(at // TICK_S) + crc32(job.encode())) % every == 0
