"""What a whole job has to pay for, and where that time went."""

from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobStreams
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import Account
from trainguard.records import JobRecord


def account_of(job: JobRecord, plan: RulePlan, streams: JobStreams) -> Account:
    """Return what the whole job has to pay for so far, as many nodes as SageMaker or the profile knows.

    It is paid for up to the newest sample: times of tensors, logs and traces may be those of their files. A job that
    has ended, and is judged as far as it goes, is paid for up to its end.
    """
    sampled = [family.watermark_s for family in streams.families.values() if family.first_at is not None]
    if streams.closed:
        sampled.append(job.ended_at)
    starts = (job.started_at, *(family.first_at for family in streams.families.values()))
    return Account(
        instance_type=job.instance_type,
        started_at=min((at for at in starts if at is not None), default=None),
        watermark_s=max((at for at in sampled if at is not None), default=streams.watermark_s),
        nodes=max(len(streams.nodes), job.instance_count or 0),
        prices=plan.prices,
        unpaid_s=max((family.unpaid_s for family in streams.families.values()), default=0.0),
    )


def ledger_of(job: JobRecord, plan: RulePlan, streams: JobStreams) -> Ledger:
    """Return the ledger of a job, from its streams' states alone; it is empty where nothing is known of GPUs."""
    account, families = account_of(job, plan, streams), streams.families.values()
    shares = next((each for family in families if (each := family.step_shares) is not None), None)
    ledgers = (family.ledger(account, ended=streams.closed, shares=shares) for family in families)
    return next((ledger for ledger in ledgers if ledger is not None), Ledger([]))
