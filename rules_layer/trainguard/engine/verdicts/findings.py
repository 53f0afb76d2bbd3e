"""What was found on a job, the most severe first, and causes before their symptoms.

Low GPUs are the look of most faults. A rule that names the reason comes before one that only names the look, and takes
their common time of the ledger first. A symptom with an unexplained episode stands for what is left of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from trainguard.core.finding import Episode, Finding, clock_times
from trainguard.core.records import Status
from trainguard.core.timestamps import iso_time
from trainguard.engine.verdicts.episodes import past_words
from trainguard.engine.verdicts.losses import (
    TRACED,
    Loss,
    claimed_buckets,
    claims_of,
    ledger_end,
    left_of,
    loss_from,
    loss_weights,
    losses_of,
    mark_ruined,
    score_of_verdict,
    severity_of,
    shared_share,
    span_of,
    split_parts,
)
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.ledger.job import Claim, Claimed, Ledger
from trainguard.pricing.cost import PaidTime
from trainguard.rules.registry import spec_of
from trainguard.rules.rule_result import IdleNode
from trainguard.rules.spec import Symptom

# A finding that claims lost time explains a symptom only if that is this share of what the symptom claims.
EXPLAINED_SHARE = 1.0 / 3.0

# A rule that says how sure it is explains a symptom only from here on.
SURE_FROM = 1.0 / 3.0


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


# How much of its score a finding that is over keeps for its place while the job runs.
OVER_WEIGHT = 0.25

LEAST_MONEY = 0.005

# How much of its score a risk keeps for its place once the job has ended without it.
MISSED_WEIGHT = 0.5


def finding_of(
    verdict: Verdict, paid_time: PaidTime, node: str | None = None, *, ledger: Ledger | None = None
) -> RankedFinding:
    """Return a fired verdict's finding for ``node``; ``ledger`` is None where nothing is known of the GPUs."""
    result, words = verdict.result, verdict.result.found_words
    claimed = [] if ledger is None else ledger.claim(claims_of(verdict, ledger))
    alone = None if ledger is None else loss_from(claimed, ledger)
    score = score_of_verdict(verdict, paid_time.watermark_s, alone)
    finding = replace(
        verdict.finding_on(node, words.reason),
        severity=severity_of(score),
        advice=words.advice,
        cost=None if ledger is None else cost_of(alone, ledger, paid_time),
        episodes=_priced(verdict.episodes, claimed, ledger, paid_time),
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


def cost_of(loss: Loss | None, ledger: Ledger, paid_time: PaidTime) -> str | None:
    """Say what a finding cost in money; None where no price is known, and where it claims less than a cent."""
    if loss is None or loss.usd is None or loss.usd < LEAST_MONEY:
        return None
    spent, currency = ledger.spent or 0.0, paid_time.table.currency
    return f"about {currency} {min(loss.usd, spent):,.2f} of the {currency} {spent:,.2f} spent"


def _priced(
    episodes: Sequence[Episode], claimed: Sequence[Claimed], ledger: Ledger | None, paid_time: PaidTime
) -> tuple[Episode, ...]:
    """Return episodes with what each claims of the ledger, where each has a claim of its own."""
    if ledger is None or len(claimed) != len(episodes):
        return tuple(episodes)
    gpus = max((node.gpus for node in ledger.nodes), default=1)
    currency = paid_time.table.currency
    return tuple(
        replace(episode, wasted_s=each.total / gpus, cost=each.usd, currency=None if each.usd is None else currency)
        for episode, each in zip(episodes, claimed, strict=True)
    )


def rank_findings(
    verdicts: Sequence[Verdict], paid_time: PaidTime, ledger: Ledger | None = None
) -> list[RankedFinding]:
    """Return a job's findings, the most severe first, causes before their symptoms.

    While the job runs, what is over counts a quarter for its place. Once it has ended, a risk that did not come true
    counts half. Time in which the job hung or computed garbage is marked in ``ledger``.
    """
    fired = [each for each in verdicts if each.history.times_fired]
    if ledger is not None:
        mark_ruined(ledger, fired)
    found = {each.rule: finding_of(each, paid_time, ledger=ledger) for each in fired}
    # The steps of a kernel trace stand for all of the job's.
    timeless = {
        rule: replace(each, finding=replace(each.finding, episodes=())) if spec_of(rule).family == TRACED else each
        for rule, each in found.items()
    }
    explained = {rule: explanation_of(timeless[rule], timeless, paid_time.watermark_s) for rule in found}
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
        # A symptom is no more severe than its cause, and as severe as it is by itself.
        *symptoms, root = chains[rule]
        own = score_of_verdict(found[root].verdict, paid_time.watermark_s, losses.get(root, found[root].loss))
        score = min([own, *(found[each].score for each in symptoms)])
        left = of.left if cause is None else ()
        shown = alone if running and alone.ongoing else _as_most_severe(alone, left or alone.episodes)
        advice = shown.finding.advice if cause is None else advice_of(of, cause)
        cost = None if ledger is None else cost_of(loss, ledger, paid_time)
        ranked.append(
            replace(
                shown,
                finding=replace(shown.finding, severity=severity_of(score), advice=advice, cost=cost),
                score=score,
                loss=loss,
                explained_by=cause,
                explained_share=of.share,
                unexplained=shown.episodes if cause is None and not of.share else left,
                reasons=of.parts,
            )
        )
    return sorted(ranked, key=place)


def _apart(
    found: Mapping[str, RankedFinding],
    chains: Mapping[str, Sequence[str]],
    depths: Mapping[str, int],
    ledger: Ledger | None,
) -> dict[str, Loss]:
    """Return each finding's claim beside the others: who explains a part first, of those the one that lost most."""
    if ledger is None:
        return {}
    order = sorted(found, key=lambda rule: (depths[rule], -found[rule].score))
    wholly = {rule: [each for each in order if each != rule and chains[each][-1] == rule] for rule in order}
    return losses_of(
        ledger, [(rule, _claims_with(found[rule], [found[each] for each in wholly[rule]], ledger)) for rule in order]
    )


def _claims_with(finding: RankedFinding, symptoms: Sequence[RankedFinding], ledger: Ledger) -> list[Claim]:
    """Return what a finding claims with the symptoms that it explains wholly; a risk claims what they do."""
    until = ledger_end(ledger)
    if until is None:
        return []
    if not claimed_buckets(finding.verdict):
        return [replace(claim, rule=finding.rule) for each in symptoms for claim in claims_of(each.verdict, ledger)]
    lasted = [each for symptom in symptoms for each in symptom.verdict.episodes]
    return claims_of(finding.verdict, ledger, [each for each in lasted if span_of(each, until)[1] > each.start])


def _as_most_severe(finding: RankedFinding, episodes: Sequence[Episode]) -> RankedFinding:
    """Return a finding that describes the episode that cost most, where that is not the newest of all."""
    most_severe = max(episodes, key=lambda each: each.wasted_s or 0.0, default=None)
    if most_severe is None or not most_severe.wasted_s or not most_severe.reason:
        return finding  # of a rule that claims nothing no episode cost most: the newest stands
    if most_severe.start == finding.episodes[-1].start:
        return finding
    when = clock_times(iso_time(most_severe.start), None if most_severe.end is None else iso_time(most_severe.end))
    newest = finding.finding
    words = past_words(
        finding.rule, most_severe.kind, most_severe.facts, reason=most_severe.reason, advice=most_severe.advice
    )
    worst = replace(
        newest,
        reason=f"{when}: {most_severe.reason}",
        advice=most_severe.advice or newest.advice,
        finding_kind=most_severe.kind or newest.finding_kind,
        facts=most_severe.facts if most_severe.kind else newest.facts,
    )
    idle = cast("IdleNode | None", most_severe.idle_node)
    return replace(finding, finding=worst, idle_node=idle, clause=words.clause or finding.clause)


def _causes(found: Mapping[str, RankedFinding], explained: Mapping[str, Explanation]) -> dict[str, str | None]:
    """Return by rule the rule that explains most of it; none in a circle, or with an unexplained episode."""
    causes: dict[str, str | None] = dict.fromkeys(found)
    for rule, of in explained.items():
        if of.left or not of.by_rule:
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
    chain = [rule]
    while (cause := causes[chain[-1]]) is not None:
        chain.append(cause)
    return chain
