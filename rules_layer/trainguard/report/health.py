"""The first sentence of a report: is the job healthy, as far as that was judged."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.engine.verdicts.severity import severity_of
from trainguard.families.training.keys import TRAINING
from trainguard.finding import Severity
from trainguard.pricing.cost import Bill
from trainguard.report.causes import (
    between_steps,
    group_of,
    hint_of,
    in_words,
    joined_with,
    lies_between_steps,
    looks_low,
    other_roots,
    wasted_share,
)
from trainguard.report.document import Level
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.evaluation_gaps import Judged
from trainguard.report.facts import gpu_use, left_out, share_between_steps
from trainguard.report.phrasing import listed, show_money
from trainguard.report.unexplained import unexplained
from trainguard.rules.registry import spec_of
from trainguard.rules.symptoms import LOW_GPUS
from trainguard.rules.units import counted, show_percent

NAMED_EPISODES = 3
LEARNING = "training/NotLearning"
"""The rule that has to judge the losses of a job without a profile before the job is called healthy."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a job is, in a word and in a sentence."""

    level: Level
    sentence: str


def health_of(judged: EvaluatedJob, rules: Judged, root: RankedFinding | None) -> Health:
    """Say how a job is; ``root`` is the finding that matters most."""
    if root is not None:
        return _with_findings(judged, rules, root)
    if not rules.judged:
        return Health("unknown", f"{_nothing_to_say(judged, rules)}.")
    use, left = _use(judged), unexplained(judged)
    missing = rules.in_words(ended=judged.ended)
    if not rules.complete:
        found = f"Nothing wrong was found by {_rules(rules.judged)}, {_but(judged)}: {missing}"
        parts = [found, *([use] if use else []), *([left.sentence] if left else []), *_paused(judged)]
        return Health("unknown", f"{'; '.join(parts)}.")
    others = _not_applicable(judged, rules)
    if not (judged.profiled or LEARNING in rules.judged):
        found = f"Nothing wrong was found by {_rules(rules.judged)}, but no rule could judge losses or a profile"
        return Health("unknown", f"{found}{others}.")
    found = _rules(rules.judged, "found", "found") if judged.ended else _rules(rules.judged, "finds", "find")
    if left is not None:
        said = [f"{_idle(judged)}: {found} nothing wrong{others}", *([use] if use else []), left.sentence]
        said += _paused(judged)
        return Health("attention", f"{'; '.join(said)}.")
    what = "This job" if judged.profiled else "Training"
    healthy = f"{what} {'was' if judged.ended else 'is'} healthy: {found} nothing wrong"
    said = [f"{healthy}{others}, and {use}" if use else f"{healthy}{others}", *_paused(judged)]
    return Health("healthy", f"{'; '.join(said)}.")


def _not_applicable(judged: EvaluatedJob, rules: Judged) -> str:
    """Say in brackets how many rules do not apply, and why; empty where all do."""
    training = [rule for rule in rules.not_applicable if spec_of(rule).family == TRAINING]
    others = [rule for rule in rules.not_applicable if spec_of(rule).family != TRAINING]
    parts = []
    if others:
        lacks = "its GPUs are partitioned (MIG)" if judged.mig_instances else "it has no GPUs that wrote metrics"
        why = "" if judged.gpus else f", as {lacks}"
        parts.append(f"{_rules(others, 'does', 'do')} not apply{why if judged.profiled else ', without a profile'}")
    if training:
        checked = "it checks" if len(training) == 1 else "they check"
        parts.append(f"{_rules(training, 'lacks', 'lack')} the steps or values that {checked}")
    return f" ({'; '.join(parts)})" if parts else ""


def _with_findings(judged: EvaluatedJob, rules: Judged, root: RankedFinding) -> Health:
    """Name the findings that nothing explains, the most severe first, and what no finding accounts for."""
    group, left = group_of(root, judged.findings), unexplained(judged)
    level, opening = _opening(judged, root)
    named = f"{_found(judged, root, group)} ({root.rule}, {_marked(root, judged)})"
    others = other_roots(root, judged.findings)
    also = [f"also found: {listed([f'{each.rule} ({_marked(each, judged)})' for each in others])}"] if others else []
    if left is None:
        said = [f"{opening} {named}", *also]
    elif 100.0 * left.share > root.score:
        said = [f"{_idle(judged)}: {left.sentence}", f"besides, {named}", *also]
    else:
        said = [f"{opening} {named}", *also, left.sentence]
    return Health(level, f"{'; '.join([*said, *_paused(judged), *rules.faults, *_too_late(judged, rules, root)])}.")


def _paused(judged: EvaluatedJob) -> list[str]:
    """Say how much of the job the rules on utilization did not look at, where that is much."""
    share = left_out(judged)
    if share is None:
        return []
    bill = judged.account.bill()
    cost = f" ({show_money(share * bill.spent, bill.currency)})" if isinstance(bill, Bill) else ""
    return [f"{show_percent(100.0 * share)} of its points were left out as pauses{cost}"]


def _idle(judged: EvaluatedJob) -> str:
    return f"This job {'was' if judged.ended else 'is'} idle in part without a reason"


def _too_late(judged: EvaluatedJob, rules: Judged, root: RankedFinding) -> list[str]:
    """Name the rules that will have no verdict any more; of GPUs that do nothing, no rule could say more."""
    if not judged.ended or not rules.pending or root.idle_node is not None:
        return []
    return [f"{listed(rules.pending)} had too little data for a verdict"]


def _opening(judged: EvaluatedJob, root: RankedFinding) -> tuple[Level, str]:
    if not (root.ongoing or judged.ended):
        return "attention", "Nothing is seen of it now, but earlier in this job"
    tense = "was" if judged.ended else "is"
    if wasted_share(root, judged.account.nodes) is None:
        return "attention", f"This job {tense} at risk:"
    if _severity_of_all(judged.findings) is Severity.LOW:
        return "attention", f"This job {'had' if judged.ended else 'has'} a small fault:"
    return "unhealthy", f"This job {tense} not healthy:"


def _severity_of_all(findings: Sequence[RankedFinding]) -> Severity:
    """Return how grave the losses of a job are together: several small faults are no small fault."""
    return severity_of(sum(each.score for each in findings if each.charged_nodes is not None))


def _found(judged: EvaluatedJob, root: RankedFinding, group: Sequence[RankedFinding]) -> str:
    """Say what was found; where GPUs were not busy, how busy they were."""
    verdict = judged.verdict_of(root.rule)
    if verdict is None:
        return f"{root.rule} fired"
    use = _use(judged)
    if not use or not looks_low(group):
        return in_words(root, verdict)
    hint, between = hint_of(root, _quiet_reasons(judged)), share_between_steps(judged)
    if hint is None and between is not None and lies_between_steps(root, between):
        hint = between_steps(between)
    return joined_with(use, root, verdict, hint)


def _quiet_reasons(judged: EvaluatedJob) -> dict[str, tuple[int, int]]:
    """Return in how many points a reason for low GPUs was seen, and how many were judged, of rules that never fired."""
    counts = {}
    for verdict in judged.verdicts:
        spec = spec_of(verdict.rule)
        clause = spec.clause if isinstance(spec.clause, str) else verdict.result.clause
        if verdict.history.times_fired or LOW_GPUS not in spec.explains or not clause:
            continue
        parts = [*judged.by_node.get(verdict.rule, {}).values()] or [verdict]
        pooled = [each.result.pooled for each in parts if each.result.pooled is not None]
        counts[clause] = sum(hits for hits, _ in pooled), sum(points for _, points in pooled)
    return counts


def _marked(ranked: RankedFinding, judged: EvaluatedJob) -> str:
    """For example ``high, on 3 of 8 nodes, over now``."""
    affected, of = ranked.nodes
    where = f", on {affected:,} of {of:,} nodes" if affected < of else ""
    over = ", over before the end" if judged.ended else ", over now"
    parts = [f"{ranked.finding.severity}{where}{'' if ranked.ongoing else over}", *_when(ranked)]
    share, bill = wasted_share(ranked, judged.account.nodes), judged.account.bill()
    if ranked.unexplained and share is not None and isinstance(bill, Bill):
        parts.append(show_money(share * bill.spent, bill.currency))
    return ", ".join(parts)


def _when(finding: RankedFinding) -> list[str]:
    """Say when and where a finding stands for itself: of many episodes the newest, and how many there were."""
    episodes = finding.unexplained
    if not episodes:
        return []
    of = len(episodes) + (finding.earlier_episodes if len(episodes) == len(finding.episodes) else 0)
    shown = listed([episode.sentence for episode in episodes[-NAMED_EPISODES:]])
    return [shown if of <= NAMED_EPISODES else f"{of:,} times, last {shown}"]


def _nothing_to_say(judged: EvaluatedJob, rules: Judged) -> str:
    """Say why there is no verdict at all."""
    missing = rules.in_words(ended=judged.ended)
    if not missing:
        return "No verdict: no rule applies to this job's data"
    return f"No verdict: {missing}" if judged.ended else f"No verdict yet: {missing}"


def _but(judged: EvaluatedJob) -> str:
    return "but the evaluation is incomplete" if judged.ended else "but the evaluation is not complete yet"


def _rules(rules: Sequence[str], one: str = "", many: str = "") -> str:
    """For example ``the 8 rules that apply find``; a single one by name."""
    verb = one if len(rules) == 1 else many
    said = rules[0] if len(rules) == 1 else counted(len(rules), "rule")
    return f"{said} {verb}".strip()


def _use(judged: EvaluatedJob) -> str:
    """Say how busy the GPUs were; empty where that was not counted."""
    use = gpu_use(judged)
    if use is None:
        return ""
    gpus = "its GPU was" if judged.gpus == 1 else f"its {judged.gpus:,} GPUs were"
    return f"{gpus} {show_percent(use)} busy on average"
