"""A job's episodes from those of its nodes: what overlaps in time is one episode of several nodes.

An episode of a part that is of no node, or of several parts one of which is, is of the job as a whole, unless its GPUs
name nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from trainguard.engine.verdicts.verdict import Verdict
from trainguard.finding import MOST_EPISODES, Episode
from trainguard.records import JOB_NODE


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
    """Return an episode with the nodes that it is of."""
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
