"""Counts what became of stops, at the one place that knows how each of them ended: the alert."""

from trainguard.actions.request import AlertRequest
from trainguard.ports import Journal
from trainguard.records import AlertKind


def count_stop(request: AlertRequest, journal: Journal, *, sent: bool = True) -> None:
    """Count the stop that an alert tells of: made, failed, announced, in dry run, or refused.

    A refusal counts where the owner has asked for stops by this rule: that others are not stopped is no news, and would
    hide those that were wanted and not made. An alert that tells of no stop counts nothing, nor does a warning that is
    not ``sent``: the stop is refused for it, and counted then. Nor does an alert that is sent late: its stop was
    counted when it came about.
    """
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
