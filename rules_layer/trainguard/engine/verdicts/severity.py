"""How much a verdict matters: a score from 0 to 100, and the level that it falls into.

The score is the share of the paid time that a finding wastes, in percent. A finding that has cost nothing yet, or whose
rule cannot say, counts as a risk: just under a quarter of the time in which it was seen. One node alone counts half of
what it wastes, because in synchronous training the others wait for it; the other half grows with the nodes affected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainguard.records import Severity

if TYPE_CHECKING:
    from trainguard.engine.verdicts.verdict import Reach

RISK_WEIGHT = 0.24
"""Just under a quarter: a risk that has cost nothing yet is medium at most."""

ALONE_WEIGHT = 0.5
LEVELS = ((50.0, Severity.CRITICAL), (25.0, Severity.HIGH), (10.0, Severity.MEDIUM))
"""From which score on a finding is of a level; below the last it is low."""


def score_of(*, wasted_share: float | None, affected_share: float | None, reach: Reach) -> float:
    """Return the score, 0 to 100, of a finding that wastes or affects such shares, 0 to 1, of the worst node's time."""
    loss = wasted_share
    if loss is None:
        loss = RISK_WEIGHT * (1.0 if affected_share is None else affected_share)
    nodes = reach.affected / reach.nodes if reach.nodes else 1.0
    weight = 1.0 if reach.nodes <= 1 else ALONE_WEIGHT + (1.0 - ALONE_WEIGHT) * nodes
    return 100.0 * min(max(loss, 0.0), 1.0) * weight


def severity_of(score: float) -> Severity:
    """Return the level of a score."""
    return next((level for least, level in LEVELS if score >= least), Severity.LOW)
