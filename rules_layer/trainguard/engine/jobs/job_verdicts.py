"""The verdicts of a whole job, from its units' states, family by family."""

from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.family_streams import JobRules, Look, UnitVerdicts
from trainguard.engine.streams.job_streams import JobStreams
from trainguard.engine.streams.rule_runner import gone_rules
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.final import final
from trainguard.engine.verdicts.verdict import Fire, Verdict
from trainguard.records import FIRST_FAMILY, JobRecord, Status
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.rule_result import RuleResult


def unit_verdicts(streams: JobStreams) -> UnitVerdicts:
    """Return the verdicts by rule and unit, of all families."""
    return {rule: of_rule for family in streams.families.values() for rule, of_rule in family.unit_verdicts().items()}


def job_verdicts(
    job: JobRecord, plan: RulePlan, streams: JobStreams, *, look: Look
) -> tuple[list[Verdict], list[Fire]]:
    """Return the job's verdict of every rule, and the fires of rules over the whole job that began.

    Moves the episodes in ``streams.state``.
    """
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
