"""What was found on a job, the gravest first, and causes before their symptoms.

Low GPUs are what most faults look like. A rule that names the reason comes before one that only names the look, for the
time in which both were there: it takes over as much of the symptom's score as it explains. A symptom of which every
episode is explained follows its cause; else it stands for what is left of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from trainguard.engine.verdicts.overlap import left_of, loss_weights, shared_share
from trainguard.engine.verdicts.severity import score_of_verdict, severity_of, wasted_share_of
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.finding import Episode, Finding, clock_times
from trainguard.pricing.cost import HOUR_S, Account, Bill, Cost
from trainguard.records import Status
from trainguard.rules.registry import SPECS, spec_of
from trainguard.rules.rule_result import IdleNode
from trainguard.rules.symptoms import Symptom
from trainguard.timestamps import iso_time

EXPLAINED_SHARE = 1.0 / 3.0
"""A rule that says what its finding wastes explains a symptom only if that is this share of what the symptom wastes.

Either on the worst node or over all nodes: a node that makes the others wait wastes little of their sum, and what is
found by comparing nodes wastes little of their mean.
"""

SURE_FROM = 1.0 / 3.0
"""A rule that says how sure it is explains a symptom only from here on."""


MOSTLY = 0.75
"""A symptom is explained when causes account for so much of its time; else it stands for what is left."""

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
    ``explained_share`` the share, 0 to 1, of its loss for which some rule does. The finding's episodes have what each
    cost; ``unexplained`` are those of them that no rule explains, ``earlier_episodes`` counts those before them.
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
        reason=result.reason,
        measured=result.measured,
        threshold=result.threshold,
        severity=severity_of(score),
        advice=result.advice,
        cost=None if loss is None else str(loss),
        episodes=tuple(_priced(episode, priced) for episode in verdict.episodes),
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
    has ended, a risk that did not come true counts half.
    """
    found = {each.rule: finding_of(each, account) for each in verdicts if each.history.times_fired}
    explained = {rule: _explanation(finding, found, account.watermark_s) for rule, finding in found.items()}
    causes = _causes(found, explained)
    chains = {rule: _chain(rule, causes) for rule in found}
    running = not any(each.ended for each in verdicts)

    def place(finding: RankedFinding) -> tuple[float, int]:
        weight = OVER_WEIGHT if running and not finding.ongoing else 1.0
        if not running and finding.wasted_share is None:
            weight = MISSED_WEIGHT
        return -weight * finding.score, len(chains[finding.rule])

    ranked = []
    for rule, alone in found.items():
        score = _score(alone, found, chains, explained)
        left = explained[rule].left if causes[rule] is None else ()
        told = alone if running and alone.ongoing else _as_gravest(alone, left or alone.episodes)
        ranked.append(
            replace(
                told,
                finding=replace(told.finding, severity=severity_of(score)),
                score=score,
                explained_by=causes[rule],
                explained_share=explained[rule].share,
                unexplained=left,
            )
        )
    return sorted(ranked, key=place)


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


@dataclass(frozen=True, slots=True)
class _Explanation:
    """Which findings can be the reason for one, by rule, each with the share, 0 to 1, of its time; and what is left.

    ``share`` is that of all of them together, ``left`` are the episodes for which there is no reason.
    """

    by_rule: Mapping[str, float]
    share: float
    left: tuple[Episode, ...]

    @property
    def whole(self) -> bool:
        """Whether there is a reason for every episode."""
        return bool(self.by_rule) and not self.left


def _score(
    finding: RankedFinding,
    found: Mapping[str, RankedFinding],
    chains: Mapping[str, Sequence[str]],
    explained: Mapping[str, _Explanation],
) -> float:
    """Return a finding's score: its own, that of a symptom that it explains, or its part of one that has several."""
    rule, of = finding.rule, explained[finding.rule]
    own = finding.score if of.whole else finding.score * (1.0 - of.share)
    of_symptoms = [found[each].score for each in found if rule in chains[each] and each != rule]
    partly = [
        found[each].score * of_each.by_rule[rule]
        for each, of_each in explained.items()
        if rule in of_each.by_rule and not of_each.whole
    ]
    return max([own, *of_symptoms, *partly])


def _explanation(symptom: RankedFinding, found: Mapping[str, RankedFinding], until: float | None) -> _Explanation:
    """Return what explains a symptom, each of its looks by itself: what idled did not wait for the same."""
    looks = dict.fromkeys(each.idle_node for each in symptom.episodes)
    if len(looks) < 2:
        return _of_one_look(symptom, found, until)
    shares: dict[str, float] = {}
    share, left = 0.0, list[Episode]()
    weights = loss_weights(symptom.episodes, _until(until, symptom))
    for look in looks:
        chosen = [each.idle_node == look for each in symptom.episodes]
        episodes = tuple(each for each, own in zip(symptom.episodes, chosen, strict=True) if own)
        weight = sum(each for each, own in zip(weights, chosen, strict=True) if own)
        part = _of_one_look(_with_look(symptom, look, episodes, weight), found, until)
        for rule, of_part in part.by_rule.items():
            shares[rule] = shares.get(rule, 0.0) + weight * of_part
        share += weight * part.share
        left += part.left
    return _Explanation(shares, share, tuple(sorted(left, key=lambda each: each.start)))


def _with_look(symptom: RankedFinding, look: str | None, episodes: tuple[Episode, ...], weight: float) -> RankedFinding:
    """Return a symptom as its episodes of one look show it; ``weight``, 0 to 1, is their part of its loss."""
    share, nodes = symptom.wasted_share, symptom.wasted_nodes
    return replace(
        symptom,
        finding=replace(symptom.finding, episodes=episodes),
        idle_node=cast("IdleNode | None", look),
        wasted_share=None if share is None else weight * share,
        wasted_nodes=None if nodes is None else weight * nodes,
    )


def _of_one_look(symptom: RankedFinding, found: Mapping[str, RankedFinding], until: float | None) -> _Explanation:
    """Return what explains a symptom of one look.

    A finding that is not sure explains nothing; it is itself explained by what it would else explain.
    """
    look, doubted = symptom.symptom, () if symptom.is_sure else spec_of(symptom.rule).explains
    rules = [rule for rule, spec in SPECS.items() if look in spec.explains or spec.symptom in doubted]
    shares = {rule: _share(found[rule], symptom, until) for rule in rules if rule in found and rule != symptom.rule}
    shares = {rule: share for rule, share in shares.items() if share}
    causes = [found[rule] for rule in shares]
    if not symptom.episodes or not all(cause.episodes for cause in causes):
        return _Explanation(shares, max(shares.values(), default=0.0), () if shares else symptom.episodes)
    episodes, end = [cause.episodes for cause in causes], _until(until, symptom, *causes)
    share = shared_share(symptom.episodes, episodes, end)
    return _Explanation(shares, share, tuple(_part(*each) for each in left_of(symptom.episodes, episodes, end)))


def _part(episode: Episode, share: float) -> Episode:
    """Return an episode with a share, 0 to 1, of what it cost."""
    wasted_s = None if episode.wasted_s is None else share * episode.wasted_s
    return replace(episode, wasted_s=wasted_s, cost=None if episode.cost is None else share * episode.cost)


def _share(cause: RankedFinding, symptom: RankedFinding, until: float | None) -> float:
    """Return the share of a symptom's time for which a cause can be the reason; 1 where their times are not known."""
    if not cause.episodes or not symptom.episodes:
        return 1.0 if _explains(cause, symptom, 1.0) and (cause.ongoing or not symptom.ongoing) else 0.0
    share = shared_share(symptom.episodes, [cause.episodes], _until(until, cause, symptom))
    return share if share and _explains(cause, symptom, share) else 0.0


def _until(until: float | None, *findings: RankedFinding) -> float:
    """Return where episodes end that go on: at the watermark, or at the last time that one of them names."""
    marks = [mark for each in findings for episode in each.episodes for mark in (episode.start, episode.end)]
    return max([mark for mark in (until, *marks) if mark is not None])


def _causes(found: Mapping[str, RankedFinding], explained: Mapping[str, _Explanation]) -> dict[str, str | None]:
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


def _explains(cause: RankedFinding, symptom: RankedFinding, share: float) -> bool:
    """Whether a cause is sure, and loses enough to account for a ``share``, 0 to 1, of what a symptom loses."""
    if not cause.is_sure:
        return False
    if symptom.idle_node or cause.wasted_share is None or symptom.wasted_share is None:
        return True
    least = EXPLAINED_SHARE * share
    of_nodes = (cause.wasted_nodes or 0.0) >= least * (symptom.wasted_nodes or math.inf)
    return of_nodes or cause.wasted_share >= least * symptom.wasted_share
