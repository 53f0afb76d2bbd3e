"""What was found on a job, the gravest first, and causes before their symptoms.

Low GPUs are what most faults look like. A rule that names the reason comes before one that only names the look, for the
time in which both were there, and takes that time of the ledger first. A symptom of which every episode is explained
follows its cause; else it stands for what is left of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from trainguard.engine.verdicts.explanations import SURE_FROM, Explanation, advice_of, explanation_of
from trainguard.engine.verdicts.losses import (
    TRACED,
    Loss,
    claimed_buckets,
    claims_of,
    ledger_end,
    loss_from,
    losses_of,
    mark_ruined,
    score_of_verdict,
    span_of,
)
from trainguard.engine.verdicts.severity import severity_of
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.engine.verdicts.words import past_words
from trainguard.finding import Episode, Finding, clock_times
from trainguard.ledger.claims import Claim, Claimed
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import Account, Cost
from trainguard.records import Status
from trainguard.rules.registry import spec_of
from trainguard.rules.rule_result import IdleNode
from trainguard.rules.symptoms import Symptom
from trainguard.timestamps import iso_time

OVER_WEIGHT = 0.25
"""How much of its score a finding that is over keeps for its place while the job runs."""

LEAST_MONEY = 0.005
"""What rounds to no money is not said."""

MISSED_WEIGHT = 0.5
"""How much of its score a risk keeps for its place once the job has ended without it."""


@dataclass(frozen=True, slots=True)
class RankedFinding:
    """A rule that has fired on a job, with all that its place among the others is made of.

    Attributes
    ----------
    finding : Finding
    verdict : Verdict
        What it is made of.
    score : float
        From 0 to 100; the severity is its level.
    alone : Loss or None
        What it claims of the ledger where no other finding claims anything; None of a risk.
    loss : Loss or None
        What it claims beside the others, of which no second is another's; None of a risk.
    idle_node
        As in the rule's result; of the episode that the finding speaks of, where that is another one.
    explained_by : str or None
        The rule that names the reason for it.
    explained_share : float
        The share, 0 to 1, of its time for which some rule does.
    reasons : mapping of str to float
        The part of it that is each rule's own.
    unexplained : tuple of Episode
        Those of its episodes that no rule explains.
    clause : str
        What was found, in a few words.
    """

    finding: Finding
    verdict: Verdict
    score: float
    alone: Loss | None = None
    loss: Loss | None = None
    idle_node: IdleNode | None = None
    explained_by: str | None = None
    explained_share: float = 0.0
    unexplained: tuple[Episode, ...] = ()
    reasons: Mapping[str, float] = field(default_factory=dict)
    clause: str = ""

    @property
    def rule(self) -> str:
        """Name of the rule."""
        return self.finding.rule

    @property
    def ongoing(self) -> bool:
        """Whether its episode is still open."""
        return shown_status(self.verdict) is Status.FIRED

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The newest times at which its condition held, oldest first, with what each cost."""
        return self.finding.episodes

    @property
    def symptom(self) -> Symptom | None:
        """What the finding looks like: as its rule says, but of a node that does nothing at all, that."""
        spec = spec_of(self.rule)
        if self.idle_node is not None:
            return Symptom(self.idle_node)
        return spec.looks.get(self.finding.finding_kind, spec.symptom)

    @property
    def explains(self) -> tuple[Symptom, ...]:
        """The symptoms that the finding names a reason for."""
        spec = spec_of(self.rule)
        return (*spec.explains, *spec.explains_as.get(self.finding.finding_kind, ()))

    @property
    def is_sure(self) -> bool:
        """Whether the rule is sure of its reason, as far as it says."""
        confidence = self.verdict.result.confidence
        return confidence is None or confidence >= SURE_FROM

    @property
    def affected_percent(self) -> float | None:
        """Share of the judged time, or of the evaluations, in which it was seen, in percent to one decimal."""
        share = self.verdict.affected_share
        return None if share is None else round(100.0 * share, 1)

    @property
    def wasted_share(self) -> float | None:
        """Share, 0 to 1, of the paid time that it claims beside the others."""
        return None if self.loss is None else self.loss.share

    @property
    def wasted_percent(self) -> float | None:
        """The same in percent to one decimal."""
        return None if self.loss is None else round(100.0 * self.loss.share, 1)


def finding_of(
    verdict: Verdict, account: Account, node: str | None = None, *, ledger: Ledger | None = None
) -> RankedFinding:
    """Return what a verdict that has fired means by itself.

    ``ledger`` is of the nodes that the verdict is of; None where nothing is known of their GPUs. ``node`` is the node
    that the finding is shown for.
    """
    result, words = verdict.result, verdict.result.found_words
    claimed = [] if ledger is None else ledger.claim(claims_of(verdict, ledger))
    alone = None if ledger is None else loss_from(claimed, ledger)
    score = score_of_verdict(verdict, account.watermark_s, alone)
    finding = replace(
        verdict.said_of(node, words.reason),
        severity=severity_of(score),
        advice=words.advice,
        cost=None if ledger is None else cost_of(alone, ledger, account),
        episodes=_priced(verdict.episodes, claimed, ledger, account),
    )
    return RankedFinding(
        finding=finding,
        verdict=verdict,
        score=score,
        alone=alone,
        loss=alone,
        idle_node=result.idle_node,
        clause=words.clause,
    )


def cost_of(loss: Loss | None, ledger: Ledger, account: Account) -> str | None:
    """Say what a finding cost in money; None where no price is known, and where it claims less than a cent."""
    if loss is None or loss.usd is None or loss.usd < LEAST_MONEY:
        return None
    spent = ledger.spent or 0.0
    return str(Cost(min(loss.usd, spent), spent, account.table.currency))


def _priced(
    episodes: Sequence[Episode], claimed: Sequence[Claimed], ledger: Ledger | None, account: Account
) -> tuple[Episode, ...]:
    """Return episodes with what each claims of the ledger, where each has a claim of its own."""
    if ledger is None or len(claimed) != len(episodes):
        return tuple(episodes)
    gpus = max((node.gpus for node in ledger.nodes), default=1)
    currency = account.table.currency
    return tuple(
        replace(
            episode,
            wasted_s=each.total / gpus,
            cost=each.usd,
            currency=None if each.usd is None else currency,
        )
        for episode, each in zip(episodes, claimed, strict=True)
    )


def rank_findings(verdicts: Sequence[Verdict], account: Account, ledger: Ledger | None = None) -> list[RankedFinding]:
    """Return the findings of a job's verdicts, the gravest first, causes before their symptoms.

    While the job runs, what is over counts a quarter for its place: nothing can be changed about it any more. Once it
    has ended, a risk that did not come true counts half. Time in which the job hung or computed garbage is marked in
    ``ledger``.
    """
    fired = [each for each in verdicts if each.history.times_fired]
    if ledger is not None:
        mark_ruined(ledger, fired)
    found = {each.rule: finding_of(each, account, ledger=ledger) for each in fired}
    timeless = {rule: _timeless(finding) for rule, finding in found.items()}
    explained = {rule: explanation_of(timeless[rule], timeless, account.watermark_s) for rule in found}
    causes = _causes(found, explained)
    chains = {rule: _chain(rule, causes) for rule in found}
    running = not any(each.ended for each in verdicts)
    losses = _apart(found, chains, _depths(explained), ledger)

    def place(finding: RankedFinding) -> tuple[float, int]:
        weight = OVER_WEIGHT if running and not finding.ongoing else 1.0
        if not running and finding.loss is None:
            weight = MISSED_WEIGHT
        return -weight * finding.score, len(chains[finding.rule])

    ranked = []
    for rule, alone in found.items():
        cause, of = causes[rule], explained[rule]
        loss = losses.get(rule, alone.loss)
        # A symptom is no graver than its cause, and as grave as it is by itself.
        *symptoms, root = chains[rule]
        own = score_of_verdict(found[root].verdict, account.watermark_s, losses.get(root, found[root].loss))
        score = min([own, *(found[each].score for each in symptoms)])
        left = of.left if cause is None else ()
        told = alone if running and alone.ongoing else _as_gravest(alone, left or alone.episodes)
        if cause is not None:
            told = replace(told, finding=replace(told.finding, advice=advice_of(of, cause)))
        cost = None if ledger is None else cost_of(loss, ledger, account)
        ranked.append(
            replace(
                told,
                finding=replace(told.finding, severity=severity_of(score), cost=cost),
                score=score,
                loss=loss,
                explained_by=cause,
                explained_share=of.share,
                unexplained=told.episodes if cause is None and not of.share else left,
                reasons=of.parts,
            )
        )
    return sorted(ranked, key=place)


def _timeless(finding: RankedFinding) -> RankedFinding:
    """Return a finding of a kernel trace without its time: its steps stand for all of the job's."""
    if spec_of(finding.rule).family != TRACED:
        return finding
    return replace(finding, finding=replace(finding.finding, episodes=()))


def _apart(
    found: Mapping[str, RankedFinding],
    chains: Mapping[str, Sequence[str]],
    depths: Mapping[str, int],
    ledger: Ledger | None,
) -> dict[str, Loss]:
    """Return what each finding claims beside the others: causes first, of those the one that lost most.

    Who explains a part of a finding takes that part first. A cause claims what it explains wholly for as long as that
    lasted: rules are late to begin.
    """
    if ledger is None:
        return {}
    order = sorted(found, key=lambda rule: (depths[rule], -found[rule].score))
    wholly = {rule: [each for each in order if each != rule and chains[each][-1] == rule] for rule in order}
    return losses_of(
        ledger, [(rule, _claims_with(found[rule], [found[each] for each in wholly[rule]], ledger)) for rule in order]
    )


def _claims_with(finding: RankedFinding, symptoms: Sequence[RankedFinding], ledger: Ledger) -> list[Claim]:
    """Return what a finding claims with the symptoms that it explains wholly.

    A risk that is the reason for a loss claims what its symptoms do: it is as grave as that.
    """
    until = ledger_end(ledger)
    if until is None:
        return []
    if not claimed_buckets(finding.verdict):
        return [replace(claim, rule=finding.rule) for each in symptoms for claim in claims_of(each.verdict, ledger)]
    lasted = [each for symptom in symptoms for each in symptom.verdict.episodes]
    return claims_of(finding.verdict, ledger, [each for each in lasted if span_of(each, until)[1] > each.start])


def _as_gravest(finding: RankedFinding, episodes: Sequence[Episode]) -> RankedFinding:
    """Return a finding that speaks of the episode that cost most, where that is not the newest of all."""
    gravest = max(episodes, key=lambda each: each.wasted_s or 0.0, default=None)
    if gravest is None or not gravest.wasted_s or not gravest.reason:
        return finding  # of a rule that claims nothing no episode cost most: the newest stands
    if gravest.start == finding.episodes[-1].start:
        return finding
    when = clock_times(iso_time(gravest.start), None if gravest.end is None else iso_time(gravest.end))
    said = finding.finding
    words = past_words(finding.rule, gravest.kind, gravest.facts, reason=gravest.reason, advice=gravest.advice)
    said = replace(
        said,
        reason=f"{when}: {gravest.reason}",
        advice=gravest.advice or said.advice,
        finding_kind=gravest.kind or said.finding_kind,
        facts=gravest.facts if gravest.kind else said.facts,
    )
    idle = cast("IdleNode | None", gravest.idle_node)
    return replace(finding, finding=said, idle_node=idle, clause=words.clause or finding.clause)


def _causes(found: Mapping[str, RankedFinding], explained: Mapping[str, Explanation]) -> dict[str, str | None]:
    """Return by rule the rule that explains most of it; none in a circle, as rules of somebody else's may say.

    A symptom with an episode for which there is no reason has no rule that explains it: it stands for itself.
    """
    causes: dict[str, str | None] = dict.fromkeys(found)
    for rule, of in explained.items():
        if not of.whole:
            continue
        cause = max(of.by_rule, key=lambda each: found[each].score * of.by_rule[each])
        if rule not in _chain(cause, causes):
            causes[rule] = cause
    return causes


def _depths(explained: Mapping[str, Explanation]) -> dict[str, int]:
    """Return by rule how many others stand before it, each the reason for a part of the next at least."""

    def depth(rule: str, after: frozenset[str]) -> int:
        reasons = set(explained[rule].parts) - after - {rule}
        return max((1 + depth(reason, after | {rule}) for reason in reasons), default=0)

    return {rule: depth(rule, frozenset()) for rule in explained}


def _chain(rule: str, causes: Mapping[str, str | None]) -> list[str]:
    """Return a rule, the rule that explains it, the one that explains that, and so on."""
    chain = [rule]
    while (cause := causes[chain[-1]]) is not None:
        chain.append(cause)
    return chain
