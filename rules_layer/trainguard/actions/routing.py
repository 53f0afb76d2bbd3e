"""Whether an alert is sent, and when: staged and muted rules, quiet hours.

Of a stop that was made, tried in vain or is to come people are told at once, whatever is muted and whatever the hour:
they must be able to object. A staged rule stops nothing, so of it there is never such a thing to tell. A warning that
comes too late to object is none: it is not sent, and the state machine then stops nothing.
"""

from dataclasses import dataclass

from trainguard.actions.quiet import quiet_until
from trainguard.actions.request import AlertRequest
from trainguard.actions.stop_preconditions import epoch
from trainguard.finding import Severity
from trainguard.records import AlertKind

STAGED = "staged: nobody paged"
MUTED = "muted: no alert sent"
LATE = "too late to warn: no alert sent"

WARNED_SHARE = 0.5
"""At least this share of a grace time must lie between the warning and the stop."""


@dataclass(frozen=True, slots=True)
class Routing:
    """What becomes of an alert: ``withheld`` says why none is sent, ``wait_until`` (epoch seconds) when it goes out.

    With neither it goes out at once.
    """

    withheld: str | None = None
    wait_until: float | None = None


def route(request: AlertRequest, *, now: float) -> Routing:
    """Decide what becomes of an alert at ``now``, epoch seconds; a notice about settings is of no rule's."""
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
