"""What to do about each rule's verdict, in one sentence for this case."""

from collections.abc import Callable, Mapping

from trainguard.engine.diagnosis.text import smaller_instance
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.errors import RuleLoadError
from trainguard.records import Status
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import OWN_NAMES, spec_of
from trainguard.rules.units import clause, show_duration
from trainguard.rules.windowing import PatienceParameters


def recommendation(verdict: Verdict, judged: EvaluatedJob) -> str | None:
    """Return the rule's own advice, or what to know of a rule that has not fired; None where there is nothing to do."""
    result, status = verdict.result, shown_status(verdict)
    if status is Status.ERROR:
        return _of_error(verdict, judged)
    if result.advice is not None:
        explained = next((each for each in judged.findings if each.rule == verdict.rule and each.explained_by), None)
        return result.advice if explained is None else explained.finding.advice
    return _SAID[status](verdict, judged) if status in _SAID else None


def _of_ok(verdict: Verdict, judged: EvaluatedJob) -> str | None:
    oversized = verdict.result.oversized and smaller_instance(judged) is not None
    return "Try the job on a smaller instance." if oversized else None


def _of_disabled(verdict: Verdict, judged: EvaluatedJob) -> str | None:
    if verdict.rule not in judged.plan.disabled:
        return None
    return f"Set rule_to_invoke to {PROFILER_REPORT} to run it with the others."


def _of_error(verdict: Verdict, judged: EvaluatedJob) -> str:
    fault, reason = judged.plan.faults.get(verdict.rule), clause(verdict.result.reason)
    if fault is not None and not isinstance(fault, RuleLoadError):
        return f"Correct this setting: {reason}."
    if verdict.rule not in OWN_NAMES:
        return f"Correct this custom rule: {reason}. The other rules are not affected."
    return f"Report this fault of TrainGuard: {reason}. The other rules are not affected."


def _of_framework(verdict: Verdict, judged: EvaluatedJob) -> str | None:
    if "framework" not in spec_of(verdict.rule).inputs or judged.framework_nodes:
        return None
    return "Collect framework metrics next time: what was not collected says how."


def _of_short_job(verdict: Verdict, judged: EvaluatedJob) -> str | None:
    """Say which setting lets a job of this length be judged, where it is the length that was lacking."""
    if not judged.ended:
        return None
    too_short = spec_of(verdict.rule).too_short
    if too_short is not None:
        return too_short
    parameters = judged.plan.parameters.get(verdict.rule)
    points = verdict.result.data_points
    if not isinstance(parameters, PatienceParameters) or not points:
        return None
    needed = parameters.patience_points(judged.interval_s)
    if points > needed:
        return None
    setting = "patience" if parameters.patience is not None and parameters.patience_s is None else "patience_s"
    return (
        f"Lower {verdict.rule}_{setting} for jobs as short as this one: it is {needed:,} points, which are "
        f"{show_duration(needed * judged.interval_s)} at a point every {judged.interval_s:g} s; there were {points:,}."
    )


_SAID: Mapping[Status, Callable[[Verdict, EvaluatedJob], str | None]] = {
    Status.DISABLED: _of_disabled,
    Status.NOT_APPLICABLE: _of_framework,
    Status.OK: _of_ok,
    Status.WARMING_UP: _of_short_job,
}
