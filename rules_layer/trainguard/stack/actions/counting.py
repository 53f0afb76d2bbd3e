"""Counts stops where the end of each is known: in the alert."""

from trainguard.core.ports import Journal
from trainguard.core.records import AlertKind
from trainguard.stack.actions.request import AlertRequest


def count_stop(request: AlertRequest, journal: Journal, *, sent: bool = True) -> None:
    """Count the stop of an alert; refusals if the owner wanted it, a warning if ``sent``, and no late alert."""
    fire, decision, stop = request.fire, request.decision, request.stop
    if fire.resend is not None:
        return
    if stop.made:
        what = "stops_made"
    elif decision.stop:
        what = "stops_failed"
    elif fire.entry.kind is AlertKind.WARNING and sent:
        what = "stops_announced"
    elif decision.decision == "dry-run":
        what = "stops_in_dry_run"
    elif decision.decision == "refused" and decision.opted_in:
        what = "stops_refused"
    else:
        return
    journal.count(what, job=fire.job, rule=fire.entry.finding.rule, reason=stop.error or decision.why)
