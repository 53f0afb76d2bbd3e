"""Writes the fire machine's results into the rule's row, but for stops."""

import msgspec

from trainguard.core.records import AlertKind
from trainguard.stack.actions.fire_row import Fire, FireRows


class AlertOutcome(msgspec.Struct, rename="camel", frozen=True):
    """What was done about a fire, as its alert says; ``alert_id`` is None where no alert was sent."""

    action: str
    alert_id: str | None = None


class FireRecord(msgspec.Struct, rename="camel", frozen=True):
    """A report's place, an alert's outcome, or with neither that the rule has fired."""

    fire: Fire
    alert: AlertOutcome | None = None
    report_uri: str | None = None


def record(call: FireRecord, rows: FireRows, *, now: float) -> None:
    """Write it; a notice about settings has no row. ``now`` in epoch seconds."""
    if call.fire.kind is AlertKind.NOTICE:
        return
    if call.report_uri is not None:
        rows.record_report(call.fire, call.report_uri)
    elif call.alert is not None:
        rows.record_alert(call.fire, call.alert.action, call.alert.alert_id, now=now)
    else:
        rows.mark(call.fire)
