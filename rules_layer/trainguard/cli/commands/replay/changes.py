"""What a replay says of each rule beside what the live job's rows say."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainguard.records import RuleRow


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """What a row says of a rule, in short."""

    status: str
    severity: str | None
    times_fired: int
    measured: float | None
    threshold: float | None
    worst: str | None
    reason: str

    @property
    def outcome(self) -> tuple[bool, str, str | None]:
        """What it comes to: whether the rule has fired, its status and how much that matters."""
        return self.times_fired > 0, self.status, self.severity

    def __str__(self) -> str:
        fired = f", fired {self.times_fired} x" if self.times_fired else ""
        return f"{self.status}{f' ({self.severity})' if self.severity else ''}{fired}"


@dataclass(frozen=True, slots=True)
class Change:
    """A rule then and now; None where there is no row."""

    rule: str
    then: RuleOutcome | None
    now: RuleOutcome

    @property
    def changed(self) -> bool:
        """Whether it comes to something else; without a row from then nothing can be said to have changed."""
        return self.then is not None and self.then.outcome != self.now.outcome

    def document(self) -> dict[str, Any]:
        """Return it for machines."""
        then = None if self.then is None else asdict(self.then)
        return {"rule": self.rule, "changed": self.changed, "then": then, "now": asdict(self.now)}


def changes(then: Sequence[RuleRow], now: Sequence[RuleRow]) -> list[Change]:
    """Compare the rows of a whole job, what has changed first; rows of nodes are left aside."""
    before = {row.rule: _outcome_of(row) for row in then if row.node is None}
    compared = [Change(row.rule, before.get(row.rule), _outcome_of(row)) for row in now if row.node is None]
    return sorted(compared, key=lambda change: not change.changed)


def _outcome_of(row: RuleRow) -> RuleOutcome:
    return RuleOutcome(
        status=row.status.value,
        severity=None if row.finding.severity is None else row.finding.severity.value,
        times_fired=row.times_fired,
        measured=row.finding.measured,
        threshold=row.finding.threshold,
        worst=row.worst,
        reason=row.finding.reason,
    )
