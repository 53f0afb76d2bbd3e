"""From the nodes' verdicts to the job's: the worst node speaks for the job.

A rule that also compares the nodes with each other has one more part, under the name ``*``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainguard.engine.episodes import Episode
from trainguard.engine.slots import Verdict
from trainguard.records import JOB_NODE, Status

_RANK = {
    Status.FIRED: 6,
    Status.ERROR: 5,
    Status.WARMING_UP: 4,
    Status.OK: 3,
    Status.WAITING_FOR_DATA: 2,
    Status.NOT_APPLICABLE: 1,
    Status.DISABLED: 0,
}


def combine(rule: str, verdicts: Mapping[str, Verdict]) -> Verdict:
    """Return the job's verdict of one rule, from its verdicts by node (at least one)."""
    if set(verdicts) == {JOB_NODE}:
        return verdicts[JOB_NODE]
    node = max(sorted(verdicts), key=lambda name: _badness(verdicts[name]))
    worst = verdicts[node]
    nodes = [name for name in verdicts if name != JOB_NODE]
    fired = sum(verdicts[name].episode.is_open for name in nodes)
    reason = worst.judgement.reason
    if fired and len(nodes) > 1 and node != JOB_NODE:
        reason = f"{fired} of {len(nodes)} nodes fire; worst {node}: {reason}"
    judgement = replace(
        worst.judgement,
        reason=reason,
        worst=_worst(node, worst.judgement.worst),
        data_points=sum(each.judgement.data_points for each in verdicts.values()),
        details={name: dict(verdicts[name].judgement.details) for name in sorted(verdicts)},
    )
    return Verdict(rule, judgement, _episode([each.episode for each in verdicts.values()]))


def _worst(node: str, series: str | None) -> str | None:
    if node == JOB_NODE:
        return series
    return node if series is None else f"{node}/{series}"


def _badness(verdict: Verdict) -> tuple[bool, int, int]:
    return verdict.episode.is_open, _RANK[verdict.judgement.status], verdict.episode.violations


def _episode(episodes: Sequence[Episode]) -> Episode:
    """Return the job's episode: open while a node's is; it has fired as often as episodes of the job were alerted."""
    fired_at = [each.fired_at for each in episodes if each.fired_at is not None]
    latest = max((each.alerted for each in episodes), default=-1)
    return Episode(
        is_open=any(each.is_open for each in episodes),
        violations=sum(each.violations for each in episodes),
        times_fired=latest + 1,
        alerted=latest,
        fired_at=max(fired_at, default=None),
    )
