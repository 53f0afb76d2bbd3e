"""The figures over all labelled jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from tests.claims.check import Checked, together
from tests.verdicts.labelled import goals
from tests.verdicts.labelled.scoring import HEALTHY, JobScore
from tests.verdicts.labelled.truth import Strength


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many."""

    count: int
    of: int

    @property
    def share(self) -> float:
        """The share; of nothing it is 0."""
        return self.count / self.of if self.of else 0.0

    def __str__(self) -> str:
        return f"{self.count} of {self.of} ({100.0 * self.share:.1f} %)"


@dataclass(frozen=True, slots=True)
class Sampling:
    """A job sampled at another interval, and the main finding of the job as it is described."""

    every_s: float
    score: JobScore
    described: JobScore

    @property
    def lost(self) -> bool:
        """Whether the main finding is another: none, one that may not stand first, or not the described job's."""
        if not self.score.job.faults:
            return bool(self.score.fired)
        right = self.score.first in self.score.job.faults[0].may_stand_first
        changed = bool(self.described.first_is_right) and self.score.first != self.described.first
        return not right or changed


@dataclass(frozen=True, slots=True)
class Figures:
    """The verdicts of a set of labelled jobs."""

    jobs: Sequence[JobScore]
    samplings: Sequence[Sampling]

    def found(self, strength: Strength) -> Share:
        """Return how many faults of a strength some finding shows."""
        faults = [fault for job in self.jobs for fault in job.faults if fault.strength == strength]
        return Share(sum(fault.found for fault in faults), len(faults))

    @property
    def _healthy(self) -> list[JobScore]:
        """The jobs in which nothing was planted, at each interval."""
        every = (*self.jobs, *(sampling.score for sampling in self.samplings))
        return [job for job in every if not job.faults]

    @property
    def healthy_fires(self) -> Share:
        """How many healthy jobs have a fire."""
        return Share(sum(bool(job.fired) for job in self._healthy), len(self._healthy))

    @property
    def called_healthy(self) -> Share:
        """How many healthy jobs with GPUs the report calls healthy."""
        with_gpus = [job for job in self._healthy if job.job.machine.gpus]
        return Share(sum(job.level == HEALTHY for job in with_gpus), len(with_gpus))

    @property
    def planted_first(self) -> Share:
        """In how many jobs whose most severe fault was found it stands first."""
        judged = [job.first_is_right for job in self.jobs if job.first_is_right is not None]
        return Share(sum(judged), len(judged))

    @property
    def pairs(self) -> list[tuple[JobScore, JobScore]]:
        """The pairs of jobs, the more severe first, whose order everyone agrees on."""
        single = [job for job in self.jobs if len(job.faults) == 1 and job.faults[0].found]
        return [(one, other) for one, other in permutations(single, 2) if _is_more_severe(one, other)]

    @property
    def out_of_order(self) -> list[tuple[JobScore, JobScore]]:
        """The pairs in which the more severe job has the lower score."""
        return [(one, other) for one, other in self.pairs if _score(one) + goals.SCORE_WITHIN < _score(other)]

    @property
    def lost(self) -> Share:
        """How many samplings give another main finding."""
        return Share(sum(sampling.lost for sampling in self.samplings), len(self.samplings))

    @property
    def unexplained(self) -> int:
        """How many findings beside planted faults nothing explains."""
        return sum(len(job.unexplained) for job in self.jobs)

    def true_checks(self, what: str | None = None) -> Share:
        """Return how many checks of findings and ledgers hold, all or those of one thing."""
        checks = [check for job in self.jobs for check in job.checks if what in (None, check.what)]
        return Share(sum(check.holds for check in checks), len(checks))

    @property
    def claims(self) -> Checked:
        """What of all reports does not agree with the raw data."""
        return together(score.claims for score in (*self.jobs, *(each.score for each in self.samplings)))

    @property
    def checked(self) -> list[str]:
        """What is checked."""
        return sorted({check.what for job in self.jobs for check in job.checks})


def _score(job: JobScore) -> float:
    return job.faults[0].score or 0.0


def _is_more_severe(one: JobScore, other: JobScore) -> bool:
    """Return whether everyone agrees that the one job's fault is more severe than the other's."""
    first, second = one.job.faults[0], other.job.faults[0]
    if first.fails_in_h is not None and second.fails_in_h is not None:
        return goals.MORE_SEVERE_BY * first.fails_in_h <= second.fails_in_h
    if first.fails_in_h is not None:
        small = second.wasted[1] <= goals.SMALL_LOSS * other.job.paid_min
        return small and first.fails_in_h <= goals.FAILS_SOON_H
    if second.fails_in_h is not None:
        return False
    least, most = first.wasted[0] / one.job.paid_min, second.wasted[1] / other.job.paid_min
    return least - most >= (goals.MORE_SEVERE_BY_SHARE if most else goals.MORE_SEVERE_THAN_A_RISK)
