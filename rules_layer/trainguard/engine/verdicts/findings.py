"""What was found on a job, the gravest first, and causes before their symptoms.

Low GPUs are what most faults look like. A rule that names the reason comes before one that only names the look, for the
time in which both were there: it takes over as much of the symptom's score as it explains. A symptom of which every
episode is explained follows its cause; else it stands for what is left of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from trainguard.engine.verdicts.explanations import SURE_FROM, Explanation, advice_of, explanation_of, part_of
from trainguard.engine.verdicts.severity import score_of_verdict, severity_of, wasted_share_of
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.finding import Episode, Finding, clock_times
from trainguard.pricing.cost import HOUR_S, Account, Bill, Cost
from trainguard.records import Status
from trainguard.rules.registry import spec_of
from trainguard.rules.rule_result import IdleNode
from trainguard.rules.symptoms import Symptom
from trainguard.timestamps import iso_time

OVER_WEIGHT = 0.25
"""How much of its score a finding that is over keeps for its place while the job runs."""


MISSED_WEIGHT = 0.5
"""How much of its score a risk keeps for its place once the job has ended without it."""


@dataclass(frozen=True, slots=True)
class RankedFinding:
    """A rule that has fired on a job, with all that its place among the others is made of.

    ``ongoing`` says whether its episode is still open; ``nodes`` are how many nodes it was found on and how many were
    judged; ``wasted_nodes`` is how many nodes' whole time it cost, ``loss`` what that is in money; ``confidence`` is as
    in the rule's result, as is ``idle_node``; ``explained_by`` is the rule that names the reason for it,
    ``explained_share`` the share, 0 to 1, of its loss for which some rule does, ``reasons`` the part of it that is each
    rule's own. The finding's episodes have what each cost; ``unexplained`` are those of them that no rule explains,
    ``earlier_episodes`` counts those before them. ``charged_nodes`` is how many nodes' whole time a verdict charges it
    with: what it wasted, or its part of what it explains where that is more; of a symptom explained in part, what is
    left; None of one that is explained.
    """

    finding: Finding
    score: float
    ongoing: bool
    affected_share: float | None
    wasted_share: float | None
    worst: str | None
    nodes: tuple[int, int]
    loss: Cost | None
    wasted_nodes: float | None = None
    confidence: float | None = None
    idle_node: IdleNode | None = None
    explained_by: str | None = None
    explained_share: float = 0.0
    unexplained: tuple[Episode, ...] = ()
    earlier_episodes: int = 0
    reasons: Mapping[str, float] = field(default_factory=dict)
    charged_nodes: float | None = None

    @property
    def rule(self) -> str:
        """Name of the rule."""
        return self.finding.rule

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The newest times at which its condition held, oldest first, with what each cost."""
        return self.finding.episodes

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


def finding_of(verdict: Verdict, account: Account, node: str | None = None) -> RankedFinding:
    """Return what a verdict that has fired means by itself; ``account`` is of the nodes that the verdict is of.

    What it wasted is what the rule says of now, and no less than its episodes add up to. ``node`` is the node that the
    finding is shown for.
    """
    result, reach, affected = verdict.result, verdict.over_nodes, verdict.affected_share
    paid_s = _paid_s(account)
    wasted_share, wasted_nodes = wasted_share_of(verdict, paid_s), _wasted_nodes(verdict, paid_s)
    score = score_of_verdict(verdict, account.watermark_s, wasted_share=wasted_share)
    bill = None if wasted_nodes is None else account.bill()
    priced = bill if isinstance(bill, Bill) else None
    loss = priced.lost(wasted_nodes) if priced is not None and wasted_nodes is not None else None
    finding = Finding(
        rule=verdict.rule,
        node=node,
        reason=result.found_words.reason,
        measured=result.measured,
        threshold=result.threshold,
        severity=severity_of(score),
        advice=result.found_words.advice,
        cost=None if loss is None else str(loss),
        episodes=tuple(_priced(episode, priced) for episode in verdict.episodes),
        finding_kind=result.kind,
        facts=result.facts,
    )
    return RankedFinding(
        finding=finding,
        score=score,
        ongoing=shown_status(verdict) is Status.FIRED,
        affected_share=affected,
        wasted_share=wasted_share,
        worst=result.worst,
        nodes=(reach.affected, reach.nodes),
        loss=loss,
        wasted_nodes=wasted_nodes,
        confidence=result.confidence,
        idle_node=result.idle_node,
        earlier_episodes=verdict.earlier_episodes,
    )


def _paid_s(account: Account) -> float:
    """Return for how many seconds each node was paid for; 0 where that is not known."""
    if account.started_at is None or account.watermark_s is None:
        return 0.0
    return account.watermark_s - account.started_at


def _wasted_nodes(verdict: Verdict, paid_s: float) -> float | None:
    """Return how many nodes' whole time a verdict wasted, by the same token."""
    reach = verdict.over_nodes
    known = [each.wasted_s for each in verdict.episodes if each.wasted_s is not None]
    if not known or paid_s <= 0.0:
        return reach.wasted_nodes
    return max(min(sum(known) / paid_s, float(reach.nodes or 1)), reach.wasted_nodes or 0.0)


def _priced(episode: Episode, bill: Bill | None) -> Episode:
    if bill is None or episode.wasted_s is None:
        return episode
    return replace(episode, cost=bill.hourly * episode.wasted_s / HOUR_S, currency=bill.currency)


def rank_findings(verdicts: Sequence[Verdict], account: Account) -> list[RankedFinding]:
    """Return the findings of a job's verdicts, the gravest first, causes before their symptoms.

    While the job runs, what is over counts a quarter for its place: nothing can be changed about it any more. Once it
    has ended, a risk that did not come true counts half: one that lost nothing, and is the reason for no loss.
    """
    found = {each.rule: finding_of(each, account) for each in verdicts if each.history.times_fired}
    explained = {rule: explanation_of(finding, found, account.watermark_s) for rule, finding in found.items()}
    causes = _causes(found, explained)
    chains = {rule: _chain(rule, causes) for rule in found}
    running = not any(each.ended for each in verdicts)

    def place(finding: RankedFinding) -> tuple[float, int]:
        weight = OVER_WEIGHT if running and not finding.ongoing else 1.0
        if not running and finding.wasted_share is None and finding.charged_nodes is None:
            weight = MISSED_WEIGHT
        return -weight * finding.score, len(chains[finding.rule])

    scores = {rule: _score(alone, found, chains, explained) for rule, alone in found.items()}
    ranked = []
    for rule, alone in found.items():
        # A symptom is no graver than the gravest of its causes, each of which has its own part of it.
        score = min(scores[rule], scores[chains[rule][-1]])
        left = explained[rule].left if causes[rule] is None else ()
        told = alone if running and alone.ongoing else _as_gravest(alone, left or alone.episodes)
        if causes[rule] is not None:
            told = replace(told, finding=replace(told.finding, advice=advice_of(explained[rule], causes[rule])))
        charged = _charged(alone, found, chains, explained, _paid_s(account)) if causes[rule] is None else None
        if charged is not None and not explained[rule].share:
            told = _with_loss(told, charged, account)
        ranked.append(
            replace(
                told,
                finding=replace(told.finding, severity=severity_of(score)),
                score=score,
                explained_by=causes[rule],
                explained_share=explained[rule].share,
                unexplained=told.episodes if causes[rule] is None and not explained[rule].share else left,
                reasons=explained[rule].parts,
                charged_nodes=charged,
            )
        )
    return sorted(ranked, key=place)


def _charged(
    finding: RankedFinding,
    found: Mapping[str, RankedFinding],
    chains: Mapping[str, Sequence[str]],
    explained: Mapping[str, Explanation],
    paid_s: float,
) -> float | None:
    """Return how many nodes' whole time is charged to a finding that nothing explains in whole."""
    of = explained[finding.rule]
    lost = [each.wasted_s for each in of.left if each.wasted_s is not None]
    own = finding.wasted_nodes
    if of.share and own is not None:
        known = paid_s > 0.0 and bool(of.left) and len(lost) == len(of.left)
        own = sum(lost) / paid_s if known else own * (1.0 - of.share)
    parts = [
        wasted * part
        for symptom, part in _parts(finding.rule, chains, explained).items()
        if (wasted := found[symptom].wasted_nodes) is not None
    ]
    return max([*([] if own is None else [own]), *parts], default=None)


def _with_loss(finding: RankedFinding, nodes: float, account: Account) -> RankedFinding:
    """Return a finding that lost so many nodes' whole time, and its episodes with their parts of that."""
    own, bill = finding.wasted_nodes, account.bill()
    if own is None or own <= 0.0 or nodes <= own:
        return finding
    episodes = tuple(part_of(each, nodes / own) for each in finding.episodes)
    share = None if finding.wasted_share is None else min(finding.wasted_share * nodes / own, 1.0)
    loss = bill.lost(nodes) if isinstance(bill, Bill) else None
    said = replace(finding.finding, episodes=episodes, cost=None if loss is None else str(loss))
    return replace(finding, finding=said, wasted_share=share, wasted_nodes=nodes, loss=loss)


def _as_gravest(finding: RankedFinding, episodes: Sequence[Episode]) -> RankedFinding:
    """Return a finding that speaks of the episode that cost most, where that is not the newest of all."""
    gravest = max(episodes, key=lambda each: each.wasted_s or 0.0, default=None)
    if gravest is None or not gravest.reason or gravest.start == finding.episodes[-1].start:
        return finding
    when = clock_times(iso_time(gravest.start), None if gravest.end is None else iso_time(gravest.end))
    said = finding.finding
    reason, advice = f"{when}: {gravest.reason} {said.reason}", gravest.advice or said.advice
    idle = cast("IdleNode | None", gravest.idle_node)
    return replace(finding, finding=replace(said, reason=reason, advice=advice), idle_node=idle)


def _score(
    finding: RankedFinding,
    found: Mapping[str, RankedFinding],
    chains: Mapping[str, Sequence[str]],
    explained: Mapping[str, Explanation],
) -> float:
    """Return a finding's score: its own, of a symptom what is left of it, or its own part of a symptom's."""
    of = explained[finding.rule]
    own = finding.score if of.whole else finding.score * (1.0 - of.share)
    parts = _parts(finding.rule, chains, explained)
    return max([own, *(found[symptom].score * part for symptom, part in parts.items())])


def _parts(rule: str, chains: Mapping[str, Sequence[str]], explained: Mapping[str, Explanation]) -> dict[str, float]:
    """Return by symptom the part, 0 to 1, for which a rule is the reason, itself or by what it explains in turn."""
    parts = {}
    for symptom, of in explained.items():
        in_a_circle = of.whole and len(chains[symptom]) == 1
        if symptom == rule or in_a_circle:
            continue
        part = sum(own for cause, own in of.parts.items() if rule in chains[cause])
        if part:
            parts[symptom] = part
    return parts


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


def _chain(rule: str, causes: Mapping[str, str | None]) -> list[str]:
    """Return a rule, the rule that explains it, the one that explains that, and so on."""
    chain = [rule]
    while (cause := causes[chain[-1]]) is not None:
        chain.append(cause)
    return chain
