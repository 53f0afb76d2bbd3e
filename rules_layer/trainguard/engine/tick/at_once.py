"""A tick whose looks are made at once, in this process: for deployments in memory."""

from collections.abc import Mapping, Sequence

from trainguard.engine.family import Families
from trainguard.engine.tick.job_care import JobCare
from trainguard.engine.tick.tick import Tick
from trainguard.ports import JobLook, Services, Timing


class LooksAtOnce:
    """Makes each look when it is asked for; one that fails is not taken."""

    def __init__(self, care: JobCare) -> None:
        self._care = care

    def send(self, looks: Sequence[JobLook]) -> Mapping[str, str]:
        """Make every look; return, by job, why one failed."""
        outcomes = {look.job: self._care.attempt(look) for look in looks}
        return {job: outcome.failed for job, outcome in outcomes.items() if outcome.failed is not None}


def tick_at_once(*, services: Services, timing: Timing, families: Families) -> Tick:
    """Return a tick that evaluates every active job itself, one after the other."""
    care = JobCare(services=services, timing=timing, families=families)
    return Tick(jobs=services.jobs, looks=LooksAtOnce(care), timing=timing, journal=services.journal)
