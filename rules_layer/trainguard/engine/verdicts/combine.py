"""From the nodes' verdicts to the job's: the worst node's counts; ``*`` is a comparison of the nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from trainguard.core.finding import Fact, severity_rank
from trainguard.core.records import JOB_NODE, Status
from trainguard.engine.verdicts.episodes import (
    NODES,
    NODES_FIRED,
    POINTS_JUDGED,
    POINTS_SEEN,
    SHARE_OF_POINTS,
    SILENT,
    WAITING,
    WAITING_NODE,
    FiringHistory,
    Liveness,
    over_nodes,
    since_silent,
)
from trainguard.engine.verdicts.verdict import Reach, Verdict, merged_episodes, shown_status

VANISHED_S = 900.0
"""A node that is less far behind the others has not fallen silent, whatever the rule's windows."""

MOST_WAITING = 4
"""Nodes without a verdict that are named."""


def with_liveness(verdict: Verdict, watermark_s: float | None, ahead: float | None) -> Verdict:
    """Return a node's verdict as it counts for the job; watermarks in epoch seconds.

    The open episode of a node that has fallen silent does not count as open, nor that of a rule that has failed.
    ``ahead`` is the furthest watermark of the stream's kind.
    """
    verdict = replace(verdict, watermark_s=watermark_s)
    silent_s = (ahead or 0.0) - (watermark_s or 0.0)
    failed = verdict.result.status is Status.ERROR
    if not verdict.history.is_open or not (failed or silent_s >= _silent_after_s(verdict)):
        return verdict
    history = msgspec.structs.replace(verdict.history, is_open=False)
    if failed:
        return replace(verdict, history=history)
    fact = Fact(name=SILENT, value=silent_s, unit="s", start=watermark_s, end=ahead)
    facts = (*verdict.result.facts, fact)
    result = replace(verdict.result, status=Status.OK, reason=since_silent(verdict.result.reason, fact), facts=facts)
    return replace(verdict, result=result, history=history, liveness=Liveness.STALE)


def liveness_of(parts: Mapping[str, Verdict]) -> Liveness:
    """Return how the job's newest alerted episode stands, from its verdicts by node."""
    latest = max(part.history.alerted for part in parts.values())
    stale = [part for part in parts.values() if part.liveness is Liveness.STALE and part.history.alerted == latest]
    if not stale:
        return Liveness.KNOWN
    began = [part.history.fired_at or 0.0 for part in parts.values() if part.history.is_open]
    if not began:
        return Liveness.STALE
    silent_since = max((part.watermark_s or 0.0) + _silent_after_s(part) for part in stale)
    return Liveness.RESTARTED if min(began) >= silent_since else Liveness.KNOWN


def ends_episode(verdict: Verdict) -> bool:
    """Whether the job's episode ends with this verdict, so that the next fire is another one's."""
    if verdict.liveness is Liveness.KNOWN:
        return not verdict.history.is_open
    return verdict.liveness is Liveness.RESTARTED


def known_until(parts: Mapping[str, Verdict]) -> float | None:
    """Return up to when the job's verdict is known, epoch seconds; None while there is no watermark."""
    fired = [part.watermark_s for part in parts.values() if part.history.is_open and part.watermark_s is not None]
    if fired:
        return max(fired)
    marks = {
        name: part.watermark_s for name, part in parts.items() if name != JOB_NODE and part.watermark_s is not None
    }
    ahead = max(marks.values(), default=0.0)
    heard = [mark for name, mark in marks.items() if ahead - mark < _silent_after_s(parts[name])]
    whole = parts.get(JOB_NODE)
    return min(heard, default=None if whole is None else whole.watermark_s)


def _silent_after_s(verdict: Verdict) -> float:
    return max(verdict.clear_after_s, VANISHED_S)


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
    waiting = [name for name in sorted(nodes) if shown_status(verdicts[name]) is Status.WARMING_UP]
    facts: tuple[Fact, ...] = ()
    reason = worst.result.reason
    if node != JOB_NODE:
        unjudged = [] if node in waiting else waiting
        counts = _counts(verdicts, nodes, worst.result.kind)
        facts, reason = (*counts, *_without_verdict(unjudged)), over_nodes(reason, counts, node, unjudged)
    result = replace(
        worst.result,
        reason=reason,
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


def _counts(verdicts: Mapping[str, Verdict], nodes: Sequence[str], kind: str) -> tuple[Fact, ...]:
    """Return on how many nodes the rule fires, and in how many of their points the kind was seen."""
    if len(nodes) < 2:
        return ()
    fired = sum(verdicts[name].history.is_open for name in nodes)
    counts = [each for name in nodes if (each := verdicts[name].result.pooled_as(kind)) is not None]
    facts = [Fact(name=NODES_FIRED, value=fired, unit="nodes"), Fact(name=NODES, value=len(nodes), unit="nodes")]
    if len(counts) > 1:
        seen, judged = (sum(each[place] for each in counts) for place in (0, 1))
        facts.append(Fact(name=POINTS_SEEN, value=seen, unit="samples"))
        facts.append(Fact(name=POINTS_JUDGED, value=judged, unit="samples"))
        facts.append(Fact(name=SHARE_OF_POINTS, value=seen / judged if judged else 0.0, unit="share"))
    return tuple(facts)


def _without_verdict(waiting: Sequence[str]) -> tuple[Fact, ...]:
    if not waiting:
        return ()
    names = (Fact(name=WAITING_NODE, value=name) for name in waiting[:MOST_WAITING])
    return Fact(name=WAITING, value=len(waiting), unit="nodes"), *names


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
    """Return the job's history: open while a node's is, with the lowest severity, so that higher ones are notified."""
    fired_at = [each.fired_at for each in histories if each.fired_at is not None]
    latest = max((each.alerted for each in histories), default=-1)
    notified = [each.alerted_severity for each in histories if each.alerted == latest]
    return FiringHistory(
        is_open=any(each.is_open for each in histories),
        violations=sum(each.violations for each in histories),
        judged=sum(each.judged for each in histories),
        times_fired=latest + 1,
        alerted=latest,
        fired_at=max(fired_at, default=None),
        alerted_severity=min(notified, key=severity_rank, default=None),
    )
