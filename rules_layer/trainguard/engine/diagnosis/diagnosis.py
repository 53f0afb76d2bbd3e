"""The diagnosis of a job: one function of its findings, its ledger and what was recorded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainguard.core.finding import Severity
from trainguard.engine.diagnosis.case import SIZEABLE_SHARE, Case, Judged, judged_of
from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.engine.verdicts.losses import severity_of
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.document import LedgerEntry

Level = Literal["healthy", "attention", "unhealthy", "unknown"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a job; shares are 0 to 1 of the paid time, None where no GPU was sampled.

    ``level`` is ``healthy`` only where enough was judged, nothing was found and no sizeable time is lost without a
    reason, ``attention`` for what is small, over or a risk, ``unknown`` where too little was judged. ``causes`` are
    unexplained findings in the order of cost, ``root`` the first; ``unexplained_share`` is lost at low use and claimed
    by none.
    """

    level: Level
    root: RankedFinding | None
    causes: tuple[RankedFinding, ...]
    judged: Judged
    ledger: tuple[LedgerEntry, ...]
    busy_share: float | None
    lost_share: float | None
    claimed_share: float
    unexplained_share: float

    @property
    def lacks_reason(self) -> bool:
        """Whether so much time is lost without a reason that somebody has to look."""
        return self.unexplained_share >= SIZEABLE_SHARE

    def share_of(self, bucket: Bucket) -> float:
        """Return a bucket's share, 0 to 1, of the paid time."""
        return next((entry.share for entry in self.ledger if entry.bucket is bucket), 0.0)


def diagnose(case: Case) -> Diagnosis:
    """Return what is wrong with a job, and how much of it is known."""
    findings = case.findings
    root = _root(findings[0], findings) if findings else None
    others = [each for each in findings if each.explained_by is None and each is not root]
    causes = () if root is None else (root, *others)
    judged = judged_of(case)
    entries = tuple(case.ledger.entries()) if case.ledger.nodes else ()
    busy = case.ledger.goodput
    claimed = min(sum(each.loss.share for each in findings if each.loss is not None), 1.0)
    unexplained = max(case.ledger.low_share() - claimed, 0.0)
    return Diagnosis(
        level=_level(case, judged, causes, unexplained),
        root=root,
        causes=causes,
        judged=judged,
        ledger=entries,
        busy_share=busy,
        lost_share=None if busy is None else max(1.0 - busy, 0.0),
        claimed_share=claimed,
        unexplained_share=unexplained,
    )


def _root(finding: RankedFinding, findings: Sequence[RankedFinding]) -> RankedFinding:
    by_rule = {each.rule: each for each in findings}
    while finding.explained_by is not None and finding.explained_by in by_rule:
        finding = by_rule[finding.explained_by]
    return finding


def _level(case: Case, judged: Judged, causes: tuple[RankedFinding, ...], unexplained: float) -> Level:
    if not causes:
        if not judged.judged or not judged.complete:
            return "unknown"
        return "attention" if unexplained >= SIZEABLE_SHARE else "healthy"
    root = causes[0]
    if not (root.ongoing or case.ended):
        return "attention"
    if root.finding.severity is Severity.CRITICAL:
        return "unhealthy"
    # A risk has lost nothing.
    together = severity_of(sum(each.score for each in causes if each.loss is not None))
    return "attention" if together is Severity.LOW else "unhealthy"
