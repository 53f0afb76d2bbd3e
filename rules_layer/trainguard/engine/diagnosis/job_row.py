"""The job's own row: the diagnosis as one verdict, under the name of ProfilerReport."""

from dataclasses import replace

from trainguard.core.records import Status
from trainguard.engine.diagnosis.case import Case
from trainguard.engine.diagnosis.diagnosis import Diagnosis
from trainguard.engine.diagnosis.text import sentences_of
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import JUDGED, Verdict, shown_status
from trainguard.ledger.document import ledger_facts
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.rule_result import RuleResult


def report_verdict(case: Case, diagnosis: Diagnosis) -> Verdict:
    """Return the report's verdict; its kind is the diagnosis's level, its facts are the ledger."""
    fault = case.plan.faults.get(PROFILER_REPORT)
    root = diagnosis.root
    words = sentences_of(case, diagnosis)
    standing = report_standing(case)
    result = replace(
        standing.result,
        reason=f"{words.health} {words.cost}" if fault is None else str(fault),
        measured=float(len(case.findings)),
        worst=None if root is None else root.verdict.result.worst,
        advice=None if root is None else words.change,
        kind=diagnosis.level,
        facts=ledger_facts(diagnosis.ledger),
    )
    return replace(standing, result=result)


def report_standing(case: Case) -> Verdict:
    """Return how the report's row stands, without its words; it never fires."""
    statuses = [shown_status(verdict) for verdict in case.verdicts]
    running = [each for each in statuses if each is not Status.DISABLED]
    status = min(running, key=lambda each: each.place, default=Status.NOT_APPLICABLE)
    if PROFILER_REPORT in case.plan.faults:
        status = Status.ERROR
    histories = [verdict.history for verdict in case.verdicts]
    return Verdict(
        PROFILER_REPORT,
        RuleResult(status, "", data_points=sum(each in JUDGED for each in statuses)),
        FiringHistory(
            is_open=any(each.is_open for each in histories),
            violations=sum(each.violations for each in histories),
            times_fired=sum(each.times_fired for each in histories),
            fired_at=max((each.fired_at for each in histories if each.fired_at is not None), default=None),
        ),
    )
