"""How much a finding matters: a score from 0 to 100, and the level that it falls into.

It follows the ledger, and nothing in it jumps:

* what was lost: the share of the paid time that the finding claims, in percent;
* what is being lost: the longer an episode has gone on, the more of the way the score goes from the share lost so far
  to the share of the newest hour that it loses, half of it at most;
* how soon a risk comes true: within an hour it counts as half of all that is paid for, within nine as a tenth.

A finding that claims nothing is a risk: just under a quarter of the time in which it was seen. Training that computes
garbage, and a job that hangs, are critical: all that follows is lost.
"""

from trainguard.finding import Severity
from trainguard.ledger.bucket import Bucket

RISK_WEIGHT = 0.24
"""Just under a quarter: a risk that has cost nothing yet is medium at most, unless it comes true soon."""

ONGOING_WEIGHT = 0.5
HOUR_S = 3_600.0
LEVELS = ((50.0, Severity.CRITICAL), (25.0, Severity.HIGH), (10.0, Severity.MEDIUM))
"""From which score on a finding is of a level; below the last it is low."""

RUINED = frozenset({Bucket.BROKEN, Bucket.HANG})
"""A finding that claims one of these while it goes on is critical, however little was lost until now."""


def score_of(
    *,
    lost_share: float | None,
    affected_share: float | None,
    losing_share: float | None = None,
    lasted_s: float = 0.0,
    time_left_s: float | None = None,
) -> float:
    """Return the score, 0 to 100, of a finding.

    Parameters
    ----------
    lost_share, affected_share : float or None
        Shares, 0 to 1, of the paid time that it claims, and of the judged time in which it was seen.
    losing_share : float, optional
        The share of the newest hour that an open episode loses.
    lasted_s : float
        For how long that episode has gone on, seconds.
    time_left_s : float, optional
        In how many seconds a risk comes true.
    """
    if lost_share is None:
        loss = RISK_WEIGHT * (1.0 if affected_share is None else affected_share)
    else:
        weight = ONGOING_WEIGHT * lasted_s / (lasted_s + HOUR_S)
        loss = lost_share + weight * max((losing_share or 0.0) - lost_share, 0.0)
    score = 100.0 * min(max(loss, 0.0), 1.0)
    return score if time_left_s is None else max(score, 100.0 * HOUR_S / (HOUR_S + max(time_left_s, 0.0)))


def severity_of(score: float) -> Severity:
    """Return the level of a score."""
    return next((level for least, level in LEVELS if score >= least), Severity.LOW)
