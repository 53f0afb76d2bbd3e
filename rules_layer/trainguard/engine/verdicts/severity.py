"""How much a verdict matters: a score from 0 to 100, and the level that it falls into.

Three things count, and nothing in it jumps:

* what was lost: the share of the paid time that a finding has wasted, in percent;
* what is being lost: an episode that goes on loses as much in each hour to come. The longer it has gone on, the more of
  the way the score goes from the loss so far to the loss in the open episode, half of it at most;
* how soon a risk comes true: within an hour it counts as half of all that is paid for, within nine as a tenth.

A finding that has cost nothing yet, or whose rule cannot say, counts as a risk: just under a quarter of the time in
which it was seen. One node alone counts a quarter of what it wastes, because in synchronous training others may wait
for it; the rest grows with the nodes affected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainguard.finding import Severity

if TYPE_CHECKING:
    from trainguard.engine.verdicts.verdict import Reach, Verdict
    from trainguard.finding import Episode

RISK_WEIGHT = 0.24
"""Just under a quarter: a risk that has cost nothing yet is medium at most, unless it comes true soon."""

ALONE_WEIGHT = 0.25
ONGOING_WEIGHT = 0.5
HOUR_S = 3_600.0
LEVELS = ((50.0, Severity.CRITICAL), (25.0, Severity.HIGH), (10.0, Severity.MEDIUM))
"""From which score on a finding is of a level; below the last it is low."""


def score_of(
    *,
    wasted_share: float | None,
    affected_share: float | None,
    reach: Reach,
    losing_share: float | None = None,
    time_left_s: float | None = None,
) -> float:
    """Return the score, 0 to 100, of a finding.

    Parameters
    ----------
    wasted_share, affected_share : float or None
        Shares, 0 to 1, of the worst node's time that it wastes and affects.
    reach : Reach
    losing_share : float, optional
        The share that is lost from now on, as far as it counts.
    time_left_s : float, optional
        In how many seconds a risk comes true.
    """
    loss = wasted_share
    if loss is None:
        loss = RISK_WEIGHT * (1.0 if affected_share is None else affected_share)
    nodes = reach.affected / reach.nodes if reach.nodes else 1.0
    weight = 1.0 if reach.nodes <= 1 else ALONE_WEIGHT + (1.0 - ALONE_WEIGHT) * nodes
    score = 100.0 * min(max(loss, losing_share or 0.0, 0.0), 1.0) * weight
    return score if time_left_s is None else max(score, 100.0 * HOUR_S / (HOUR_S + max(time_left_s, 0.0)))


def score_of_verdict(verdict: Verdict, at: float | None, *, wasted_share: float | None) -> float:
    """Return the score of a verdict that has fired, at event time ``at``, epoch seconds.

    ``wasted_share`` is the share, 0 to 1, of the worst node's time that it wasted. A rule that gives a score of its own
    has the last word.
    """
    if verdict.result.score is not None:
        return min(max(verdict.result.score, 0.0), 100.0)
    result, reach = verdict.result, verdict.over_nodes
    newest = verdict.episodes[-1] if verdict.episodes else None
    return score_of(
        wasted_share=wasted_share,
        affected_share=verdict.affected_share,
        reach=reach,
        losing_share=_losing_share(newest, wasted_share or 0.0, reach.nodes, at),
        time_left_s=result.time_left_s if verdict.history.is_open else None,
    )


def wasted_share_of(verdict: Verdict, paid_s: float) -> float | None:
    """Return what a verdict wasted of the worst node's paid time, as a share from 0 to 1; None where nobody can say.

    It is what the rule says of now, and no less than its episodes add up to: a rule may look at the GPUs alone on which
    its condition holds at last.
    """
    nodes = verdict.over_nodes.nodes
    known = [each for each in verdict.episodes if each.wasted_s is not None]
    said = verdict.result.wasted_share
    if not known or paid_s <= 0.0:
        return said
    added = sum((each.wasted_s or 0.0) / _sharers(each, nodes) for each in known) / paid_s
    return max(min(added, 1.0), said or 0.0)


def _sharers(episode: Episode, nodes: int) -> int:
    """Return over how many nodes, of so many of the job, an episode's loss is spread."""
    return episode.spread or len(episode.nodes) or nodes or 1


def _losing_share(newest: Episode | None, lost: float, nodes: int, at: float | None) -> float | None:
    """Return what lies between the share that was lost and the share that an open episode loses."""
    if newest is None or newest.end is not None or newest.wasted_s is None or at is None:
        return None
    length_s = at - newest.start
    if length_s <= 0.0:
        return None
    rate = min(newest.wasted_s / _sharers(newest, nodes) / length_s, 1.0)
    weight = ONGOING_WEIGHT * length_s / (length_s + HOUR_S)
    return lost + weight * max(rate - lost, 0.0)


def severity_of(score: float) -> Severity:
    """Return the level of a score."""
    return next((level for least, level in LEVELS if score >= least), Severity.LOW)
