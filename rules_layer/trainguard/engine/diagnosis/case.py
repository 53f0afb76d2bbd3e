"""A job as it was judged: all that its diagnosis is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from trainguard.engine.jobs.job_ledger import account_of, ledger_of
from trainguard.engine.jobs.job_verdicts import job_verdicts
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.family_streams import Look
from trainguard.engine.streams.job_streams import JobStreams
from trainguard.engine.verdicts.findings import RankedFinding, rank_findings
from trainguard.engine.verdicts.verdict import Fire, Verdict
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import Account
from trainguard.records import JobRecord


@dataclass(frozen=True)
class Case:
    """A job, its streams, what the rules say of them, and where the paid time went.

    ``verdicts`` are those of the whole job; ``account`` and ``ledger`` are of all nodes. ``ledger_once`` makes the
    ledger when it is first asked for it, and then returns the same: few looks at a job that is well ask for it.
    """

    job: JobRecord
    plan: RulePlan
    streams: JobStreams
    verdicts: Sequence[Verdict]
    account: Account
    ledger_once: Callable[[], Ledger]

    @property
    def ledger(self) -> Ledger:
        """Where the paid time went."""
        return self.ledger_once()

    @cached_property
    def findings(self) -> Sequence[RankedFinding]:
        """What was found, the gravest first; marks in the ledger the time in which the job hung or was broken."""
        if not any(verdict.history.times_fired for verdict in self.verdicts):
            return ()
        return tuple(rank_findings(self.verdicts, self.account, self.ledger))

    @property
    def final(self) -> bool:
        """Whether the job has ended and all of it was judged."""
        return self.job.closing and self.streams.closed

    @property
    def ended(self) -> bool:
        """Whether the job runs no more."""
        return self.final or self.job.status.is_final

    def verdict_of(self, rule: str) -> Verdict | None:
        """Return the job's verdict of a rule."""
        return next((verdict for verdict in self.verdicts if verdict.rule == rule), None)


def case_of(
    job: JobRecord, plan: RulePlan, streams: JobStreams, *, now: float | None = None
) -> tuple[Case, list[Fire]]:
    """Judge a job; return what it is diagnosed from, and the fires of rules over the whole job that began.

    Moves the episodes in ``streams.state``. ``now`` is the time of the look, epoch seconds; None without a clock.
    """
    ledger = cache(lambda: ledger_of(job, plan, streams))
    verdicts, fires = job_verdicts(job, plan, streams, look=Look(streams.closed, now, ledger))
    return Case(job, plan, streams, tuple(verdicts), account_of(job, plan, streams), ledger), fires
