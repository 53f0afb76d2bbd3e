"""The statements for the console: each reads a key of table or index, asks for columns that are there, and finds rows.

moto knows neither indexes nor ranges in PartiQL, so a statement's parts are asked for by Query, as DynamoDB runs it.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.functional.tables import JOBS, RULE_STATE
from tests.functional.worlds import MotoUnderTest
from trainguard.core.finding import Finding, Severity, Status
from trainguard.core.records import JobRecord, RuleRow
from trainguard.core.timestamps import epoch_from_iso

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
STATEMENT = re.compile(
    r'-- (?P<says>.+)\nSELECT (?P<columns>.+?) FROM "<(?P<table>\w+)Table>"(?:\."(?P<index>\w+)")?'
    r" WHERE (?P<where>.+?)(?P<newest> ORDER BY FiredAt DESC)?\n"
)
CONDITION = re.compile(r"\"?(\w+)\"? (=|>=) '([^']+)'")
DAY_S = 86_400.0
SINCE = epoch_from_iso("2026-11-28T00:00:00Z")


def columns_of(world: MotoUnderTest, table: str, name: str) -> set[str]:
    """Return what an index has of each item: its keys, the table's, and what it is given."""
    described = world.dynamodb.describe_table(TableName=table)["Table"]
    (index,) = (each for each in described["GlobalSecondaryIndexes"] if each["IndexName"] == name)
    keys = {each["AttributeName"] for each in (*described["KeySchema"], *index["KeySchema"])}
    return keys | set(index["Projection"].get("NonKeyAttributes", ()))


def answer(world: MotoUnderTest, said: Mapping[str, str | None]) -> list[list[str | None]]:
    """Return the columns that a statement selects, of what it finds."""
    conditions = CONDITION.findall(said["where"] or "")
    assert CONDITION.sub("", said["where"] or "").replace(" AND ", "") == "", "a condition that is none of a key"
    asked = {"IndexName": said["index"]} if said["index"] else {}
    table = {"Jobs": JOBS, "RuleState": RULE_STATE}[said["table"] or ""]
    columns = (said["columns"] or "").replace('"', "").split(", ")
    if said["index"]:
        assert set(columns) <= columns_of(world, table, said["index"]), "the index lacks a column, and shows none"
    found = world.dynamodb.query(
        TableName=table,
        KeyConditionExpression=" AND ".join(f"#c{n} {each[1]} :c{n}" for n, each in enumerate(conditions)),
        ExpressionAttributeNames={f"#c{n}": each[0] for n, each in enumerate(conditions)},
        ExpressionAttributeValues={f":c{n}": {"S": each[2]} for n, each in enumerate(conditions)},
        ScanIndexForward=not said["newest"],
        **asked,  # type: ignore[arg-type]  # a name of an index
    )
    return [[item.get(column, {}).get("S") for column in columns] for item in found["Items"]]


def test_statements_find_rows_by_key_with_their_columns(moto_world: MotoUnderTest) -> None:
    for job, rule, status, fired_at in (
        ("llm", "A", Status.FIRED, SINCE - DAY_S),
        ("llm", "B", Status.FIRED, SINCE + DAY_S),
        ("bert", "A", Status.OK, SINCE + 60.0),
        ("bert", "B", Status.OK, None),
        ("my-training-job", "A", Status.FIRED, SINCE),
    ):
        severity = Severity.HIGH if status is Status.FIRED else None
        finding = Finding(rule, None, "p95 is 23 %.", severity=severity)
        moto_world.rows.publish([RuleRow(job, finding, status, evaluated_through=SINCE, fired_at=fired_at)])
    fast = JobRecord("llm", "arn", "bucket", "", active=True, polled_fast=True)
    moto_world.jobs.register(fast)
    moto_world.jobs.register(replace(fast, job="slow", polled_fast=False))

    said = [each.groupdict() for each in STATEMENT.finditer(DOCUMENT.read_text(encoding="utf-8"))]
    found = {each["says"]: answer(moto_world, each) for each in said}
    before, now, after = "2026-11-27T00:00:00.000Z", "2026-11-28T00:00:00.000Z", "2026-11-29T00:00:00.000Z"
    assert found == {
        "What fires now, newest first": [
            [after, "high", "llm", "B"],
            [now, "high", "my-training-job", "A"],
            [before, "high", "llm", "A"],
        ],
        "What has fired since a time, and still does": [
            [now, "high", "my-training-job", "A", None],
            [after, "high", "llm", "B", None],
        ],
        "What had fired and is over, newest first": [["2026-11-28T00:01:00.000Z", "bert", "A", None]],
        "One job's rows": [["A", "FIRED", "high", "p95 is 23 %.", now, None]],
        "Jobs that are evaluated each minute": [["llm"]],
    }
