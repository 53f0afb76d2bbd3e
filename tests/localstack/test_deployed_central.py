"""The central stack on the emulator: a statement on its bus becomes rows that a query finds, and a page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from emulator.deploy import deploy
from tests.localstack.assemblies import CENTRAL
from tests.localstack.emulator_kit import invoke, until
from tests.localstack.stack import PATIENCE_S
from tests.support.fleets import MONDAY, found, job, report_row
from trainguard.aws.dynamodb.central import statement_of
from trainguard.core.finding import Status

if TYPE_CHECKING:
    from emulator.launch import Emulator
    from tests.localstack.assemblies import Written

pytestmark = pytest.mark.localstack


@pytest.fixture(scope="module")
def outputs(emulator: Emulator, written: Written, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return deploy(emulator, assembly=written(CENTRAL), home=tmp_path_factory.mktemp("central"))


def test_stated_finding_is_asked_for_drawn_and_counted(emulator: Emulator, outputs: dict[str, str]) -> None:
    starved = replace(job("starved", began=MONDAY), owners={"team": "vision"})
    fires = replace(found(starved), status=Status.FIRED, fired_at=MONDAY + 60.0)
    said = statement_of(starved, [report_row(starved, lost=60.0), fires], stack="A", region="eu-west-1", now=MONDAY)
    entry = {"Source": "trainguard", "DetailType": "TrainGuard Statement", "EventBusName": outputs["CentralBusArn"]}
    answer = emulator.client("events").put_events(Entries=[{**entry, "Detail": msgspec.json.encode(said).decode()}])
    assert answer["FailedEntryCount"] == 0

    def firing(index: str, key: str, value: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = emulator.client("dynamodb").query(
            TableName=outputs["RuleStateTable"],
            IndexName=index,
            KeyConditionExpression="#key = :value",
            ExpressionAttributeNames={"#key": key},
            ExpressionAttributeValues={":value": {"S": value}},
        )["Items"]
        return rows

    rows = until(lambda: firing("ByStatus", "Status", "FIRED"), timeout_s=PATIENCE_S, what="the statement's row")
    name = f"{emulator.account}/eu-west-1/starved"
    assert [row["TrainingJobName"]["S"] for row in rows] == [name]
    assert [row["TrainingJobName"]["S"] for row in firing("ByTeam", "Team", "vision")] == [name]

    functions = emulator.client("lambda").list_functions()["Functions"]
    names = {
        each["Environment"]["Variables"].get("POWERTOOLS_SERVICE_NAME"): each["FunctionName"] for each in functions
    }
    until(
        lambda: emulator.client("dynamodb").scan(TableName=outputs["JobsTable"])["Items"],
        timeout_s=PATIENCE_S,
        what="the job's item",
    )
    drawn, error = invoke(emulator, names["draw_fleet"], {})
    assert (drawn, error) == ({"jobs": 1}, None)
    bucket, _, key = outputs["FleetPage"].removeprefix("s3://").partition("/")
    page = emulator.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    assert name in page

    asked = {"asker": "arn", "fire_id": "f1", "job": "starved"}
    stop_limit = outputs["StopLimitFunction"]
    admitted = [
        invoke(emulator, stop_limit, each)[0]["admitted"] for each in (asked, asked | {"fire_id": "f2", "job": "b"})
    ]
    assert admitted == [True, False]
