"""The ledger of a whole job: where the time that is paid for went."""

from trainguard.engine.jobs.job_verdicts import account_of
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobStreams
from trainguard.ledger.job import Ledger
from trainguard.ledger.shares import StepShares
from trainguard.records import JobRecord


def ledger_of(job: JobRecord, plan: RulePlan, streams: JobStreams, shares: StepShares | None = None) -> Ledger:
    """Return the ledger of a job, from its streams' states alone.

    Parameters
    ----------
    job : JobRecord
    plan : RulePlan
    streams : JobStreams
    shares : StepShares or None
        What a kernel trace of the job says of its steps.
    """
    account = account_of(job, plan, streams)
    for family in streams.families.values():
        found = family.ledger(account, ended=streams.closed, shares=shares)
        if found is not None:
            return found
    return Ledger([])
