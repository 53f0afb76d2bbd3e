"""Which finding is the thing to change, what stands or falls with it, and what it looks like in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainguard.engine.verdicts.explanations import EXPLAINED_SHARE
from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.engine.verdicts.joint_loss import joint_nodes
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.rules.registry import spec_of
from trainguard.rules.symptoms import LOW_GPUS, NO_REASON
from trainguard.rules.units import show_percent

_BETWEEN_SHARE = 0.5
"""What lies between the steps is named where it is at least this part of what low GPUs waste."""


def root_of(findings: Sequence[RankedFinding]) -> RankedFinding | None:
    """Return the cause at the end of the gravest finding's chain of explanations; None without findings."""
    return _root(findings[0], findings) if findings else None


def group_of(root: RankedFinding, findings: Sequence[RankedFinding]) -> list[RankedFinding]:
    """Return a cause with all that it explains, be it through others: what they waste is the same waste."""
    return [finding for finding in findings if _root(finding, findings).rule == root.rule]


def other_roots(root: RankedFinding, findings: Sequence[RankedFinding]) -> list[RankedFinding]:
    """Return the findings that nothing explains, without ``root``."""
    return [finding for finding in findings if finding.explained_by is None and finding.rule != root.rule]


def wasted_share(finding: RankedFinding, nodes: int) -> float | None:
    """Return the share, 0 to 1, of the nodes' paid time that a finding has wasted; None where no rule can say.

    Of a cause that is what it explains, too; of a symptom that others explain in part, what is left.
    """
    wasted = finding.wasted_nodes if finding.explained_by is not None else finding.charged_nodes
    return None if wasted is None else min(wasted / nodes, 1.0)


@dataclass(frozen=True, slots=True)
class Charge:
    """What the findings of a job that nothing explains have cost: ``rules`` names those that cost anything.

    ``share`` is that of all of them together, ``own`` that of the gravest: shares, 0 to 1, of the nodes' paid time.
    """

    rules: tuple[str, ...]
    share: float
    own: float


def charge_of(root: RankedFinding, findings: Sequence[RankedFinding], judged: EvaluatedJob) -> Charge | None:
    """Return what a job's findings have cost; None of a risk that has cost nothing yet."""
    own = wasted_share(root, judged.account.nodes)
    roots = [root, *other_roots(root, findings)]
    together = joint_nodes(roots, judged.streams.watermark_s)
    if own is None or together is None:
        return None
    share = max(min(together / judged.account.nodes, 1.0), own)
    rules = tuple(each.rule for each in roots if each.charged_nodes) if share > own else (root.rule,)
    return Charge(rules, share, own)


def looks_low(group: Sequence[RankedFinding]) -> bool:
    """Tell whether GPUs that are not busy are part of what was found."""
    specs = [spec_of(finding.rule) for finding in group]
    return any(LOW_GPUS in (spec.symptom, *spec.seen_with) for spec in specs)


def joined_with(use: str, finding: RankedFinding, verdict: Verdict, hint: str | None = None) -> str:
    """Say how busy the GPUs were and, as its reason, what was found; ``hint`` is what may be behind low GPUs."""
    words = in_words(finding, verdict)
    if finding.symptom == LOW_GPUS and NO_REASON in words:
        return f"{use}, {NO_REASON if hint is None else hint}"
    return f"{use}, because {words}"


def hint_of(finding: RankedFinding, quiet: Mapping[str, tuple[int, int]]) -> str | None:
    """Say what low GPUs waited for in a good part of the time, though too rarely for the rule on it to fire.

    ``quiet`` holds, of each rule that names a reason for them, in how many points it was seen and how many were judged.
    """
    shares = {rule: hits / judged for rule, (hits, judged) in quiet.items() if judged}
    rule = max(shares, key=lambda each: shares[each], default=None)
    if rule is None or finding.wasted_share is None or shares[rule] < EXPLAINED_SHARE * finding.wasted_share:
        return None
    return f"in part because {spec_of(rule).clause}, in {show_percent(100.0 * shares[rule])} of the points"


def lies_between_steps(finding: RankedFinding, between: float | None) -> bool:
    """Tell whether low GPUs can be those of the time between steps: ``between``, 0 to 1, is its share of the loop."""
    if finding.symptom != LOW_GPUS:
        return False
    wasted = finding.wasted_share
    return between is not None and wasted is not None and between >= _BETWEEN_SHARE * wasted


def between_steps(share: float) -> str:
    """Say what goes with low GPUs, where nothing else does."""
    return f"with {show_percent(100.0 * share)} of the training loop between the steps, where batches are loaded"


def in_words(finding: RankedFinding, verdict: Verdict) -> str:
    """Say what was found as a clause in the past tense, for example ``the GPUs waited for the CPU cores``."""
    if verdict.result.found_words.clause:
        return verdict.result.found_words.clause
    clause = spec_of(finding.rule).clause
    if clause is None:
        return f"{finding.rule} fired"
    if isinstance(clause, str):
        return clause
    result = replace(verdict.result, reason=finding.finding.reason, idle_node=finding.idle_node)
    # The newest judgement may be of another kind than what the finding stands for.
    same = result.idle_node == verdict.result.idle_node
    return clause(result if same else replace(result, measure=None), finding.nodes[1])


def _root(finding: RankedFinding, findings: Sequence[RankedFinding]) -> RankedFinding:
    by_rule = {each.rule: each for each in findings}
    while finding.explained_by is not None and finding.explained_by in by_rule:
        finding = by_rule[finding.explained_by]
    return finding
