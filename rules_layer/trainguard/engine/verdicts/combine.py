"""From the nodes' verdicts to the job's: the worst node speaks for the job.

A rule that also compares the nodes with each other has one more part, under the name ``*``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.liveness import known_until, liveness_of
from trainguard.engine.verdicts.merged_episodes import merged_episodes
from trainguard.engine.verdicts.verdict import Reach, Verdict
from trainguard.engine.verdicts.words import (
    NODES,
    NODES_FIRED,
    NOW,
    POINTS_JUDGED,
    POINTS_SEEN,
    SHARE_OF_POINTS,
    UNJUDGED,
    WAITING,
    over_nodes,
)
from trainguard.finding import Fact, severity_rank
from trainguard.records import JOB_NODE, Status


def combine(rule: str, verdicts: Mapping[str, Verdict], nodes_of_job: int = 1) -> Verdict:
    """Return the job's verdict of one rule, from its verdicts by node (at least one)."""
    if set(verdicts) == {JOB_NODE}:
        whole, merged = verdicts[JOB_NODE], merged_episodes(verdicts)
        reach = Reach(nodes_of_job, nodes_of_job)
        return replace(whole, reach=reach, merged=merged.episodes, merged_earlier=merged.earlier)
    worst_first = sorted(sorted(verdicts), key=lambda name: _badness(verdicts[name]), reverse=True)
    node = worst_first[0]
    worst = verdicts[node]
    nodes = [name for name in verdicts if name != JOB_NODE]
    waiting = [name for name in sorted(nodes) if verdicts[name].result.status is Status.WARMING_UP]
    facts = _facts(verdicts, nodes)
    alone = node == JOB_NODE
    unjudged = None
    if waiting and not alone and node not in waiting:
        unjudged = verdicts[waiting[0]].result.reason
        facts = (*facts, *_why_unjudged(verdicts[waiting[0]], len(waiting)))
    result = replace(
        worst.result,
        reason=over_nodes(worst.result.reason, facts, None if alone else node, len(waiting), unjudged),
        facts=(*worst.result.facts, *facts),
        worst=_worst(node, worst.result.worst),
        data_points=sum(each.result.data_points for each in verdicts.values()),
        affected_share=worst.affected_share,
        oversized=bool(nodes) and all(verdicts[name].result.oversized for name in nodes),
        details={name: verdicts[name].result.details for name in sorted(verdicts)},
    )
    reach = Reach(_affected(verdicts, len(nodes)), len(nodes))
    merged = merged_episodes(verdicts)
    return Verdict(
        rule,
        result,
        _history([each.history for each in verdicts.values()]),
        reach=reach,
        liveness=liveness_of(verdicts),
        watermark_s=known_until(verdicts),
        merged=merged.episodes,
        merged_earlier=merged.earlier,
        worst_first=tuple(worst_first),
        waiting_nodes=tuple(waiting),
    )


def _affected(verdicts: Mapping[str, Verdict], nodes: int) -> int:
    """Count the nodes on which the rule fires, or has fired where it does nowhere now; a part of the job is of all."""
    firing = [name for name, each in verdicts.items() if each.history.is_open]
    firing = firing or [name for name, each in verdicts.items() if each.history.times_fired]
    return nodes if JOB_NODE in firing else len(firing)


def _facts(verdicts: Mapping[str, Verdict], nodes: Sequence[str]) -> tuple[Fact, ...]:
    """Return on how many nodes the rule fires, and in how many points of all nodes its condition was seen."""
    if len(nodes) < 2:
        return ()
    fired = sum(verdicts[name].history.is_open for name in nodes)
    counts = [each.result.pooled for each in verdicts.values() if each.result.pooled is not None]
    facts = [Fact(name=NODES_FIRED, value=fired, unit="nodes"), Fact(name=NODES, value=len(nodes), unit="nodes")]
    if len(counts) > 1:
        seen, judged = (sum(each[place] for each in counts) for place in (0, 1))
        facts.append(Fact(name=POINTS_SEEN, value=seen, unit="samples"))
        facts.append(Fact(name=POINTS_JUDGED, value=judged, unit="samples"))
        facts.append(Fact(name=SHARE_OF_POINTS, value=seen / judged if judged else 0.0, unit="share"))
    return tuple(facts)


def _why_unjudged(first: Verdict, waiting: int) -> tuple[Fact, ...]:
    """Return how many nodes have no verdict, and what the reason of the first of them rests on."""
    number, result = Fact(name=WAITING, value=waiting, unit="nodes"), first.result
    named = [*((UNJUDGED, fact) for fact in result.facts), *((f"{UNJUDGED}{NOW}", fact) for fact in result.facts_now)]
    return number, *(msgspec.structs.replace(fact, name=f"{before}{fact.name}") for before, fact in named)


def _worst(node: str, series: str | None) -> str | None:
    if node == JOB_NODE:
        return series
    return node if series is None else f"{node}/{series}"


def _badness(verdict: Verdict) -> tuple[bool, bool, bool, int, float, float, int]:
    """Order verdicts of one rule: fired before not, then by what it wastes, affects, and how often it was seen."""
    result, history = verdict.result, verdict.history
    wasted, affected = result.wasted_share or 0.0, verdict.affected_share or 0.0
    in_error, has_fired = result.status is Status.ERROR, history.times_fired > 0
    return history.is_open, in_error, has_fired, -result.status.place, wasted, affected, history.violations


def _history(histories: Sequence[FiringHistory]) -> FiringHistory:
    """Return the job's history: open while a node's is; it has fired as often as episodes of the job were alerted.

    Which of several nodes' fires was the first, and so the one that people were told of, is not known: the severity is
    that of the least grave, so that none that is graver goes untold.
    """
    fired_at = [each.fired_at for each in histories if each.fired_at is not None]
    latest = max((each.alerted for each in histories), default=-1)
    told = [each.alerted_severity for each in histories if each.alerted == latest]
    return FiringHistory(
        is_open=any(each.is_open for each in histories),
        violations=sum(each.violations for each in histories),
        judged=sum(each.judged for each in histories),
        times_fired=latest + 1,
        alerted=latest,
        fired_at=max(fired_at, default=None),
        alerted_severity=min(told, key=severity_rank, default=None),
    )
