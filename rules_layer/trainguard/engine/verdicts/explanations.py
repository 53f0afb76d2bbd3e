"""A finding in its place: which others can be the reason for it, for which part, and what is left of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from trainguard.core.finding import Episode, Finding
from trainguard.core.records import Status
from trainguard.engine.verdicts.losses import Loss, left_of, loss_weights, shared_share, split_parts
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.rules.registry import spec_of
from trainguard.rules.rule_result import IdleNode
from trainguard.rules.spec import Symptom

EXPLAINED_SHARE = 1.0 / 3.0
"""A finding that claims lost time explains a symptom only if that is this share of what the symptom claims."""

SURE_FROM = 1.0 / 3.0
"""A rule that says how sure it is explains a symptom only from here on."""


@dataclass(frozen=True, slots=True)
class RankedFinding:
    """A rule that has fired, with its place among the others; ``score`` is 0 to 100.

    ``alone`` and ``loss`` are its claims alone and beside the others; None of a risk. ``explained_by`` is the rule that
    names the reason for ``explained_share`` of its time, ``reasons`` each rule's own part of that.
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
        return self.finding.rule

    @property
    def ongoing(self) -> bool:
        return shown_status(self.verdict) is Status.FIRED

    @property
    def episodes(self) -> tuple[Episode, ...]:
        return self.finding.episodes

    @property
    def symptom(self) -> Symptom | None:
        """The finding's look: its rule's, but for a node that does nothing at all."""
        spec = spec_of(self.rule)
        if self.idle_node is not None:
            return Symptom(self.idle_node)
        return spec.looks.get(self.finding.finding_kind, spec.symptom)

    @property
    def explains(self) -> tuple[Symptom, ...]:
        spec = spec_of(self.rule)
        return (*spec.explains, *spec.explains_as.get(self.finding.finding_kind, ()))

    @property
    def is_sure(self) -> bool:
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
        return None if self.loss is None else round(100.0 * self.loss.share, 1)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The findings that can be the reason for one, by rule, with the share, 0 to 1, of its time.

    ``parts`` is the part, 0 to 1, of the loss that is each one's own: no time is two rules'. ``share`` is that of all
    of them together, ``left`` are the episodes for which there is no reason.
    """

    by_rule: Mapping[str, float]
    parts: Mapping[str, float]
    share: float
    left: tuple[Episode, ...]


def advice_of(explained: Explanation, cause: str | None) -> str:
    """Say what to do about a symptom: its causes' advice, else its own."""
    others = [rule for rule, part in explained.parts.items() if part and rule != cause]
    names = [*([] if cause is None else [cause]), *others]
    if len(names) == 1:
        return f"Do what {names[0]} advises: it names the cause."
    return f"Do what {', '.join(names[:-1])} and {names[-1]} advise: they name the causes."


def explanation_of(symptom: RankedFinding, found: Mapping[str, RankedFinding], until: float | None) -> Explanation:
    """Return what explains a symptom, each of its looks by itself: what idled did not wait for the same."""
    looks = dict.fromkeys(each.idle_node for each in symptom.episodes)
    if len(looks) < 2:
        return _of_one_look(symptom, found, until)
    shares, parts = dict[str, float](), dict[str, float]()
    share, left = 0.0, list[Episode]()
    weights = loss_weights(symptom.episodes, _until(until, symptom))
    for look in looks:
        chosen = [each.idle_node == look for each in symptom.episodes]
        episodes = tuple(each for each, own in zip(symptom.episodes, chosen, strict=True) if own)
        weight = sum(each for each, own in zip(weights, chosen, strict=True) if own)
        alone = symptom.alone
        of_look = replace(
            symptom,
            finding=replace(symptom.finding, episodes=episodes),
            idle_node=cast("IdleNode | None", look),
            alone=None if alone is None else replace(alone, share=weight * alone.share),
        )
        part = _of_one_look(of_look, found, until)
        for rule, of_part in part.by_rule.items():
            shares[rule] = shares.get(rule, 0.0) + weight * of_part
            parts[rule] = parts.get(rule, 0.0) + weight * part.parts[rule]
        share += weight * part.share
        left += part.left
    return Explanation(shares, parts, share, tuple(sorted(left, key=lambda each: each.start)))


def _of_one_look(symptom: RankedFinding, found: Mapping[str, RankedFinding], until: float | None) -> Explanation:
    """Return what explains a symptom of one look; a finding that is not sure is explained by what it would explain."""
    look, stale = symptom.symptom, () if symptom.is_sure else symptom.explains
    others = {rule: each for rule, each in found.items() if rule != symptom.rule}
    rules = [rule for rule, each in others.items() if look in each.explains or each.symptom in stale]
    shares = {rule: _share(found[rule], symptom, until) for rule in rules}
    shares = {rule: share for rule, share in shares.items() if share}
    most_severe = sorted(shares, key=lambda rule: -found[rule].score * shares[rule])
    causes = [found[rule] for rule in most_severe]
    if not (symptom.episodes and all(cause.episodes for cause in causes)):
        parts, reached = dict[str, float](), 0.0
        for rule in most_severe:
            parts[rule], reached = max(shares[rule] - reached, 0.0), max(shares[rule], reached)
        return Explanation(shares, parts, reached, () if shares else symptom.episodes)
    episodes, end = [cause.episodes for cause in causes], _until(until, symptom, *causes)
    parts = dict(zip(most_severe, split_parts(symptom.episodes, episodes, end), strict=True))
    share = shared_share(symptom.episodes, episodes, end)
    return Explanation(shares, parts, share, tuple(part_of(*each) for each in left_of(symptom.episodes, episodes, end)))


def part_of(episode: Episode, share: float) -> Episode:
    wasted_s = None if episode.wasted_s is None else share * episode.wasted_s
    return replace(episode, wasted_s=wasted_s, cost=None if episode.cost is None else share * episode.cost)


def _share(cause: RankedFinding, symptom: RankedFinding, until: float | None) -> float:
    """Return the share of a symptom's time for which a cause can be the reason; 1 where their times are not known."""
    if not cause.episodes or not symptom.episodes:
        return 1.0 if _explains(cause, symptom, 1.0) and (cause.ongoing or not symptom.ongoing) else 0.0
    share = shared_share(symptom.episodes, [cause.episodes], _until(until, cause, symptom))
    return share if share and _explains(cause, symptom, share) else 0.0


def _until(until: float | None, *findings: RankedFinding) -> float:
    """Return where open episodes end: at the watermark, or at the last time that one of them names."""
    marks = [mark for each in findings for episode in each.episodes for mark in (episode.start, episode.end)]
    return max([mark for mark in (until, *marks) if mark is not None])


def _explains(cause: RankedFinding, symptom: RankedFinding, share: float) -> bool:
    """Whether a cause is sure, and loses enough to account for a ``share``, 0 to 1, of what a symptom loses."""
    if not cause.is_sure:
        return False
    if symptom.idle_node or cause.alone is None or symptom.alone is None:
        return True
    return cause.alone.share >= EXPLAINED_SHARE * share * symptom.alone.share
