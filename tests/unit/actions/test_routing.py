"""Who is notified, and when: staged and muted rules, quiet hours, and what breaks through them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.actions.test_alert import FIRE, alert_input
from trainguard.core.job_policy import DAYS, AlertPolicy, JobPolicy, QuietHours, StopPolicy
from trainguard.core.records import AlertKind
from trainguard.core.timestamps import iso_time
from trainguard.stack.actions.alert import LATE, MUTED, STAGED, Routing, route
from trainguard.stack.actions.request import AlertRequest, StopDecision, StopResult

RULE = FIRE["rule"]
NIGHT = QuietHours(days=DAYS, start="22:00", end="07:00")
MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC).timestamp()
MORNING = MIDNIGHT + 7 * 3_600.0
AT_ONCE = Routing()


def request(
    *,
    kind: AlertKind = AlertKind.FIRE,
    severity: str | None = "high",
    made: bool = False,
    tried: bool = False,
    **alerts: Any,
) -> AlertRequest:
    fire = alert_input(
        **(FIRE | {"kind": kind, "severity": severity, "policy": JobPolicy(alerts=AlertPolicy(**alerts))})
    )
    return AlertRequest(fire, StopDecision(stop=made or tried), StopResult(made=made))


@pytest.mark.parametrize("kind", [AlertKind.FIRE, AlertKind.ESCALATION, AlertKind.CLEARED])
@pytest.mark.parametrize("named", [RULE, "all"])
def test_staged_rule_pages_nobody_at_any_severity(kind: AlertKind, named: str) -> None:
    staged = request(kind=kind, severity="critical", staged=(named,), muted=(named,))
    assert route(staged, now=MIDNIGHT) == Routing(withheld=STAGED)


@pytest.mark.parametrize("named", [RULE, "all"])
def test_given_a_muted_rule_when_routed_then_nobody_is_told(named: str) -> None:
    assert route(request(severity="critical", muted=(named,)), now=MIDNIGHT) == Routing(withheld=MUTED)


@pytest.mark.parametrize("alerts", [{"staged": ("CPUBottleneck",)}, {"muted": ("CPUBottleneck",)}])
def test_other_staged_or_muted_rules_do_not_silence_this_one(alerts: dict[str, Any]) -> None:
    assert route(request(**alerts), now=MIDNIGHT) == AT_ONCE


@pytest.mark.parametrize("about", [{"made": True}, {"tried": True}, {"kind": AlertKind.WARNING}])
def test_executed_tried_or_pending_stop_is_sent_at_once(
    about: dict[str, Any],
) -> None:
    told = request(muted=("all",), quiet_hours=(NIGHT,), severity="low", **about)
    assert route(told, now=MIDNIGHT) == AT_ONCE


@pytest.mark.parametrize(
    ("waited_s", "routed"), [(0.0, AT_ONCE), (300.0, AT_ONCE), (301.0, Routing(LATE)), (900.0, Routing(LATE))]
)
def test_warning_delayed_past_half_of_its_grace_time_is_dropped(waited_s: float, routed: Routing) -> None:
    policy = JobPolicy(stops=StopPolicy(grace_s=600.0))
    fire = alert_input(**(FIRE | {"kind": AlertKind.WARNING, "policy": policy}))
    warning = AlertRequest(fire, StopDecision(decision="grace", stop_at=iso_time(MIDNIGHT + 600.0)))
    assert route(warning, now=MIDNIGHT + waited_s) == routed


@pytest.mark.parametrize("kind", [AlertKind.FIRE, AlertKind.ESCALATION, AlertKind.NOTICE])
@pytest.mark.parametrize("severity", ["low", "medium", "high", None])
def test_alert_in_quiet_hours_waits_until_they_end(kind: AlertKind, severity: str | None) -> None:
    waiting = request(kind=kind, severity=severity, quiet_hours=(NIGHT,))
    assert route(waiting, now=MIDNIGHT) == Routing(wait_until=MORNING)
    assert route(waiting, now=MORNING) == AT_ONCE


def test_critical_alert_ignores_quiet_hours_but_its_end_waits() -> None:
    critical: dict[str, Any] = {"severity": "critical", "quiet_hours": (NIGHT,)}
    assert route(request(**critical), now=MIDNIGHT) == AT_ONCE
    assert route(request(kind=AlertKind.ESCALATION, **critical), now=MIDNIGHT) == AT_ONCE
    assert route(request(kind=AlertKind.CLEARED, **critical), now=MIDNIGHT) == Routing(wait_until=MORNING)


def test_owner_gets_settings_faults_with_all_rules_staged_muted() -> None:
    notice = request(kind=AlertKind.NOTICE, staged=("all",), muted=("all",))
    assert route(notice, now=MIDNIGHT) == AT_ONCE
