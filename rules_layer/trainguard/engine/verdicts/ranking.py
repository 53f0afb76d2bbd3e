"""What was found on a job, the most severe first, and causes before their symptoms.

Low GPUs are the look of most faults. A rule that names the reason comes before one that only names the look, and takes
their common time of the ledger first. A symptom with an unexplained episode stands for what is left of it. No second
is claimed twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainguard.core.finding import Episode, clock_times
from trainguard.core.timestamps import iso_time
from trainguard.engine.verdicts.episodes import past_words
from trainguard.engine.verdicts.findings import (
    TRACED,
    Loss,
    RankedFinding,
    claimed_buckets,
    claims_of,
    cost_of,
    finding_of,
    ledger_end,
    losses_of,
    mark_ruined,
    score_of_verdict,
    severity_of,
    span_of,
)
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.ledger.job import Claim, Ledger
from trainguard.ledger.node import Span
from trainguard.pricing.cost import PaidTime
from trainguard.rules.registry import spec_of

# A finding that claims lost time explains a symptom only if that is this share of what the symptom claims.
EXPLAINED_SHARE = 1.0 / 3.0


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
            idle_node=look,
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

# How much of its score a risk keeps for its place once the job has ended without it.
MISSED_WEIGHT = 0.5


def rank_findings(
    verdicts: Sequence[RuleOutcome], paid_time: PaidTime, ledger: Ledger | None = None
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
    clause = words.clause or finding.clause
    return replace(finding, finding=worst, idle_node=most_severe.idle_node, clause=clause)


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


# Rules look over windows: when a condition began and ended is known to within so many seconds.
SLACK_S = 300.0

SHOWN_SHARE = 0.5

# An episode of which less is left is explained: rules are late.
LEFT_SHARE = 0.25


def shared_share(symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float) -> float:
    """Return the share, 0 to 1, of a symptom's loss for which one of ``causes`` can be the reason.

    An episode counts as much as it wasted; as long as it lasted where that is not known of every one. ``symptom`` is
    not empty; open episodes end at ``until``, epoch seconds.
    """
    weights = _losses(symptom, until)
    shares = [_of_one(each, symptom, causes, until) for each in symptom]
    if not sum(weights):
        return max(shares)  # of episodes of one moment, which have no weights
    return min(sum(share * weight for share, weight in zip(shares, weights, strict=True)) / sum(weights), 1.0)


def loss_weights(episodes: Sequence[Episode], until: float) -> list[float]:
    """Return the parts, 0 to 1, that episodes have of their common loss; equal ones where nothing is known."""
    losses = _losses(episodes, until)
    total = sum(losses)
    return [each / total for each in losses] if total else [1.0 / len(losses)] * len(losses)


def _losses(episodes: Sequence[Episode], until: float) -> list[float]:
    """Return what each wasted; how long each lasted where that is not known of every one."""
    wasted = [each.wasted_s or 0.0 for each in episodes]
    return wasted if all(wasted) else [_length(span_of(each, until)) for each in episodes]


def left_of(
    symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float
) -> tuple[tuple[Episode, float], ...]:
    """Return the episodes that no cause explains, each with the share, 0 to 1, that is left of it."""
    shares = [(each, 1.0 - _of_one(each, symptom, causes, until)) for each in symptom]
    return tuple((each, share) for each, share in shares if share > LEFT_SHARE)


def split_parts(symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float) -> list[float]:
    """Return the part, 0 to 1, of a symptom's loss that is each cause's own; together they are what is explained.

    Where several causes were there at once, on one node, the first of ``causes`` takes that time. A node of the symptom
    on which there was none waits for those on the others. Of an episode of which little is left nothing is.
    """
    parts = [0.0] * len(causes)
    for episode, weight in zip(symptom, loss_weights(symptom, until), strict=True):
        shares = [0.0] * len(causes)
        nodes = episode.nodes or (None,)
        for node in nodes:
            for number, gain in enumerate(_gains(episode, node, symptom, causes, until)):
                shares[number] += gain / len(nodes)
        explained = sum(shares)
        whole = explained if explained >= 1.0 - LEFT_SHARE else 1.0
        parts = [part + weight * share / whole for part, share in zip(parts, shares, strict=True)]
    return parts


def _gains(
    episode: Episode, node: str | None, symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float
) -> list[float]:
    """Return the share, 0 to 1, of an episode's time on a node that each cause adds to those before it."""
    span = span_of(episode, until)
    of_node = [[each for each in cause if node is None or not each.nodes or node in each.nodes] for cause in causes]
    spans = [_shared(episode, each, symptom, until) for each in of_node]
    if not any(spans):
        spans = [_shared(episode, each, symptom, until) for each in causes]
    gains, taken, reached = [], list[Span](), 0.0
    for each in spans:
        taken += each
        share = covered_s(span, taken) / _length(span) if _length(span) else float(bool(taken))
        gains.append(share - reached)
        reached = share
    return gains


def _of_one(episode: Episode, symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float) -> float:
    span = span_of(episode, until)
    spans = [each for of in causes for each in _shared(episode, of, symptom, until)]
    return covered_s(span, spans) / _length(span) if _length(span) else float(bool(spans))


def covered_s(span: Span, by: Sequence[Span]) -> float:
    total, reached = 0.0, span[0]
    for start, end in sorted(by):
        begin, finish = max(start, reached), min(end, span[1])
        if finish > begin:
            total += finish - begin
            reached = finish
    return total


def on_same_nodes(one: Episode, other: Episode) -> bool:
    """Whether two episodes have a node in common; one of the job as a whole has all."""
    return not one.nodes or not other.nodes or not set(one.nodes).isdisjoint(other.nodes)


def _shared(episode: Episode, cause: Sequence[Episode], symptom: Sequence[Episode], until: float) -> list[Span]:
    start, end = span_of(episode, until)
    spans = []
    for each in cause:
        begin, finish = span_of(each, until)
        common = max(start, begin - SLACK_S), min(end, finish + SLACK_S)
        if not on_same_nodes(episode, each) or common[1] < common[0]:
            continue
        held = min(begin, common[0]), common[1]
        shown = [(one - SLACK_S, other + SLACK_S) for one, other in (span_of(part, until) for part in symptom)]
        if covered_s(held, shown) >= SHOWN_SHARE * _length(held):
            spans.append(common)
    return spans


def _length(span: Span) -> float:
    return span[1] - span[0]
