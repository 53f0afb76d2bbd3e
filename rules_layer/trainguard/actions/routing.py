"""Whether an alert is sent, and when: staged and muted rules, quiet hours.

Of a stop that was made, tried in vain or is to come people are told at once, whatever is muted and whatever the hour:
they must be able to object. A staged rule stops nothing, so of it there is never such a thing to tell.
"""

from dataclasses import dataclass

from trainguard.actions.quiet import quiet_until
from trainguard.actions.request import AlertRequest
from trainguard.records import AlertKind, Severity

STAGED = "staged: nobody paged"
MUTED = "muted: nobody told"


@dataclass(frozen=True, slots=True)
class Routing:
    """What becomes of an alert: ``withheld`` says why nobody is told, ``wait_until`` (epoch seconds) when it goes out.

    With neither it goes out at once.
    """

    withheld: str | None = None
    wait_until: float | None = None


def route(request: AlertRequest, *, now: float) -> Routing:
    """Decide what becomes of an alert at ``now``, epoch seconds; a notice about settings is of no rule's."""
    fire, alerts = request.fire, request.fire.policy.alerts
    is_finding = fire.kind is not AlertKind.NOTICE
    if is_finding and alerts.is_staged(fire.rule):
        return Routing(withheld=STAGED)
    if request.is_about_a_stop:
        return Routing()
    if is_finding and alerts.is_muted(fire.rule):
        return Routing(withheld=MUTED)
    if fire.severity == Severity.CRITICAL and fire.kind is not AlertKind.CLEARED:
        return Routing()
    return Routing(wait_until=quiet_until(alerts.quiet_hours, now))
