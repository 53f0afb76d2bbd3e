"""Whether an alert is sent, and when; a stop is notified at once, and a warning that comes too late stops nothing."""

from dataclasses import dataclass

from trainguard.core.finding import Severity
from trainguard.core.records import AlertKind
from trainguard.stack.actions.quiet import quiet_until
from trainguard.stack.actions.request import AlertRequest
from trainguard.stack.actions.stop_preconditions import epoch

STAGED = "staged: nobody paged"
MUTED = "muted: no alert sent"
LATE = "too late to warn: no alert sent"

WARNED_SHARE = 0.5
"""At least this share of a grace time must lie between the warning and the stop."""


@dataclass(frozen=True, slots=True)
class Routing:
    """``withheld`` says why no alert is sent, ``wait_until`` (epoch seconds) when; with neither at once."""

    withheld: str | None = None
    wait_until: float | None = None


def route(request: AlertRequest, *, now: float) -> Routing:
    """Decide on an alert at ``now``, epoch seconds."""
    entry, alerts = request.fire.entry, request.fire.policy.alerts
    is_finding = entry.kind is not AlertKind.NOTICE
    if is_finding and alerts.is_staged(entry.finding.rule):
        return Routing(withheld=STAGED)
    if entry.kind is AlertKind.WARNING and _comes_late(request, now):
        return Routing(withheld=LATE)
    if request.is_about_a_stop:
        return Routing()
    if is_finding and alerts.is_muted(entry.finding.rule):
        return Routing(withheld=MUTED)
    if entry.finding.severity == Severity.CRITICAL and entry.kind is not AlertKind.CLEARED:
        return Routing()
    return Routing(wait_until=quiet_until(alerts.quiet_hours, now))


def _comes_late(request: AlertRequest, now: float) -> bool:
    """Whether a warning has waited so long, for a function to be free, that little of the grace time is left."""
    stop_at = request.decision.stop_at
    return stop_at is not None and epoch(stop_at) - now < WARNED_SHARE * request.fire.policy.stops.grace_s
