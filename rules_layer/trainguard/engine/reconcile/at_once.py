"""A run of the scheduler that evaluates jobs at once, in this process: for deployments in memory."""

from collections.abc import Mapping, Sequence

from trainguard.core.ports import ReconcileRequest, Services, Timing
from trainguard.engine.family import Families
from trainguard.engine.reconcile.reconciler import Reconciler
from trainguard.engine.reconcile.scheduler import Scheduler


class ReconcileAtOnce:
    """Makes each look when it is asked for; one that fails is not taken."""

    def __init__(self, care: Reconciler) -> None:
        self._care = care

    def send(self, looks: Sequence[ReconcileRequest]) -> Mapping[str, str]:
        """Make every look; return, by job, why one failed."""
        outcomes = {look.job: self._care.attempt(look) for look in looks}
        return {job: outcome.failed for job, outcome in outcomes.items() if outcome.failed is not None}


def scheduler_at_once(*, services: Services, timing: Timing, families: Families) -> Scheduler:
    """Return a scheduler that evaluates every active job itself, one after the other."""
    care = Reconciler(services=services, timing=timing, families=families)
    return Scheduler(jobs=services.jobs, looks=ReconcileAtOnce(care), timing=timing, journal=services.journal)
