"""What happens every minute although no object comes: each active job is evaluated, in its own invocation."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from trainguard.ports import JobLook, JobLooks, Journal, Timing
from trainguard.stores import Jobs

TICK_S = 60.0

DOUBTED_EVERY = 5
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
    """Asks for a look at every active job."""

    def __init__(self, *, jobs: Jobs, looks: JobLooks, timing: Timing, journal: Journal) -> None:
        self._jobs = jobs
        self._looks = looks
        self._timing = timing
        self._journal = journal

    def run(self) -> TickOutcome:
        """Ask for a look at every active job; one that is not taken is counted and left to the next tick.

        Each tick begins with another job, so that none is always the one for which there is no time; jobs that are
        named by their place come after all others, so that no number of invented ones takes SageMaker's jobs' time.
        """
        failed: dict[str, str] = {}
        names = self._jobs.active()
        looks = self._due(names)
        for start in range(0, len(looks), WAVE):
            if not self._timing.has_time():
                reason = f"no time for job {looks[start].job} and those after it"
                self._journal.count("ticks_unfinished", reason=reason)
                break
            failed.update(self._looks.send(looks[start : start + WAVE]))
        for name, reason in failed.items():
            self._journal.count("tick_failures", job=name, reason=reason)
        if names:
            self._journal.count("active_jobs", len(names))
        return TickOutcome(len(names), failed)

    def _due(self, names: Sequence[str]) -> list[JobLook]:
        now = self._timing.now()
        first = int(now // TICK_S) % max(len(names), 1)
        every = max(DOUBTED_EVERY, ceil(len(names) / MOST_DOUBTED))
        turned = [*names[first:], *names[:first]]
        # A name with an at sign is of a place that anybody may have made up: SageMaker's jobs come first.
        return [JobLook(name, now, every) for name in sorted(turned, key=lambda name: "@" in name)]
