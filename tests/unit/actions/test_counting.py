"""What the alert counts of stops: each end of one under its own name, and nothing of what is no stop."""

import pytest

from tests.support.memory import MemoryJournal
from trainguard.core.finding import Finding
from trainguard.core.records import AlertKind, OutboxEntry
from trainguard.stack.actions.alert import count_stop
from trainguard.stack.actions.request import AlertRequest, FireInput, StopDecision, StopResult


def request(kind: AlertKind, decision: StopDecision, stop: StopResult) -> AlertRequest:
    fire = FireInput(
        job="j",
        job_arn="arn:j",
        entry=OutboxEntry("f", 0, 0.0, Finding(rule="CPUBottleneck", node="algo-1", reason=""), kind=kind),
        report_uri="s3://b/r",
    )
    return AlertRequest(fire, decision, stop)


@pytest.mark.parametrize(
    ("kind", "decision", "stop", "counted"),
    [
        (AlertKind.FIRE, StopDecision(True, "stop", "opted in"), StopResult(True), {"stops_made": 1}),
        (AlertKind.FIRE, StopDecision(True, "stop", "opted in"), StopResult(False, "no"), {"stops_failed": 1}),
        (
            AlertKind.WARNING,
            StopDecision(False, "grace", "begun", "2026-07-14T10:00:00Z"),
            StopResult(),
            {"stops_announced": 1},
        ),
        (AlertKind.FIRE, StopDecision(False, "dry-run", "asked"), StopResult(), {"stops_in_dry_run": 1}),
        (
            AlertKind.FIRE,
            StopDecision(False, "refused", "rate limit", opted_in=True),
            StopResult(),
            {"stops_refused": 1},
        ),
        (AlertKind.FIRE, StopDecision(False, "refused", "no tag"), StopResult(), {}),
        (AlertKind.ESCALATION, StopDecision(), StopResult(), {}),
        (AlertKind.CLEARED, StopDecision(), StopResult(), {}),
        (AlertKind.NOTICE, StopDecision(), StopResult(), {}),
    ],
)
def test_stop_is_counted_under_its_outcome(
    kind: AlertKind, decision: StopDecision, stop: StopResult, counted: dict[str, int]
) -> None:
    journal = MemoryJournal()
    count_stop(request(kind, decision, stop), journal)
    assert journal.totals == counted
    assert all(entry.where["job"] == "j" and entry.where["reason"] for entry in journal.entries)


def test_unsent_warning_counts_no_announced_stop() -> None:
    journal = MemoryJournal()
    warning = request(AlertKind.WARNING, StopDecision(False, "grace", "begun", "2026-07-14"), StopResult())
    count_stop(warning, journal, sent=False)
    assert journal.totals == {}
