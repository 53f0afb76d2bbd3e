"""What executions of the fire state machine leave in a rule's row, on DynamoDB: of which fire, and what of it."""

from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.constructs.fire_machine import definition
from tests.functional.tables import RULE_STATE
from tests.functional.worlds import MotoUnderTest
from tests.infra.states_language import Ending, Execution, TaskError
from trainguard.adapters.timestamps import epoch_from_iso
from trainguard.finding import Finding
from trainguard.records import RuleRow, Status

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
        self.stopped = 0

    def publish(self, status: Status, watermark_s: float | None) -> None:
        """Let the tick publish the row."""
        self._world.rows.publish(
            [RuleRow(JOB, Finding(RULE, None, "published."), status, evaluated_through=watermark_s)]
        )

    def row(self) -> dict[str, Any]:
        """Return the row with plain values."""
        item = self._world.row(JOB, RULE)
        return {name: next(iter(value.values())) for name, value in item.items()}

    def run(self, fire: Mapping[str, Any] = FIRE, **answers: Any) -> Ending:
        """Run an execution whose writes reach the table; ``answers`` replace those of other tasks."""
        tasks = self._tasks(fire) | answers
        return Execution(self._definition(), tasks).run(dict(fire))

    def update(self, arguments: Mapping[str, Any]) -> Any:
        """Answer for DynamoDB as Step Functions hands it on."""
        try:
            return self._world.dynamodb.update_item(**arguments)
        except ClientError as error:
            raise TaskError(f"DynamoDB.{error.response['Error']['Code']}", str(error)) from error

    @staticmethod
    def _definition() -> dict[str, Any]:
        found: dict[str, Any] = _replaced(definition())
        return found

    def _tasks(self, fire: Mapping[str, Any]) -> dict[str, Any]:
        def stop(_: Any) -> Any:
            self.stopped += 1
            return {}

        alert = {
            **dict.fromkeys(("subject", "text", "json", "chat"), "said"),
            "alertId": fire.get("alertId", fire["fireId"]),
            "action": f"told of {fire.get('alertId', fire['fireId'])}",
            "document": {},
            "attributes": {"Kind": {"DataType": "String", "StringValue": fire["kind"]}},
            "send": True,
            "waitUntil": None,
            "waiting": "",
        }
        written = (
            "MarkFired", "NameFire", "RecordDecision", "RecordStop", "RecordWaiting", "RecordOutcome", "RecordNews",
            "RecordReport",
        )  # fmt: skip
        return {
            **dict.fromkeys(written, self.update),
            "DecideStop": lambda _: {"Payload": STOP},
            "StopTrainingJob": stop,
            "ComposeAlert": lambda _: {"Payload": alert},
            **dict.fromkeys(("EmitEvent", "PublishAlert", "PublishChat"), lambda _: {}),
            "BuildReport": lambda _: {"Payload": {"reportUri": f"s3://profiles/{fire['fireId']}.html"}},
        }


def _replaced(value: Any) -> Any:
    """Return a definition with the table's name put in."""
    if isinstance(value, dict):
        return {name: _replaced(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_replaced(part) for part in value]
    return RULE_STATE if value == "${RuleStateTable}" else value


@pytest.fixture
def table(moto_world: MotoUnderTest) -> Table:
    return Table(moto_world)


def test_given_no_row_when_a_rule_fires_then_the_row_says_all_of_the_fire(table: Table) -> None:
    assert table.run() == Ending("SUCCEEDED")
    row = table.row()
    assert (row["Status"], row["FireId"], row["FireEpisode"], row["FiredAt"]) == ("FIRED", "first", "0", FIRED_AT)
    assert (row["StopDecision"], row["StopMade"], row["StopFireId"]) == ("stop", True, "first")
    assert (row["Action"], row["AlertId"]) == ("told of first", "first")
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
def test_given_a_published_row_when_a_rule_fires_then_it_is_marked_unless_it_knows_better(
    table: Table, status: Status, watermark_s: float | None, marked: bool
) -> None:
    table.publish(status, watermark_s)
    assert table.run() == Ending("SUCCEEDED")
    row = table.row()
    assert (row["Status"], row["Reason"]) == (("FIRED", FIRE["reason"]) if marked else (status.value, "published."))
    assert (row["FireId"], row["Action"], row["StopFireId"]) == ("first", "told of first", "first")


def test_given_a_new_fire_when_it_is_marked_then_nothing_of_what_became_of_the_one_before_is_left(table: Table) -> None:
    table.run()
    seen: list[dict[str, Any]] = []

    def decide(_: Any) -> Any:
        seen.append(table.row())
        return {"Payload": STOP}

    table.run(NEWER, DecideStop=decide)
    assert seen[0]["FireId"] == "second"
    assert not OF_ALERTS & set(seen[0])
    assert table.row()["AlertId"] == "second"


def test_given_a_newer_fire_when_an_older_one_goes_on_then_it_leaves_the_row_alone_and_stops_nothing(
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


def test_given_a_newer_fire_when_an_older_one_begins_then_it_leaves_the_row_alone(table: Table) -> None:
    table.run(NEWER)
    before = table.row()
    assert table.run() == Ending("SUCCEEDED")
    assert table.row() == before
    assert table.stopped == 1


def test_given_fires_of_a_job_that_sagemaker_did_not_know_when_it_does_then_its_own_first_fire_takes_the_row(
    table: Table,
) -> None:
    table.run(NEWER | {"jobArn": "unknown:bert"})
    table.run()
    assert (table.row()["FireId"], table.row()["FireEpisode"], table.row()["AlertId"]) == ("first", "0", "first")


@pytest.mark.parametrize("kind", ["escalation", "cleared"])
def test_given_what_is_told_of_a_fire_later_when_recorded_then_its_alert_id_and_stop_stay(
    table: Table, kind: str
) -> None:
    table.run()
    before = table.row()
    assert table.run(FIRE | {"kind": kind, "alertId": f"first-{kind}"}) == Ending("SUCCEEDED")
    row = table.row()
    assert row["Action"] == f"told of first-{kind}"
    assert {name: row[name] for name in (*OF_STOPS, "AlertId", "FireId")} == {
        name: before[name] for name in (*OF_STOPS, "AlertId", "FireId")
    }


@pytest.mark.parametrize("kind", ["escalation", "cleared"])
def test_given_a_newer_fire_when_something_is_told_of_the_one_before_then_its_row_stays(
    table: Table, kind: str
) -> None:
    table.run()
    table.run(NEWER)
    before = table.row()
    assert table.run(FIRE | {"kind": kind, "alertId": f"first-{kind}"}) == Ending("SUCCEEDED")
    assert table.row() == before


def test_given_a_decision_to_stop_when_the_call_is_under_way_then_the_row_says_so_and_no_outcome(table: Table) -> None:
    table.run()
    during: list[dict[str, Any]] = []

    def stop(_: Any) -> Any:
        during.append(table.row())
        return {}

    table.run(NEWER, StopTrainingJob=stop)
    assert (during[0]["StopDecision"], during[0]["StopFireId"], "StopMade" in during[0]) == ("stop", "second", False)
    assert table.row()["StopMade"] is True


def down(_: Any) -> Any:
    raise TaskError("DynamoDB.AmazonDynamoDBException", "it is down")


def test_given_a_mark_that_failed_when_there_is_no_row_then_none_is_begun_and_nothing_is_stopped(table: Table) -> None:
    ending = table.run(MarkFired=down)
    assert (table.row(), table.stopped) == ({}, 0)
    assert (ending.cause or "").startswith("MarkFired: ")


def test_given_a_mark_that_failed_when_the_row_names_no_fire_then_it_says_what_was_done(table: Table) -> None:
    table.publish(Status.OK, BEFORE)
    table.run(MarkFired=down)
    assert (table.row()["Action"], table.row()["StopFireId"]) == ("told of first", "first")


def test_given_a_row_of_a_time_before_episodes_stood_in_it_when_a_rule_fires_then_it_is_marked(
    table: Table, moto_world: MotoUnderTest
) -> None:
    moto_world.update_row(JOB, RULE, {"FireId": {"S": "of-old"}, "Status": {"S": "FIRED"}})
    assert table.run() == Ending("SUCCEEDED")
    assert table.row()["FireId"] == "first"
