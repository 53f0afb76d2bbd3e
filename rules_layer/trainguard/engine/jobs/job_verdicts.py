"""The verdicts of a whole job, from its units' states, family by family."""

from trainguard.core.records import FIRST_FAMILY, JobRecord, Status
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobRules, JobStreams, Look, UnitVerdicts
from trainguard.engine.streams.rule_runner import gone_rules
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Fire, Verdict, final
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import Account
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.rule_result import RuleResult


def unit_verdicts(streams: JobStreams) -> UnitVerdicts:
    """Return the verdicts by rule and unit, of all families."""
    return {rule: of_rule for family in streams.families.values() for rule, of_rule in family.unit_verdicts().items()}


def job_verdicts(
    job: JobRecord, plan: RulePlan, streams: JobStreams, *, look: Look
) -> tuple[list[Verdict], list[Fire]]:
    """Return the job's verdict of every rule, and the job-wide fires; moves the episodes in ``streams.state``."""
    verdicts: list[Verdict] = []
    fires: list[Fire] = []
    own = JobRules(streams.state.stored_rules, streams.state.watermark_s)
    for family in streams.families.values():
        judged = family.judge(job, plan, own, look)
        verdicts.extend(judged.verdicts)
        fires.extend(judged.fires)
    if job.closing and streams.closed:
        verdicts = [final(verdict, streams.watermark_s) for verdict in verdicts]
    known = {verdict.rule for verdict in verdicts} | {PROFILER_REPORT}
    verdicts.extend(
        Verdict(name, RuleResult(Status.ERROR, str(fault)), FiringHistory())
        for name, fault in plan.faults.items()
        if name not in known
    )
    invoked = ", ".join(rule.name for rule in plan.rules_of(FIRST_FAMILY))
    verdicts.extend(
        Verdict(name, RuleResult(Status.DISABLED, f"rule_to_invoke is {invoked}."), FiringHistory())
        for name in plan.disabled
        if name not in plan.faults
    )
    of_streams = [stored_rules for family in streams.families.values() for stored_rules in family.stored_rules]
    verdicts.extend(gone_rules([streams.state.stored_rules, *of_streams], plan))
    return verdicts, fires


def account_of(job: JobRecord, plan: RulePlan, streams: JobStreams) -> Account:
    """Return what the job has to pay for, up to the newest sample, once it is closed up to its end."""
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
    """Return the ledger of a job from its streams' states; empty where nothing is known of GPUs."""
    account, families = account_of(job, plan, streams), streams.families.values()
    shares = next((each for family in families if (each := family.step_shares) is not None), None)
    ledgers = (family.ledger(account, ended=streams.closed, shares=shares) for family in families)
    return next((ledger for ledger in ledgers if ledger is not None), Ledger([]))
