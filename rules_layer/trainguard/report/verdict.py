"""The three sentences that are read first: is the job healthy, what to change, what leaving it costs."""

from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.pricing.cost import Bill
from trainguard.records import Status
from trainguard.report.causes import charge_of, lies_between_steps, root_of
from trainguard.report.document import Level, Verdict
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.evaluation_gaps import Judged, unjudged
from trainguard.report.facts import low_use, share_between_steps
from trainguard.report.health import health_of
from trainguard.report.unexplained import unexplained
from trainguard.report.waste import cost_sentence
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.units import clause, listed, show_percent

_BETWEEN_STEPS = (
    "Look between the steps first: load batches ahead of time, with more data loader workers and prefetching, and log "
    "and write checkpoints less often."
)


def verdict_of(judged: EvaluatedJob) -> Verdict:
    """Say of a job what matters most."""
    root, rules = root_of(judged.findings), unjudged(judged)
    charge = None if root is None else charge_of(root, judged.findings, judged)
    health = health_of(judged, rules, root)
    bill = judged.account.bill()
    return Verdict(
        health=health.sentence,
        change=_without_finding(judged, rules, health.level) if root is None else _with_finding(judged, root),
        cost=cost_sentence(judged, root, charge, rules),
        level=health.level,
        rule=None if root is None else root.rule,
        wasted_share=None if charge is None else charge.share,
        lost=round(charge.share * bill.spent, 2) if charge is not None and isinstance(bill, Bill) else None,
    )


def _with_finding(judged: EvaluatedJob, root: RankedFinding) -> str:
    advice = root.finding.advice or f"Look at what {root.rule} says: {root.finding.reason}"
    return f"{_BETWEEN_STEPS} {advice}" if lies_between_steps(root, share_between_steps(judged)) else advice


def _without_finding(judged: EvaluatedJob, rules: Judged, level: Level) -> str:
    """Say what to do about a job on which nothing was found."""
    fault = _setting_at_fault(judged)
    if fault is not None:
        return f"Correct this setting: {clause(fault)}."
    if rules.failed:
        verdict = judged.verdict_of(rules.failed[0])
        reason = "" if verdict is None else f": {clause(verdict.result.reason)}"
        return f"Report this fault of TrainGuard, {rules.failed[0]} could not judge{reason}."
    if not rules.judged:
        return "Nothing can be advised: there is no verdict." if judged.ended else "Nothing can be advised yet."
    use = low_use(judged)
    if use is not None and rules.blind_to_gpus:
        busy, unsure = f"{show_percent(use)} busy", listed(rules.pending)
        if judged.ended:
            return f"Find out why the GPUs were only {busy}: {unsure} had too little data to say."
        return f"Wait for more data: the GPUs are only {busy}, and {unsure} cannot say yet."
    left = unexplained(judged)
    return _nothing_to_change(judged, level) if left is None else f"Find out what the job did then: {left.sentence}."


def _nothing_to_change(judged: EvaluatedJob, level: Level) -> str:
    nothing = (
        "Nothing needs to be changed"
        if level == "healthy"
        else "Nothing needs to be changed, as far as that was judged"
    )
    saving = smaller_instance(judged)
    return f"{nothing}." if saving is None else f"{nothing}, but it may be had for less: {saving}"


def _setting_at_fault(judged: EvaluatedJob) -> str | None:
    faults = judged.plan.faults
    rule = next((rule for rule in faults if rule != PROFILER_REPORT), PROFILER_REPORT)
    return str(faults[rule]) if rule in faults else None


def smaller_instance(judged: EvaluatedJob) -> str | None:
    """Return what a rule says that finds every node oversized, of the first of them; None where none does."""
    for nodes in judged.by_node.values():
        said = [each.result for each in nodes.values() if each.result.status is Status.OK]
        if said and all(each.oversized for each in said):
            return said[0].reason
    return None
