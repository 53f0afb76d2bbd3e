"""What executions of the fire state machine leave in a rule's row, on DynamoDB: of which fire, and what of it."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from infra.constructs import report_machine
from infra.constructs.fire_machine import definition
from tests.functional.tables import RULE_STATE
from tests.functional.worlds import MotoUnderTest
from tests.infra.states_language import Ending, Execution, TaskError
from trainguard.aws.dynamodb.fire_path import DynamoFireRows
from trainguard.core.finding import Finding
from trainguard.core.records import RuleRow, Status
from trainguard.core.timestamps import epoch_from_iso
from trainguard.stack.actions.fire_row import FireRecord, record
from trainguard.stack.actions.request import FireInput, StopResult, fire_of_call
from trainguard.stack.actions.stop_job import OVERTAKEN, StopOutcome, carry_out
from trainguard.stack.actions.stop_resources import ResourceDecision

JOB, RULE = "bert", "LowGPUUtilization"
FIRED_AT = "2026-11-21T08:00:00.000Z"
BEFORE, THEN, AFTER = (epoch_from_iso(FIRED_AT) + later_s for later_s in (-60.0, 0.0, 60.0))
FIRE: dict[str, Any] = {
    "kind": "fire",
    "job": JOB,
    "jobArn": "arn:aws:sagemaker:eu-west-1:111122223333:training-job/bert",
    "rule": RULE,
    "fireId": "first",
    "episode": 0,
    "node": "algo-1",
    "reason": "gpu1 is low.",
    "firedAt": FIRED_AT,
    "reportUri": "s3://profiles/report.json",
    "policy": {"alerts": {"staged": [], "muted": []}},
}
NEWER = FIRE | {"fireId": "second", "episode": 1, "firedAt": "2026-11-21T09:00:00.000Z", "reason": "gpu2 is low."}
STOP = {"stop": True, "decision": "stop", "why": "the tag allows it", "stopAt": None, "optedIn": True}
OF_ALERTS = {"Action", "ActionAt", "AlertId"}
OF_STOPS = {"StopDecision", "StopWhy", "StopAt", "StopFireId", "StopMade"}


class Table:
    """The row of the fire's job and rule, as executions find it and leave it."""

    def __init__(self, world: MotoUnderTest) -> None:
        self._world = world
        self.rows = DynamoFireRows(client=world.dynamodb, table=RULE_STATE)
        self.stopped = 0
        self.on_stop: Callable[[], None] = lambda: None

    def publish(self, status: Status, watermark_s: float | None) -> None:
        """Let the scheduler publish the row."""
        self._world.rows.publish(
            [RuleRow(JOB, Finding(RULE, None, "published."), status, evaluated_through=watermark_s)]
        )

    def row(self) -> dict[str, Any]:
        """Return the row with plain values."""
        item = self._world.row(JOB, RULE)
        return {name: next(iter(value.values())) for name, value in item.items()}

    def run(self, fire: Mapping[str, Any] = FIRE, **answers: Any) -> Ending:
        """Run an execution whose writes reach the table; ``answers`` replace those of other tasks."""
        return Execution(definition(), self._tasks(fire) | answers).run(dict(fire))

    def stop(self, fire: FireInput, decision: ResourceDecision) -> StopResult:
        """Stop the job."""
        del fire, decision
        self.stopped += 1
        self.on_stop()
        return StopResult(made=True)

    def is_stopped(self, fire: FireInput, decision: ResourceDecision) -> bool:
        """Say that nothing was stopped."""
        raise AssertionError((fire, decision))

    def carry_out(self, fire: Mapping[str, Any] = FIRE) -> StopOutcome:
        """Carry out the decision to stop."""
        decision = msgspec.convert(STOP, ResourceDecision)
        return carry_out(FireInput.read(fire), decision, self.rows, self, now=epoch_from_iso(FIRED_AT))

    def _tasks(self, fire: Mapping[str, Any]) -> dict[str, Any]:
        def record_fire(arguments: Any) -> Any:
            payload = arguments["Payload"]
            record(
                msgspec.convert(payload | {"fire": fire_of_call(payload)}, FireRecord),
                self.rows,
                now=epoch_from_iso(FIRED_AT),
            )
            return {"Payload": {}}

        def report(arguments: Any) -> Any:
            place = {"reportUri": f"s3://profiles/{fire['fireId']}.html"}
            tasks = {"BuildFromState": lambda _: {"Payload": place}, "RecordFire": record_fire}
            assert Execution(report_machine.definition(), tasks).run(arguments["Input"]) == Ending("SUCCEEDED")
            return {}

        named = fire.get("alertId", fire["fireId"])
        alert: dict[str, Any] = {
            "sent": True,
            "waitUntil": None,
            "unsent": [],
            "faults": [],
            "outcome": {"action": f"sent {named}", "alertId": named},
        }
        return {
            **dict.fromkeys(("MarkFired", "RecordAlert"), record_fire),
            "DecideStop": lambda _: {"Payload": STOP},
            "StopJob": lambda given: {"Payload": answer(self.carry_out(given["Payload"]["fire"]))},
            "SendAlert": lambda _: {"Payload": alert},
            "StartReport": report,
        }


def answer(outcome: StopOutcome) -> Any:
    """Return a function's answer as Step Functions reads it."""
    return msgspec.json.decode(msgspec.json.encode(outcome))


@pytest.fixture
def table(moto_world: MotoUnderTest) -> Table:
    return Table(moto_world)


def test_fire_without_a_row_writes_all_of_the_fire(table: Table) -> None:
    assert table.run() == Ending("SUCCEEDED")
    row = table.row()
    assert (row["Status"], row["FireId"], row["FireEpisode"], row["FiredAt"]) == ("FIRED", "first", "0", FIRED_AT)
    assert (row["StopDecision"], row["StopMade"], row["StopFireId"]) == ("stop", True, "first")
    assert (row["Action"], row["AlertId"]) == ("sent first", "first")
    assert row["ReportUri"] == "s3://profiles/first.html"


@pytest.mark.parametrize(
    ("status", "watermark_s", "marked"),
    [
        (Status.OK, None, True),
        (Status.OK, BEFORE, True),
        (Status.WARMING_UP, BEFORE, True),
        (Status.OK, THEN, True),
        (Status.FIRED, AFTER, True),
        (Status.OK, AFTER, False),
        (Status.ERROR, AFTER, False),
    ],
)
def test_fire_marks_a_published_row_unless_it_knows_better(
    table: Table, status: Status, watermark_s: float | None, marked: bool
) -> None:
    table.publish(status, watermark_s)
    assert table.run() == Ending("SUCCEEDED")
    row = table.row()
    assert (row["Status"], row["Reason"]) == (("FIRED", FIRE["reason"]) if marked else (status.value, "published."))
    assert (row["FireId"], row["Action"], row["StopFireId"]) == ("first", "sent first", "first")


def test_marked_fire_leaves_nothing_of_the_previous(table: Table) -> None:
    table.run()
    seen: list[dict[str, Any]] = []

    def decide(_: Any) -> Any:
        seen.append(table.row())
        return {"Payload": STOP}

    table.run(NEWER, DecideStop=decide)
    assert seen[0]["FireId"] == "second"
    assert not OF_ALERTS & set(seen[0])
    assert table.row()["AlertId"] == "second"


def test_continuing_older_fire_leaves_a_newer_row_and_no_stop(
    table: Table,
) -> None:
    during: list[dict[str, Any]] = []

    def decide(_: Any) -> Any:
        table.run(NEWER)
        during.append(table.row())
        return {"Payload": STOP}

    assert table.run(DecideStop=decide) == Ending("SUCCEEDED")
    assert table.row() == during[0]
    assert (table.row()["FireId"], table.row()["StopFireId"], table.stopped) == ("second", "second", 1)


def test_older_fire_beginning_leaves_a_newer_row(table: Table) -> None:
    table.run(NEWER)
    before = table.row()
    assert table.run() == Ending("SUCCEEDED")
    assert table.row() == before
    assert table.stopped == 1


def test_first_fire_of_a_registered_job_takes_over_the_row(
    table: Table,
) -> None:
    table.run(NEWER | {"jobArn": "unknown:bert"})
    table.run()
    assert (table.row()["FireId"], table.row()["FireEpisode"], table.row()["AlertId"]) == ("first", "0", "first")


@pytest.mark.parametrize("kind", ["escalation", "cleared"])
def test_later_notifications_keep_alert_id_and_stop(table: Table, kind: str) -> None:
    table.run()
    before = table.row()
    assert table.run(FIRE | {"kind": kind, "alertId": f"first-{kind}"}) == Ending("SUCCEEDED")
    row = table.row()
    assert row["Action"] == f"sent first-{kind}"
    assert {name: row[name] for name in (*OF_STOPS, "AlertId", "FireId")} == {
        name: before[name] for name in (*OF_STOPS, "AlertId", "FireId")
    }


@pytest.mark.parametrize("kind", ["escalation", "cleared"])
def test_notification_of_the_previous_fire_keeps_the_newer_row(table: Table, kind: str) -> None:
    table.run()
    table.run(NEWER)
    before = table.row()
    assert table.run(FIRE | {"kind": kind, "alertId": f"first-{kind}"}) == Ending("SUCCEEDED")
    assert table.row() == before


def test_warning_says_in_the_row_what_is_to_come(table: Table) -> None:
    grace = STOP | {"stop": False, "decision": "grace", "stopAt": "2026-11-21T08:10:00.000Z"}
    decisions = iter([grace, STOP])
    seen: list[dict[str, Any]] = []

    def decide(_: Any) -> Any:
        seen.append(table.row())
        return {"Payload": next(decisions)}

    def carried_out(given: Any) -> Any:
        stop = given["Payload"]["decision"]["stop"]
        return {
            "Payload": answer(table.carry_out()) if stop else {"decision": grace, "stop": {"made": False}, "faults": []}
        }

    assert table.run(DecideStop=decide, StopJob=carried_out) == Ending("SUCCEEDED")
    assert (seen[1]["Action"], "AlertId" in seen[1]) == ("sent first", False)
    assert table.row()["AlertId"] == "first"


def test_stop_call_under_way_is_in_the_row_without_outcome(table: Table) -> None:
    table.run()
    during: list[dict[str, Any]] = []
    table.on_stop = lambda: during.append(table.row())
    table.run(NEWER)
    assert (during[0]["StopDecision"], during[0]["StopFireId"], "StopMade" in during[0]) == ("stop", "second", False)
    assert table.row()["StopMade"] is True


def down(_: Any) -> Any:
    raise TaskError("DynamoDB.AmazonDynamoDBException", "it is down")


def test_failed_mark_without_a_row_begins_none_and_stops_nothing(table: Table) -> None:
    ending = table.run(MarkFired=down)
    assert (table.row(), table.stopped) == ({}, 0)
    assert (ending.cause or "").startswith("MarkFired: ")


def test_failed_mark_on_a_row_without_a_fire_says_what_was_done(table: Table) -> None:
    table.publish(Status.OK, BEFORE)
    table.run(MarkFired=down)
    assert (table.row()["Action"], table.row()["StopFireId"]) == ("sent first", "first")


def test_row_older_than_episodes_is_marked_by_a_fire(table: Table, moto_world: MotoUnderTest) -> None:
    moto_world.update_row(JOB, RULE, {"FireId": {"S": "of-old"}, "Status": {"S": "FIRED"}})
    assert table.run() == Ending("SUCCEEDED")
    assert table.row()["FireId"] == "first"


def test_repeated_steps_change_nothing_and_stop_once(table: Table) -> None:
    table.run()
    before = table.row()
    table.rows.mark(FireInput.read(FIRE))
    assert table.carry_out().stop == StopResult(made=True)
    assert (table.row(), table.stopped) == (before, 1)


def test_repeat_of_a_stop_without_outcome_calls_again(table: Table) -> None:
    def dies() -> None:
        raise MemoryError

    table.rows.mark(FireInput.read(FIRE))
    table.on_stop = dies
    with pytest.raises(MemoryError):
        table.carry_out()
    assert "StopMade" not in table.row()
    table.on_stop = lambda: None
    assert table.carry_out().stop == StopResult(made=True)
    assert (table.row()["StopMade"], table.stopped) == (True, 2)


def test_stop_of_an_older_fire_is_refused(table: Table) -> None:
    table.run(NEWER)
    outcome = table.carry_out()
    assert (outcome.decision.decision, outcome.decision.why, outcome.faults) == ("refused", OVERTAKEN, ())
    assert (table.row()["StopFireId"], table.stopped) == ("second", 1)
