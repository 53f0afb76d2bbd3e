"""The report's own verdict: what the eleven rules' verdicts come to, in one sentence and one row."""

from collections import Counter
from collections.abc import Sequence

from trainguard.engine.plan import RulePlan
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.engine.verdicts.verdict import JUDGED, Verdict, shown_status
from trainguard.records import Status
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.rule_result import RuleResult

_WORDS = {
    Status.WARMING_UP: "warming up",
    Status.WAITING_FOR_DATA: "waiting for data",
    Status.NOT_APPLICABLE: "not applicable",
    Status.DISABLED: "disabled",
    Status.ERROR: "in error",
}


def report_verdict(verdicts: Sequence[Verdict], findings: Sequence[RankedFinding], plan: RulePlan) -> Verdict:
    """Return the report's verdict on a job; it has no fires of its own, so it is alerted never."""
    fault = plan.faults.get(PROFILER_REPORT)
    statuses = [shown_status(verdict) for verdict in verdicts]
    running = [each for each in statuses if each is not Status.DISABLED]
    status = min(running, key=lambda each: each.place, default=Status.NOT_APPLICABLE)
    top = findings[0] if findings else None
    result = RuleResult(
        status if fault is None else Status.ERROR,
        sentence(verdicts, findings) if fault is None else str(fault),
        measured=float(len(findings)),
        worst=None if top is None else top.worst,
        data_points=sum(each in JUDGED for each in statuses),
        advice=None if top is None else top.finding.advice,
    )
    histories = [verdict.history for verdict in verdicts]
    return Verdict(
        PROFILER_REPORT,
        result,
        FiringHistory(
            is_open=any(each.is_open for each in histories),
            violations=sum(each.violations for each in histories),
            times_fired=sum(each.times_fired for each in histories),
            fired_at=max((each.fired_at for each in histories if each.fired_at is not None), default=None),
        ),
    )


def sentence(verdicts: Sequence[Verdict], findings: Sequence[RankedFinding]) -> str:
    """Say in words what was found: the most severe finding, the others by name, how many rules have a verdict."""
    ended = any(verdict.ended for verdict in verdicts)
    return f"{_found(findings, ended=ended)} {_counted(verdicts)}"


def _found(findings: Sequence[RankedFinding], *, ended: bool) -> str:
    if not findings:
        return "No rule has fired."
    top, *others = findings
    over = "" if top.ongoing else ", over before the end" if ended else ", over now"
    said = f"{top.rule} ({top.finding.severity}{over}): {top.finding.reason}"
    if top.finding.cost is not None:
        said += f" It has cost {top.finding.cost}."
    if others:
        said += f" Also: {', '.join(_named(finding) for finding in others)}."
    return said


def _named(ranked: RankedFinding) -> str:
    explained = "" if ranked.explained_by is None else f", explained by {ranked.explained_by}"
    when = "" if not ranked.unexplained else f", {ranked.unexplained[-1].sentence}"
    return f"{ranked.rule} ({ranked.finding.severity}{explained}{when})"


def _counted(verdicts: Sequence[Verdict]) -> str:
    """Say for example ``11 rules: 8 evaluated, 2 not applicable, 1 in error (<rule>).``."""
    counts = Counter(shown_status(verdict) for verdict in verdicts)
    parts = [f"{counts[Status.OK] + counts[Status.FIRED]} evaluated"]
    words = dict(_WORDS)
    if any(verdict.ended for verdict in verdicts):
        words[Status.WARMING_UP] = "without a verdict"
    parts += [f"{counts[status]} {word}" for status, word in words.items() if counts[status]]
    rules = "1 rule" if len(verdicts) == 1 else f"{len(verdicts)} rules"
    text = f"{rules}: {', '.join(parts)}"
    failed = [verdict.rule for verdict in verdicts if verdict.result.status is Status.ERROR]
    return f"{text} ({', '.join(failed)})." if failed else f"{text}."
