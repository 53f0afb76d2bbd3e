"""The verdicts of rules on a unit or a job: results with their episodes, and the fires that begin.

From the nodes' verdicts to the job's: the worst node's counts; ``*`` is a comparison of the nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import msgspec

from trainguard.core.finding import MOST_EPISODES, Episode, Fact, Finding, severity_rank
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
    never_judged,
    over_nodes,
    since_silent,
)
from trainguard.ledger.job import Ledger
from trainguard.rules.rule_result import RuleResult

# Statuses of a rule that could tell whether its condition holds.
JUDGED = frozenset({Status.OK, Status.FIRED})


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """A rule's result with its firing history, as its row shows it.

    An episode is over after ``clear_after_s`` clean seconds of event time. ``liveness`` is how it stands among the
    job's nodes, ``watermark_s`` the epoch seconds up to which the job's verdict is known. ``reach`` is on how many
    nodes the rule fires, of how many; ``merged``, a job's episodes, is None for one node alone. ``ended``: the stream
    or the job has. ``worst_first`` are the names in a job's details; on ``waiting_nodes`` the rule has no verdict yet.
    """

    rule: str
    result: RuleResult
    history: FiringHistory
    clear_after_s: float = 0.0
    reach: tuple[int, int] = (1, 1)
    liveness: Liveness = Liveness.KNOWN
    watermark_s: float | None = None
    merged: tuple[Episode, ...] | None = None
    merged_earlier: int = 0
    ended: bool = False
    worst_first: tuple[str, ...] = ()
    waiting_nodes: tuple[str, ...] = ()

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """When and where the condition held, the newest episodes, oldest first."""
        return self.history.shown_episodes(self.rule) if self.merged is None else self.merged

    @property
    def earlier_episodes(self) -> int:
        return self.history.earlier_episodes if self.merged is None else self.merged_earlier

    @property
    def affected_share(self) -> float | None:
        """Share, 0 to 1, of the evaluated time with the condition: as the rule says, else of evaluations."""
        share = self.result.affected_share
        return self.history.affected_share if share is None else share

    def finding_on(self, node: str | None, reason: str) -> Finding:
        """Return the verdict in the words ``reason``, without severity, cost and episodes."""
        result = self.result
        return Finding(
            rule=self.rule,
            node=node,
            reason=reason,
            measured=result.measured,
            threshold=result.threshold,
            finding_kind=result.kind,
            facts=result.facts,
        )


@dataclass(frozen=True, slots=True)
class Fire:
    """An outcome with which an episode begins at the watermark ``at``; ``ledger`` None: nothing known of the GPUs."""

    verdict: RuleOutcome
    at: float
    ledger: Ledger | None = None


def shown_status(verdict: RuleOutcome) -> Status:
    """Return the status for people: FIRED while an episode is open, unless the rule is at fault."""
    status = verdict.result.status
    return Status.FIRED if verdict.history.is_open and status is not Status.ERROR else status


def merged_episodes(verdicts: Mapping[str, RuleOutcome]) -> tuple[tuple[Episode, ...], int]:
    """Return the newest episodes of a job, oldest first, and how many there were before those."""
    placed = [_placed(name, each) for name, verdict in sorted(verdicts.items()) for each in verdict.episodes]
    threshold = next((each.result.threshold for each in verdicts.values() if each.result.threshold is not None), 0.0)
    groups: list[list[Episode]] = []
    until = -inf
    for episode in sorted(placed, key=lambda each: each.start):
        if not groups or episode.start > until:
            groups.append([])
            until = -inf
        groups[-1].append(episode)
        until = max(until, inf if episode.end is None else episode.end)
    merged = [_merged(group, threshold) for group in groups]
    dropped = max((verdict.earlier_episodes for verdict in verdicts.values()), default=0)
    return tuple(merged[-MOST_EPISODES:]), dropped + max(len(merged) - MOST_EPISODES, 0)


def _placed(name: str, episode: Episode) -> Episode:
    if name != JOB_NODE:
        return replace(episode, nodes=(name,))
    named = tuple(sorted({gpu.partition("/")[0] for gpu in episode.gpus if "/" in gpu}))
    gpus = tuple(gpu.partition("/")[2] for gpu in episode.gpus) if len(named) == 1 else episode.gpus
    return replace(episode, nodes=named, gpus=gpus)


def _merged(group: Sequence[Episode], threshold: float) -> Episode:
    if len(group) == 1:
        return group[0]
    names = sorted({node for each in group for node in each.nodes}, key=lambda name: (len(name), name))
    of_job = [each for each in group if not each.nodes]
    several = len(names) > 1
    gpus = {f"{each.node}/{gpu}" if several and each.node else gpu for each in group for gpu in each.gpus}
    measured = [each.measured for each in group if each.measured is not None]
    ends = [each.end for each in group]
    longest = max(group, key=lambda each: (inf if each.end is None else each.end) - each.start)
    return Episode(
        start=min(each.start for each in group),
        end=None if None in ends else max(end for end in ends if end is not None),
        nodes=() if of_job else tuple(names),
        gpus=tuple(sorted(gpus, key=lambda gpu: (len(gpu), gpu))),
        measured=max(measured, key=lambda value: abs(value - threshold), default=None),
        idle_node=longest.idle_node,
        reason=longest.reason,
        advice=longest.advice,
        kind=longest.kind,
        facts=longest.facts,
    )


def final(verdict: RuleOutcome, watermark_s: float | None) -> RuleOutcome:
    """Return the last verdict on an ended stream or job: an open episode ends, a rule without data does not apply."""
    result = verdict.result
    if result.status is Status.WAITING_FOR_DATA:
        reason = never_judged(result.reason, read=watermark_s is not None)
        return replace(verdict, result=replace(result, status=Status.NOT_APPLICABLE, reason=reason))
    held_until = verdict.history.episodes[-1].held_at if verdict.history.episodes else verdict.watermark_s
    episodes = [each if each.end is not None else replace(each, end=held_until) for each in verdict.episodes]
    return replace(verdict, merged=tuple(episodes), merged_earlier=verdict.earlier_episodes, ended=True)


# A node that is less far behind the others has not fallen silent, whatever the rule's windows.
VANISHED_S = 900.0

# Nodes without a verdict that are named.
MOST_WAITING = 4


def with_liveness(verdict: RuleOutcome, watermark_s: float | None, ahead: float | None) -> RuleOutcome:
    """Return a node's verdict as it counts for the job; watermarks in epoch seconds.

    The open episode of a node that has fallen silent does not count as open, nor that of a rule that has failed.
    ``ahead`` is the furthest watermark of the stream's kind.
    """
    # A fifth of the time of `replace`, for each rule on each node.
    verdict = RuleOutcome(verdict.rule, verdict.result, verdict.history, verdict.clear_after_s, watermark_s=watermark_s)
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


def liveness_of(parts: Mapping[str, RuleOutcome]) -> Liveness:
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


def ends_episode(verdict: RuleOutcome) -> bool:
    """Whether the job's episode ends with this verdict, so that the next fire is another one's."""
    if verdict.liveness is Liveness.KNOWN:
        return not verdict.history.is_open
    return verdict.liveness is Liveness.RESTARTED


def known_until(parts: Mapping[str, RuleOutcome]) -> float | None:
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


def _silent_after_s(verdict: RuleOutcome) -> float:
    return max(verdict.clear_after_s, VANISHED_S)


def combine(rule: str, verdicts: Mapping[str, RuleOutcome], nodes_of_job: int = 1) -> RuleOutcome:
    """Return the job's verdict of one rule, from its verdicts by node (at least one)."""
    merged, earlier = merged_episodes(verdicts)
    if set(verdicts) == {JOB_NODE}:
        reach = (nodes_of_job, nodes_of_job)
        return replace(verdicts[JOB_NODE], reach=reach, merged=merged, merged_earlier=earlier)
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
    firing = [name for name, each in verdicts.items() if each.history.is_open]
    firing = firing or [name for name, each in verdicts.items() if each.history.times_fired]
    return RuleOutcome(
        rule,
        result,
        _history([each.history for each in verdicts.values()]),
        # A finding on a part of the job as a whole is of all its nodes.
        reach=(len(nodes) if JOB_NODE in firing else len(firing), len(nodes)),
        liveness=liveness_of(verdicts),
        watermark_s=known_until(verdicts),
        merged=merged,
        merged_earlier=earlier,
        worst_first=tuple(worst_first),
        waiting_nodes=tuple(waiting),
    )


def _counts(verdicts: Mapping[str, RuleOutcome], nodes: Sequence[str], kind: str) -> tuple[Fact, ...]:
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


def _badness(verdict: RuleOutcome) -> tuple[bool, bool, bool, int, float, float, int]:
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
