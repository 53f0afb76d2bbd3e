"""What was found on a job, the most severe first, and causes before their symptoms.

Low GPUs are the look of most faults. A rule that names the reason comes before one that only names the look, and takes
their common time of the ledger first. A symptom with an unexplained episode stands for what is left of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from trainguard.core.finding import Episode, clock_times
from trainguard.core.timestamps import iso_time
from trainguard.engine.verdicts.episodes import past_words
from trainguard.engine.verdicts.explanations import Explanation, RankedFinding, advice_of, explanation_of
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
    severity_of,
    span_of,
)
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.ledger.job import Claim, Claimed, Ledger
from trainguard.pricing.cost import PaidTime
from trainguard.rules.registry import spec_of

if TYPE_CHECKING:
    from trainguard.rules.rule_result import IdleNode

OVER_WEIGHT = 0.25
"""How much of its score a finding that is over keeps for its place while the job runs."""

LEAST_MONEY = 0.005

MISSED_WEIGHT = 0.5
"""How much of its score a risk keeps for its place once the job has ended without it."""


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
        running_finding = alone if running and alone.ongoing else _as_most_severe(alone, left or alone.episodes)
        if cause is not None:
            running_finding = replace(
                running_finding, finding=replace(running_finding.finding, advice=advice_of(of, cause))
            )
        cost = None if ledger is None else cost_of(loss, ledger, paid_time)
        ranked.append(
            replace(
                running_finding,
                finding=replace(running_finding.finding, severity=severity_of(score), cost=cost),
                score=score,
                loss=loss,
                explained_by=cause,
                explained_share=of.share,
                unexplained=running_finding.episodes if cause is None and not of.share else left,
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
    worst_finding = finding.finding
    words = past_words(
        finding.rule, most_severe.kind, most_severe.facts, reason=most_severe.reason, advice=most_severe.advice
    )
    worst_finding = replace(
        worst_finding,
        reason=f"{when}: {most_severe.reason}",
        advice=most_severe.advice or worst_finding.advice,
        finding_kind=most_severe.kind or worst_finding.finding_kind,
        facts=most_severe.facts if most_severe.kind else worst_finding.facts,
    )
    idle = cast("IdleNode | None", most_severe.idle_node)
    return replace(finding, finding=worst_finding, idle_node=idle, clause=words.clause or finding.clause)


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
