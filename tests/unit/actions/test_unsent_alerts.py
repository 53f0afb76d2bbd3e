"""Which alerts were not sent, what is known of their stops, and the execution that sends one late."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.memory import MemoryWorld
from trainguard.core.errors import StateCodecError
from trainguard.core.finding import Finding, Severity
from trainguard.core.job_policy import AlertPolicy, JobPolicy, QuietHours, StopPolicy
from trainguard.core.records import AlertKind, JobRecord, OutboxEntry, RuleRow, Status, StopRecord, execution_input
from trainguard.engine.outbox import execution_name, fire_payload
from trainguard.stack.actions.alert import compose_alert, count_stop
from trainguard.stack.actions.marks import PEOPLE, Channel
from trainguard.stack.actions.request import AlertRequest
from trainguard.stack.actions.unsent_alerts import NAME_LIMIT, STEP_FAILED, UnsentAlert, resend_name, unsent_alerts

NOW = 1_795_248_000.0
FAILED_AT = NOW - 3_600.0
RULE = "LowGPUUtilization"
JOB = JobRecord("bert", "arn:aws:sagemaker:eu-west-1:111122223333:training-job/bert", "profiles", "")
FIRE = OutboxEntry(
    fire_id="f" * 20,
    episode=0,
    enqueued_at=FAILED_AT - 30.0,
    finding=Finding(
        rule=RULE, node="algo-1", reason="gpu1 is low.", measured=34.0, threshold=70.0, severity=Severity.HIGH
    ),
)
NAME = execution_name(FIRE, JOB.job)
STOPPED = StopRecord("stop", "the tag allows it", at=FAILED_AT, fire_id=FIRE.fire_id, made=True)
UNKNOWN = "Whether the training job was stopped is not known"
NO_TOPIC = ("SNS.NotFoundException", "Topic does not exist")


class Machine:
    """The fire machine's executions and rows, as it left them."""

    def __init__(self) -> None:
        self.world = MemoryWorld()

    def failed(
        self,
        entry: OutboxEntry = FIRE,
        job: JobRecord = JOB,
        *,
        status: str = "FAILED",
        error: str | None = NO_TOPIC[0],
        cause: str | None = NO_TOPIC[1],
        at: float = FAILED_AT,
    ) -> None:
        """Let an execution have handled a fire, or its follow-up, and have failed."""
        name = execution_name(entry, job.job)
        assert self.world.executions.start(name, fire_payload(entry, job))
        self.world.executions.end(name, status, at=at, error=error, cause=cause)

    def row(self, stop: StopRecord | None = STOPPED, **changes: Any) -> None:
        """Let the rule's row be as the execution left it."""
        row = RuleRow(JOB.job, Finding(RULE, None, "low."), Status.FIRED, fire_id=FIRE.fire_id, stop=stop)
        self.world.rows.record(replace(row, **changes))

    def unsent(self, since: float = FAILED_AT, **asked: Any) -> list[UnsentAlert]:
        executions = self.world.executions
        return list(unsent_alerts(executions, self.world.rows, self.world.alerts, since=since, now=NOW, **asked))

    def send(self, alert: UnsentAlert) -> str:
        """Start the execution that sends an alert, and return its name."""
        name, payload = alert.resend
        assert self.world.executions.start(name, payload)
        return name


@pytest.fixture
def machine() -> Machine:
    return Machine()


def composed(alert: UnsentAlert) -> Any:
    """Return what the function composes that the fire machine calls with the execution's input."""
    payload: Any = alert.resend[1]
    handed = {"fire": payload, "decision": payload["resend"]["decision"], "stop": payload["resend"]["stop"]}
    return compose_alert(AlertRequest.read(handed), now=NOW)


def test_alert_of_a_failed_send_is_found_unchanged(
    machine: Machine,
) -> None:
    machine.failed()
    machine.row()
    (alert,) = machine.unsent()
    assert (alert.origin, alert.attempt, alert.under_way) == (NAME, 1, False)
    name, payload = alert.resend
    assert name == f"resend-1-{NAME}"
    assert json.loads(execution_input(payload)) == {
        **json.loads(execution_input(fire_payload(FIRE, JOB))),
        "resend": {
            "of": NAME,
            "attempt": 1,
            "decision": {
                "stop": True,
                "decision": "stop",
                "why": "the tag allows it",
                "stopAt": None,
                "optedIn": False,
                "kind": "",
                "action": "",
            },
            "stop": {"made": True, "error": None, "pending": False},
        },
    }


@pytest.mark.parametrize("status", ["TIMED_OUT", "ABORTED"])
def test_alert_of_an_aborted_execution_is_unsent(machine: Machine, status: str) -> None:
    machine.failed(status=status, error=None, cause=None)
    machine.row(stop=None)
    (alert,) = machine.unsent()
    assert alert.last.status == status


def test_sent_alert_with_another_failed_step_is_not_unsent(machine: Machine) -> None:
    machine.failed(error=STEP_FAILED, cause="BuildReport: no bucket")
    machine.row(alert_id=None)
    assert machine.unsent() == []


@pytest.mark.parametrize("sent", [set(), {Channel.MAIL}, {Channel.CHAT}, {Channel.BUS}, {Channel.BUS, Channel.MAIL}])
def test_alert_that_a_channel_lacks_is_unsent(machine: Machine, sent: set[Channel]) -> None:
    machine.failed(error="AlertUnsentError", cause="chat: SNS.Publish failed: NotFound")
    machine.row(alert_id=FIRE.fire_id)
    for channel in sent:
        machine.world.alerts.settle(FIRE.fire_id, channel, sent_at=NOW)
    (alert,) = machine.unsent()
    assert alert.mark.sent == sent


def test_alert_that_each_channel_took_is_not_unsent(machine: Machine) -> None:
    machine.failed(status="ABORTED", error=None)
    machine.row(alert_id=None)
    for channel in PEOPLE:
        machine.world.alerts.settle(FIRE.fire_id, channel, sent_at=NOW)
    assert machine.unsent() == []


def test_silenced_alert_is_unsent_until_each_channel_has_it(machine: Machine) -> None:
    machine.failed(status="SUCCEEDED", error=None, cause=None)
    machine.row(alert_id=None)
    assert machine.unsent() == []
    machine.world.alerts.silence(FIRE.fire_id, why="brake b-1", execution=NAME, now=FAILED_AT)
    (alert,) = machine.unsent()
    assert (alert.mark.silenced, alert.under_way, alert.origin) == ("brake b-1", False, NAME)
    name = machine.send(alert)
    assert machine.unsent()[0].under_way
    machine.world.executions.end(name, "SUCCEEDED", at=NOW)
    assert [each.attempt for each in machine.unsent()] == [2]
    for channel in PEOPLE:
        machine.world.alerts.settle(FIRE.fire_id, channel, sent_at=NOW)
    assert machine.unsent() == []


def test_alert_silenced_before_the_span_is_left_out(machine: Machine) -> None:
    machine.failed(status="SUCCEEDED", error=None, cause=None)
    machine.world.alerts.silence(FIRE.fire_id, why="brake b-1", execution=NAME, now=FAILED_AT - 1.0)
    assert machine.unsent() == []


def test_older_untold_fire_is_unsent_beside_a_newer_told_one(
    machine: Machine,
) -> None:
    machine.failed()
    machine.row(fire_id="newer", alert_id="newer", stop=replace(STOPPED, fire_id="newer"))
    (alert,) = machine.unsent()
    assert composed(alert).action.startswith("alert sent late. Whether the training job was stopped is not known: ")


@pytest.mark.parametrize("job", ["other", "ber", ""])
def test_given_another_job_when_looked_for_then_nothing_is_found(machine: Machine, job: str) -> None:
    machine.failed()
    assert machine.unsent(job=job) == []
    assert len(machine.unsent(job="bert")) == 1


def test_execution_that_failed_before_the_span_is_left_out(machine: Machine) -> None:
    machine.failed(at=FAILED_AT - 1.0)
    assert machine.unsent() == []


@pytest.mark.parametrize(
    ("alerts", "stop", "found"),
    [
        (AlertPolicy(staged=(RULE,)), None, 0),
        (AlertPolicy(muted=("all",)), replace(STOPPED, decision="refused", made=False), 0),
        (AlertPolicy(muted=("all",)), STOPPED, 1),
        (AlertPolicy(muted=("all",)), replace(STOPPED, made=None), 1),
        (AlertPolicy(muted=("all",)), replace(STOPPED, fire_id="older", made=False), 1),
        (AlertPolicy(muted=("CPUBottleneck",)), None, 1),
    ],
)
def test_only_breakthroughs_of_staged_or_muted_rules_are_unsent(
    machine: Machine, alerts: AlertPolicy, stop: StopRecord | None, found: int
) -> None:
    machine.failed(job=replace(JOB, policy=JobPolicy(alerts=alerts)), status="ABORTED")
    machine.row(stop=stop)
    assert len(machine.unsent()) == found


def test_unsent_alert_in_quiet_hours_shows_its_send_time(machine: Machine) -> None:
    always = QuietHours(days=("sat", "sun", "mon", "tue", "wed", "thu", "fri"), start="00:00", end="23:59")
    machine.failed(job=replace(JOB, policy=JobPolicy(alerts=AlertPolicy(quiet_hours=(always,)))))
    machine.row(stop=replace(STOPPED, decision="refused", made=False))
    (alert,) = machine.unsent()
    assert (alert.routing.wait_until or 0.0) > NOW


@pytest.mark.parametrize("proof", [{"arn": "unknown:x"}, {"canary": True}])
def test_unsent_alert_of_a_canary_is_left_out(machine: Machine, proof: dict[str, Any]) -> None:
    machine.failed(job=replace(JOB, job="trainguard-canary-20260801-060000", **proof))
    assert machine.unsent() == []


@pytest.mark.parametrize("payload", [{}, {"job": "bert"}, {"kind": "report", "job": "bert"}])
def test_foreign_execution_does_not_disturb_the_listing(machine: Machine, payload: dict[str, Any]) -> None:
    machine.world.executions.start("by-hand", payload)
    machine.world.executions.end("by-hand", "FAILED", at=FAILED_AT)
    machine.failed()
    assert [alert.origin for alert in machine.unsent()] == [NAME]


def test_unreadable_row_makes_the_alert_claim_nothing_of_a_stop(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise StateCodecError("RuleState/bert/LowGPUUtilization", 0, "there is no Status where one is expected")

    machine.failed()
    monkeypatch.setattr(machine.world.rows, "load", broken)
    (alert,) = machine.unsent()
    assert composed(alert).attributes["Stopped"] == "unknown"


def test_alert_being_sent_is_under_way_and_no_retry_is_due(
    machine: Machine,
) -> None:
    machine.failed()
    machine.row()
    (first,) = machine.unsent()
    machine.send(first)
    (again,) = machine.unsent()
    assert again.under_way
    assert not first.under_way


def test_alert_sent_on_request_is_not_unsent(machine: Machine) -> None:
    machine.failed()
    machine.row()
    machine.world.executions.end(machine.send(machine.unsent()[0]), at=NOW)
    assert machine.unsent() == []


@pytest.mark.parametrize("since", [FAILED_AT, FAILED_AT + 60.0])
def test_next_attempt_after_failed_ones_has_its_own_name(machine: Machine, since: float) -> None:
    machine.failed()
    machine.row()
    for attempt in (1, 2, 3):
        (alert,) = machine.unsent(since) if attempt > 1 else machine.unsent()
        name = machine.send(alert)
        assert name == resend_name(NAME, attempt)
        machine.world.executions.end(name, "FAILED", at=FAILED_AT + 60.0 * attempt, error=NO_TOPIC[0], cause="still")
    (alert,) = machine.unsent(since)
    assert (alert.origin, alert.attempt, alert.last.cause) == (NAME, 4, "still")


def test_alert_of_a_redriven_execution_counts_as_sent(machine: Machine) -> None:
    machine.failed()
    machine.row()
    machine.world.executions.end(
        machine.send(machine.unsent()[0]), "FAILED", at=NOW, error=NO_TOPIC[0], cause=NO_TOPIC[1]
    )
    machine.world.executions.end(NAME, "SUCCEEDED", at=NOW)
    assert machine.unsent() == []


@pytest.mark.parametrize(
    ("stop", "said", "attribute"),
    [
        (STOPPED, "Training job stopped: the tag allows it.", "true"),
        (
            replace(STOPPED, made=None),
            f"{UNKNOWN}: the call was decided on, and its outcome was not recorded.",
            "unknown",
        ),
        (
            replace(STOPPED, made=False),
            "Stopping the training job failed: StopTrainingJob failed; the first execution of this fire has its error",
            "false",
        ),
        (
            replace(STOPPED, decision="refused", why="the stop switch is 'disabled'", made=False),
            "Training job not stopped: the stop switch is 'disabled'.",
            "false",
        ),
        (
            replace(STOPPED, decision="grace", why="its grace time of 10 min has begun", made=False),
            "Training job not stopped: the execution ended before the grace time did.",
            "false",
        ),
        (
            replace(STOPPED, fire_id="older"),
            f"{UNKNOWN}: the rule's row does not say what was decided for this fire.",
            "unknown",
        ),
        (
            None,
            f"{UNKNOWN}: the rule's row does not say what was decided for this fire.",
            "unknown",
        ),
    ],
)
def test_late_alert_claims_no_more_of_a_stop_than_its_row_says(
    machine: Machine, stop: StopRecord | None, said: str, attribute: str
) -> None:
    machine.failed(job=replace(JOB, policy=JobPolicy(stops=StopPolicy(grace_s=600.0))))
    machine.row(stop=stop)
    (alert,) = machine.unsent()
    found = composed(alert)
    assert f"Action: {said}\n" in found.text
    assert "\nSent late: this alert could not be sent when it came about.\n" in found.text
    assert "Sent late: " in found.chat["content"]["description"]
    assert found.action == f"alert sent late. {said}"
    assert (found.attributes["Stopped"], found.alert_id) == (attribute, FIRE.fire_id)
    assert (found.document["late"], found.document["stop"]["made"]) == (
        True,
        {"true": True, "false": False}.get(attribute),
    )


@pytest.mark.parametrize("kind", [AlertKind.ESCALATION, AlertKind.CLEARED, AlertKind.NOTICE])
def test_unsent_follow_up_is_found_under_its_own_id_without_stop(machine: Machine, kind: AlertKind) -> None:
    entry = replace(FIRE, finding=replace(FIRE.finding, severity=Severity.CRITICAL), kind=kind)
    machine.failed(entry)
    machine.row(alert_id=FIRE.fire_id)
    (alert,) = machine.unsent()
    assert composed(alert).alert_id == entry.alert_id
    assert "stopped" not in composed(alert).text


def test_late_alert_does_not_count_its_stop_again(
    machine: Machine,
) -> None:
    machine.failed()
    machine.row()
    payload: Any = machine.unsent()[0].resend[1]
    handed = {"fire": payload, "decision": payload["resend"]["decision"], "stop": payload["resend"]["stop"]}
    count_stop(AlertRequest.read(handed), machine.world.journal)
    assert machine.world.journal.entries == ()


def test_attempt_name_keeps_the_alert_id_of_a_long_name() -> None:
    entry = replace(
        FIRE,
        finding=replace(FIRE.finding, rule="OverallFrameworkMetrics", severity=Severity.CRITICAL),
        kind=AlertKind.ESCALATION,
    )
    names = {resend_name(execution_name(entry, "j" * 63), attempt) for attempt in (1, 2, 10, 99)}
    assert len(names) == 4
    assert all(len(name) <= NAME_LIMIT and entry.alert_id in name for name in names)
