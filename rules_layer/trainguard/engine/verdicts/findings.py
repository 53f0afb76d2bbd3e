"""What was found on a job, the gravest first, and causes before their symptoms.

Low GPUs are what most faults look like. A rule that names the reason comes before one that only names the look: where
both fire, the strongest rule that explains a symptom takes over its score, and the symptom follows it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainguard.engine.verdicts.severity import score_of, severity_of
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.finding import Episode
from trainguard.pricing.cost import HOUR_S, Account, Bill, Cost
from trainguard.records import Severity, Status
from trainguard.rules.registry import SPECS, spec_of
from trainguard.rules.rule_result import IdleNode
from trainguard.rules.symptoms import Symptom

EXPLAINED_SHARE = 1.0 / 3.0
"""A rule that says what its finding wastes explains a symptom only if that is this share of what the symptom wastes.

Either on the worst node or over all nodes: a node that makes the others wait wastes little of their sum, and what is
found by comparing nodes wastes little of their mean.
"""

SURE_FROM = 1.0 / 3.0
"""A rule that says how sure it is explains a symptom only from here on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that has fired on a job.

    ``ongoing`` says whether its episode is still open; ``nodes`` are how many nodes it was found on and how many were
    judged; ``wasted_nodes`` is how many nodes' whole time it cost; ``confidence`` is as in the rule's judgement,
    as is ``idle_node``; ``explained_by`` is the rule that names the reason for it. ``episodes`` are the newest times at
    which its condition held, oldest first, with what each cost; ``earlier_episodes`` counts those before them.
    """

    rule: str
    severity: Severity
    score: float
    ongoing: bool
    affected_share: float | None
    wasted_share: float | None
    worst: str | None
    nodes: tuple[int, int]
    reason: str
    advice: str | None
    cost: Cost | None
    wasted_nodes: float | None = None
    confidence: float | None = None
    idle_node: IdleNode | None = None
    explained_by: str | None = None
    episodes: tuple[Episode, ...] = ()
    earlier_episodes: int = 0

    @property
    def symptom(self) -> Symptom | None:
        """What the finding looks like: as its rule says, but of a node that does nothing at all, that."""
        return spec_of(self.rule).symptom if self.idle_node is None else Symptom(self.idle_node)

    @property
    def is_sure(self) -> bool:
        """Whether the rule is sure of its reason, as far as it says."""
        return self.confidence is None or self.confidence >= SURE_FROM

    @property
    def affected_percent(self) -> float | None:
        """Share of the judged time, or of the evaluations, in which it was seen, in percent to one decimal."""
        return None if self.affected_share is None else round(100.0 * self.affected_share, 1)


def finding_of(verdict: Verdict, account: Account) -> Finding:
    """Return what a verdict that has fired means by itself; ``account`` is of the nodes that the verdict is of."""
    result, reach = verdict.result, verdict.over_nodes
    affected = verdict.affected_share
    score = score_of(wasted_share=result.wasted_share, affected_share=affected, reach=reach)
    wasted = reach.wasted_nodes
    bill = None if wasted is None else account.bill()
    priced = bill if isinstance(bill, Bill) else None
    return Finding(
        rule=verdict.rule,
        severity=severity_of(score),
        score=score,
        ongoing=shown_status(verdict) is Status.FIRED,
        affected_share=affected,
        wasted_share=result.wasted_share,
        worst=result.worst,
        nodes=(reach.affected, reach.nodes),
        reason=result.reason,
        advice=result.advice,
        wasted_nodes=wasted,
        confidence=result.confidence,
        idle_node=result.idle_node,
        cost=priced.lost(wasted) if priced is not None and wasted is not None else None,
        episodes=tuple(_priced(episode, priced) for episode in verdict.episodes),
        earlier_episodes=verdict.earlier_episodes,
    )


def _priced(episode: Episode, bill: Bill | None) -> Episode:
    if bill is None or episode.wasted_s is None:
        return episode
    return replace(episode, cost=bill.hourly * episode.wasted_s / HOUR_S, currency=bill.currency)


def rank_findings(verdicts: Sequence[Verdict], account: Account) -> list[Finding]:
    """Return the findings of a job's verdicts: those that go on first, then by score, causes before symptoms."""
    found = {each.rule: finding_of(each, account) for each in verdicts if each.history.times_fired}
    causes = _causes(found)
    chains = {rule: _chain(rule, causes) for rule in found}
    scores = {rule: max(found[each].score for each in found if rule in chains[each]) for rule in found}
    ranked = [
        replace(finding, score=scores[rule], severity=severity_of(scores[rule]), explained_by=causes[rule])
        for rule, finding in found.items()
    ]
    return sorted(ranked, key=lambda each: (not each.ongoing, -each.score, len(chains[each.rule])))


def _causes(found: Mapping[str, Finding]) -> dict[str, str | None]:
    """Return by rule the rule that explains it; none in a circle, as rules of somebody else's may say."""
    causes: dict[str, str | None] = dict.fromkeys(found)
    for rule, finding in found.items():
        cause = _cause_of(finding, found)
        if cause is not None and rule not in _chain(cause, causes):
            causes[rule] = cause
    return causes


def _chain(rule: str, causes: Mapping[str, str | None]) -> list[str]:
    """Return a rule, the rule that explains it, the one that explains that, and so on."""
    chain = [rule]
    while (cause := causes[chain[-1]]) is not None:
        chain.append(cause)
    return chain


def _cause_of(symptom: Finding, found: Mapping[str, Finding]) -> str | None:
    """Return the strongest finding that explains a symptom; None when nothing does.

    A finding that is not sure explains nothing; it is itself explained by what it would else explain.
    """
    look, doubted = symptom.symptom, () if symptom.is_sure else spec_of(symptom.rule).explains
    rules = [rule for rule, spec in SPECS.items() if look in spec.explains or spec.symptom in doubted]
    causes = [found[rule] for rule in rules if rule in found and _explains(found[rule], symptom)]
    return max(causes, key=lambda cause: cause.score).rule if causes else None


def _explains(cause: Finding, symptom: Finding) -> bool:
    if not cause.is_sure or (symptom.ongoing and not cause.ongoing):
        return False
    if symptom.idle_node or cause.wasted_share is None or symptom.wasted_share is None:
        return True
    of_nodes = (cause.wasted_nodes or 0.0) >= EXPLAINED_SHARE * (symptom.wasted_nodes or math.inf)
    return of_nodes or cause.wasted_share >= EXPLAINED_SHARE * symptom.wasted_share
