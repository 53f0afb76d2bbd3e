"""The verdicts of rules on a unit or a job: results with their episodes, and the fires that begin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from trainguard.core.finding import MOST_EPISODES, Episode, Finding
from trainguard.core.records import JOB_NODE, Status
from trainguard.engine.verdicts.episodes import FiringHistory, Liveness, never_judged
from trainguard.ledger.job import Ledger
from trainguard.rules.rule_result import RuleResult

JUDGED = frozenset({Status.OK, Status.FIRED})
"""Statuses of a rule that could tell whether its condition holds."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a verdict reaches over the nodes that it is of."""

    affected: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule's result with its firing history, as its row shows it.

    An episode is over after ``clear_after_s`` clean seconds of event time. ``liveness`` is how it stands among the
    job's nodes, ``watermark_s`` the epoch seconds up to which the job's verdict is known. ``reach`` and ``merged``, a
    job's episodes, are None for one node alone. ``ended``: the stream or the job has. ``worst_first`` are the names in
    a job's details; on ``waiting_nodes`` the rule has no verdict yet.
    """

    rule: str
    result: RuleResult
    history: FiringHistory
    clear_after_s: float = 0.0
    reach: Reach | None = None
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
        """How many episodes there were before these."""
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

    @property
    def over_nodes(self) -> Reach:
        """The verdict's reach; of one node alone, that node."""
        return Reach(1, 1) if self.reach is None else self.reach


@dataclass(frozen=True, slots=True)
class Fire:
    """A verdict with which an episode begins at the watermark ``at``; ``ledger`` None: nothing known of the GPUs."""

    verdict: Verdict
    at: float
    ledger: Ledger | None = None


def shown_status(verdict: Verdict) -> Status:
    """Return the status for people: FIRED while an episode is open, unless the rule is at fault."""
    status = verdict.result.status
    return Status.FIRED if verdict.history.is_open and status is not Status.ERROR else status


@dataclass(frozen=True, slots=True)
class MergedEpisodes:
    """The newest episodes of a job, oldest first; ``earlier`` counts those before them."""

    episodes: tuple[Episode, ...]
    earlier: int


def merged_episodes(verdicts: Mapping[str, Verdict]) -> MergedEpisodes:
    """Return a job's episodes of one rule from its verdicts by node."""
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
    return MergedEpisodes(tuple(merged[-MOST_EPISODES:]), dropped + max(len(merged) - MOST_EPISODES, 0))


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


def final(verdict: Verdict, watermark_s: float | None) -> Verdict:
    """Return the last verdict on an ended stream or job: an open episode ends, a rule without data does not apply."""
    result = verdict.result
    if result.status is not Status.WAITING_FOR_DATA:
        return _closed(verdict)
    reason = never_judged(result.reason, read=watermark_s is not None)
    return replace(verdict, result=replace(result, status=Status.NOT_APPLICABLE, reason=reason))


def _closed(verdict: Verdict) -> Verdict:
    held_until = verdict.history.episodes[-1].held_at if verdict.history.episodes else verdict.watermark_s
    episodes = [each if each.end is not None else replace(each, end=held_until) for each in verdict.episodes]
    return replace(verdict, merged=tuple(episodes), merged_earlier=verdict.earlier_episodes, ended=True)
