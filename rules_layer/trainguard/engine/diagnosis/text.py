"""The words of a diagnosis: how the job is, what to change first, what the paid time went into."""

from dataclasses import dataclass, replace
from typing import TypeAlias

from trainguard.core.finding import clock_times
from trainguard.core.records import Status
from trainguard.core.timestamps import iso_time
from trainguard.core.units import clause, counted, listed, show_duration, show_money, show_share
from trainguard.engine.diagnosis.case import SIZEABLE_SHARE, DiagnosedJob, Diagnosis, JudgedRules
from trainguard.engine.streams.session import Gap
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.engine.verdicts.verdict import JUDGED, RuleOutcome, shown_status
from trainguard.ledger.bucket import BUCKET_WORDS, Bucket
from trainguard.ledger.document import ledger_facts
from trainguard.pricing.cost import CostEstimate, Unpriced
from trainguard.rules.change import ChangeCode
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import spec_of
from trainguard.rules.rule_result import RuleResult

NAMED_CAUSES = 3
NAMED_EPISODES = 3
# A smaller bucket of the paid time is not named in a sentence.
NAMED_SHARE = 0.01

MOSTLY = 0.5
DAY_H = 24.0

# Buckets that are no reason of a loss, or that the sentence on the work names itself.
_NO_REASON = frozenset({Bucket.COMPUTE, Bucket.NO_SAMPLES, Bucket.IDLE, Bucket.UNEXPLAINED})


# A change to make, and the sentence on it.
Advice: TypeAlias = tuple[ChangeCode, str]


@dataclass(frozen=True, slots=True)
class Sentences:
    """How the job is, what to change and what it costs; ``code`` says the change for programs."""

    health: str
    change: str
    cost: str
    code: ChangeCode


def sentences_of(case: DiagnosedJob, diagnosis: Diagnosis) -> Sentences:
    root = diagnosis.root
    health = _without_findings(case, diagnosis) if root is None else _with_findings(case, diagnosis, root)
    code, change = _change(case, diagnosis)
    return Sentences(health, change, _cost(case, diagnosis), code)


def _with_findings(case: DiagnosedJob, found: Diagnosis, root: RankedFinding) -> str:
    parts = [f"{_opening(case, found, root)} {_because(case, found, root)} ({_marked(root, case)})"]
    others = [each for each in found.causes[1:] if each.clause or each.loss is None or each.loss.share >= NAMED_SHARE]
    named = [f"{_clause(each)} ({each.rule}, {each.finding.severity})" for each in others[:NAMED_CAUSES]]
    if named:
        parts.append(f"besides, {listed(named)}")
    if len(others) > NAMED_CAUSES:
        parts.append(f"{counted(len(others) - NAMED_CAUSES, 'finding')} more")
    if found.lacks_reason:
        parts.append(_unexplained(found))
    parts += _gaps(found.judged)
    if case.ended and root.idle_node is None:
        parts += _silent(found.judged, case)
    return f"{'; '.join(parts)}."


def _opening(case: DiagnosedJob, found: Diagnosis, root: RankedFinding) -> str:
    if not (root.ongoing or case.ended):
        return "Nothing is wrong now, but earlier in this job"
    tense = "was" if case.ended else "is"
    if found.level == "unhealthy":
        return f"This job {tense} not healthy:"
    if all(each.loss is None for each in found.causes):
        return f"This job {tense} at risk:"
    return f"This job {'had' if case.ended else 'has'} a small fault:"


def _because(case: DiagnosedJob, found: Diagnosis, root: RankedFinding) -> str:
    if root.loss is None or not root.loss.share or found.lost_share is None or found.busy_share is None:
        return _clause(root)
    part = "mostly because" if root.loss.share >= MOSTLY * found.lost_share else "in part because"
    return f"{_worked(case, found)}, {part} {_clause(root)}"


def _clause(finding: RankedFinding) -> str:
    return finding.clause or f"{finding.rule} fired"


def _worked(case: DiagnosedJob, found: Diagnosis) -> str:
    if found.busy_share is None or not found.judged.profiled:
        return ""
    gpus = sum(node.gpus for node in case.ledger.nodes)
    whose = "its GPU" if gpus == 1 else f"its {gpus:,} GPUs"
    worked = f"{whose} worked {show_share(found.busy_share)} of the paid time"
    unseen = found.share_of(Bucket.NO_SAMPLES)
    return worked if unseen < SIZEABLE_SHARE else f"{worked}, {show_share(unseen)} of which has no samples"


def _without_findings(case: DiagnosedJob, found: Diagnosis) -> str:
    judged, worked = found.judged, "; ".join(_paid_time(case, found))
    rules = counted(len(judged.judged), "rule")
    if found.level == "healthy":
        what = "This job" if judged.profiled else "Training"
        text = [f"{what} {'was' if case.ended else 'is'} healthy: {rules} found nothing wrong"]
        return f"{', and '.join([*text, *([worked] if worked else [])])}."
    if found.level == "attention":
        parts = [f"{rules} found nothing wrong", worked, _unexplained(found)]
        return f"This job {'was' if case.ended else 'is'} idle in part without a known reason: {'; '.join(parts)}."
    if not judged.judged:
        return _without_verdict(case, found, worked)
    able = len(judged.judged) + len(judged.failed) + len(judged.pending) + len(judged.disabled)
    parts = [f"Nothing was found by {len(judged.judged)} of {counted(able, 'rule')}", *([worked] if worked else [])]
    if found.lacks_reason:
        parts.append(_unexplained(found))
    parts += [*_gaps(judged), *_silent(judged, case)]
    if judged.complete or len(parts) == 1:
        parts.append("whether the model learns was not judged, and no GPU was sampled")
    return f"{'; '.join(parts)}."


def _without_verdict(case: DiagnosedJob, found: Diagnosis, worked: str) -> str:
    judged = found.judged
    parts = [worked] if worked else []
    if found.lacks_reason:
        parts.append(_unexplained(found))
    parts += [*_gaps(judged), *_silent(judged, case)]
    if not (judged.failed or judged.vetoes):
        parts.append("no rule applies to the data of this job")
    return f"{'No verdict' if case.ended else 'No verdict yet'}: {'; '.join(parts)}."


def _paid_time(case: DiagnosedJob, found: Diagnosis) -> list[str]:
    worked = _worked(case, found)
    known = [entry for entry in found.ledger if entry.bucket not in _NO_REASON and entry.share >= SIZEABLE_SHARE]
    if not worked or not known:
        return [worked] if worked else []
    largest = max(known, key=lambda entry: entry.share)
    return [worked, f"{show_share(largest.share)} of it was {BUCKET_WORDS[largest.bucket]}"]


def _silent(judged: JudgedRules, case: DiagnosedJob) -> list[str]:
    waiting = "too little data" if case.ended else "not enough data yet"
    kinds = (
        ("in error", judged.failed, ""),
        ("not judged", judged.pending, f" ({waiting})"),
        ("not judged on all nodes", judged.partly, f" ({waiting})"),
        ("disabled", judged.disabled, ""),
    )
    silent = {*judged.failed, *judged.vetoes}
    found = [(what, [rule for rule in rules if rule in silent], why) for what, rules, why in kinds]
    return [f"{what}: {listed(rules)}{why}" for what, rules, why in found if rules]


def _unexplained(found: Diagnosis) -> str:
    return f"for {show_share(found.unexplained_share)} of the paid time no rule says why the GPUs did little"


def _gaps(judged: JudgedRules) -> list[str]:
    parts = [_gap(gap) for gap in judged.gaps]
    unread = ((judged.unread, "object"), (judged.unread_parts, "part"))
    parts += [f"{counted(amount, what)} could not be read" for amount, what in unread if amount]
    if judged.devices:
        parts.append(
            f"the metrics of {counted(judged.devices, 'accelerator')} are not read, so what they did is not known"
        )
    if judged.uncertain:
        parts.append(f"{judged.uncertain:,} of the losses and scores may mix several writers, or lack many values")
    if judged.runs:
        parts.append(
            f"of the job's runs the newest alone is judged, and {counted(judged.runs, 'other')} went on beside it"
        )
    return parts


def _gap(gap: Gap) -> str:
    if gap.kind == "silent":
        return f"{gap.node} wrote no system metrics"
    if gap.kind == "stopped":
        return f"{gap.node} stopped writing {show_duration(gap.seconds)} before the other nodes"
    times = listed([clock_times(iso_time(start), iso_time(end)) for start, end in gap.spans])
    when = f" ({times})" if times else ""
    return f"{gap.node} has no samples for {show_duration(gap.seconds)} of its {show_duration(gap.of_s)}{when}"


def _marked(finding: RankedFinding, case: DiagnosedJob) -> str:
    affected, nodes = finding.verdict.reach
    parts = [finding.rule, str(finding.finding.severity)]
    if affected < nodes:
        parts.append(f"on {affected:,} of {nodes:,} nodes")
    if not finding.ongoing:
        parts.append("over before the end" if case.ended else "over now")
    episodes = finding.unexplained if finding.finding.held else ()
    if episodes:
        shown = listed([episode.sentence for episode in episodes[-NAMED_EPISODES:]])
        earlier = finding.verdict.earlier_episodes if len(episodes) == len(finding.episodes) else 0
        total = len(episodes) + earlier
        parts.append(shown if total <= NAMED_EPISODES else f"{total:,} times, last {shown}")
    return ", ".join(parts)


def _change(case: DiagnosedJob, found: Diagnosis) -> Advice:
    root, judged = found.root, found.judged
    if root is not None:
        said = root.finding.advice or f"Look at what {root.rule} says: {root.finding.reason}"
        return spec_of(root.rule).change_for(root.finding.finding_kind), said
    faults = case.plan.faults
    if faults:
        rule = next((rule for rule in faults if rule != PROFILER_REPORT), PROFILER_REPORT)
        return ChangeCode.CORRECT_SETTING, f"Correct this setting: {clause(str(faults[rule]))}."
    if judged.failed:
        verdict = case.verdict_of(judged.failed[0])
        reason = "" if verdict is None else f": {clause(verdict.result.reason)}"
        said = f"Report this fault of TrainGuard, {judged.failed[0]} could not judge{reason}."
        return ChangeCode.REPORT_FAULT, said
    return _of_ledger(case, found) or _nothing(case, found)


def _of_ledger(case: DiagnosedJob, found: Diagnosis) -> Advice | None:
    """Say where to look for a loss that only the ledger knows; None without one."""
    if found.level == "unknown" and case.ended and found.share_of(Bucket.START_UP) >= MOSTLY:
        said = "Find out what the job did before its GPUs first worked: its log of that time says it."
        return ChangeCode.READ_JOB_LOG, said
    if found.level == "unknown" and case.ended and found.share_of(Bucket.TAIL) >= MOSTLY:
        said = "Find out what kept the job from ending after its last work: its log of that time says it."
        return ChangeCode.READ_JOB_LOG, said
    if not found.lacks_reason:
        return None
    if not case.ended and found.judged.pending:
        said = f"Wait for more data: {listed(found.judged.pending)} cannot say yet why the GPUs do little."
        return ChangeCode.WAIT_FOR_DATA, said
    if found.share_of(Bucket.UNEXPLAINED) < found.share_of(Bucket.IDLE):
        said = "Find out what the job did while its GPUs were idle: its log at these times says it."
        return ChangeCode.READ_JOB_LOG, said
    said = "Record a kernel trace of a few steps: it says whether the GPUs wait for the host, for data or for peers."
    return ChangeCode.RECORD_KERNEL_TRACE, said


def _nothing(case: DiagnosedJob, found: Diagnosis) -> Advice:
    judged, lost = found.judged, found.lost_share
    if not judged.judged and not case.ended:
        return ChangeCode.WAIT_FOR_DATA, "Nothing can be advised yet."
    if not judged.judged and (lost is None or lost >= SIZEABLE_SHARE):
        return ChangeCode.COLLECT_DATA, "Collect GPU samples or losses: without them there is no verdict."
    saving = smaller_instance(case)
    nothing = "Nothing needs to be changed"
    if found.level != "healthy":
        nothing += ", as far as that was judged" if judged.judged else ", as far as the work of the GPUs shows"
    if found.level == "unknown":
        nothing = f"Collect what was not judged or not read; {nothing[0].lower()}{nothing[1:]}"
    code = ChangeCode.COLLECT_DATA if found.level == "unknown" else ChangeCode.NOTHING
    return code, f"{nothing}." if saving is None else f"{nothing}, but it can cost less: {saving}"


def smaller_instance(case: DiagnosedJob) -> str | None:
    text = [each.result for each in case.verdicts if each.result.oversized and not each.history.times_fired]
    return text[0].reason if text else None


def _cost(case: DiagnosedJob, found: Diagnosis) -> str:
    estimate = case.paid_time.estimate()
    if found.lost_share is None or not found.judged.profiled:
        return f"No GPU was sampled, so what the paid time went into is unknown; {_spent(estimate, case)}."
    named = [
        f"{BUCKET_WORDS[entry.bucket]} {show_share(entry.share)}"
        for entry in sorted(found.ledger, key=lambda entry: -entry.share)
        if entry.bucket is not Bucket.COMPUTE and entry.share >= NAMED_SHARE
    ]
    parts = f": {', '.join(named)}" if named else ""
    sentences = [f"Of the paid time {show_share(found.lost_share)} was no work{parts}"]
    if found.root is not None and found.root.loss is not None and found.root.loss.share:
        sentences.append(f"{found.root.rule} accounts for {show_share(found.root.loss.share)}")
    if isinstance(estimate, CostEstimate):
        lost = show_money(found.lost_share * estimate.spent, estimate.currency)
        sentences.append(f"that is {lost} of the {show_money(estimate.spent, estimate.currency)} {_paid(case)}")
        rate = 0.0 if found.root is None or found.root.loss is None or case.ended else found.root.loss.rate
        if rate:
            daily = DAY_H * rate * estimate.hourly * estimate.nodes
            sentences.append(f"it goes on to lose {show_money(daily, estimate.currency)} a day")
    else:
        sentences.append(_spent(estimate, case))
    return f"{'; '.join(sentences)}."


def _paid(case: DiagnosedJob) -> str:
    return "paid" if case.ended else "paid so far"


def _spent(estimate: CostEstimate | Unpriced, case: DiagnosedJob) -> str:
    if isinstance(estimate, Unpriced):
        hours = "" if estimate.instance_hours is None else f" for {estimate.instance_hours:,.2f} instance hours"
        return f"what was paid{hours} is not known, because {estimate.why}"
    return f"{show_money(estimate.spent, estimate.currency)} {'was' if case.ended else 'has been'} {_paid(case)}"


def counted_rules(case: DiagnosedJob, judged: JudgedRules) -> str:
    """Say for example ``11 rules: 8 judged, 2 not applicable, 1 in error (its name).``."""
    parts = [f"{len(judged.judged)} judged"]
    for rules, word in (
        (judged.pending, "without a verdict"),
        (judged.not_applicable, "not applicable"),
        (judged.disabled, "disabled"),
    ):
        parts += [f"{len(rules)} {word}"] if rules else []
    informing = sum(spec_of(each.rule).informs_only for each in case.verdicts)
    parts += [f"{informing} inform only"] if informing else []
    parts += [f"{len(judged.failed)} in error ({listed(judged.failed)})"] if judged.failed else []
    return f"{counted(len(case.verdicts), 'rule')}: {', '.join(parts)}."


def report_verdict(case: DiagnosedJob, diagnosis: Diagnosis) -> RuleOutcome:
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


def report_standing(case: DiagnosedJob) -> RuleOutcome:
    """Return how the report's row stands, without its words; it never fires."""
    statuses = [shown_status(verdict) for verdict in case.verdicts]
    running = [each for each in statuses if each is not Status.DISABLED]
    status = min(running, key=lambda each: each.place, default=Status.NOT_APPLICABLE)
    if PROFILER_REPORT in case.plan.faults:
        status = Status.ERROR
    histories = [verdict.history for verdict in case.verdicts]
    return RuleOutcome(
        PROFILER_REPORT,
        RuleResult(status, "", data_points=sum(each in JUDGED for each in statuses)),
        FiringHistory(
            is_open=any(each.is_open for each in histories),
            violations=sum(each.violations for each in histories),
            times_fired=sum(each.times_fired for each in histories),
            fired_at=max((each.fired_at for each in histories if each.fired_at is not None), default=None),
        ),
    )
