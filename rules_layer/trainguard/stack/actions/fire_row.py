"""The fire path's row of a job and rule in RuleState; each write has its condition, as executions overlap."""

from typing import Literal, Protocol

import msgspec

from trainguard.stack.actions.request import FireInput, StopDecision

# Result of recording a decision to stop.
Recorded = Literal["written", "made before", "overtaken"]


class FireRows(Protocol):
    """The store of the fire path; every method raises PortUnavailableError."""

    def mark(self, fire: FireInput) -> None:
        """Mark the rule as fired, or only name the fire in a row evaluated further; a newer fire's row stays."""

    def record_decision(self, fire: FireInput, decision: StopDecision, *, now: float) -> Recorded:
        """Keep the decision to stop before the call; the result says if it was made, or the row is of another fire."""

    def record_stop(self, fire: FireInput, decision: StopDecision, *, made: bool | None, now: float) -> None:
        """Keep the decision on a stop and whether it was made; None if that is unknown."""

    def record_alert(self, fire: FireInput, action: str, alert_id: str | None, *, now: float) -> None:
        """Keep what was done about a fire, and its alert's id if it was sent; a follow-up leaves the id."""

    def record_report(self, fire: FireInput, place: str) -> None:
        """Say where the report lies."""


class AlertOutcome(msgspec.Struct, rename="camel", frozen=True):
    """What was done about a fire, as its alert says; ``alert_id`` is None where no alert was sent."""

    action: str
    alert_id: str | None = None


class FireRecord(msgspec.Struct, rename="camel", frozen=True):
    """A report's place, an alert's outcome, or with neither that the rule has fired."""

    fire: FireInput
    alert: AlertOutcome | None = None
    report_uri: str | None = None


def record(call: FireRecord, rows: FireRows, *, now: float) -> None:
    """Write it; what is about no rule has no row. ``now`` in epoch seconds."""
    if not call.fire.entry.kind.is_of_rule:
        return
    if call.report_uri is not None:
        rows.record_report(call.fire, call.report_uri)
    elif call.alert is not None:
        rows.record_alert(call.fire, call.alert.action, call.alert.alert_id, now=now)
    else:
        rows.mark(call.fire)
