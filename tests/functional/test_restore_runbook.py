"""The runbook for restoring tables, run as it stands in the documents on an account with a damaged table."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
SECTION = PAGE.split("## Restoring the tables\n")[1].split("\n## ")[0]
STEPS = re.findall(r"```(console|python)\n(.*?)```", SECTION, re.DOTALL)
TABLE = "TrainGuard-StorageJobs-1X"


@pytest.fixture
def dynamodb(monkeypatch: pytest.MonkeyPatch) -> "Iterator[DynamoDBClient]":
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("dynamodb")
        client.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "TrainingJobName", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "TrainingJobName", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        yield client


def put(client: "DynamoDBClient", job: str, status: str) -> None:
    client.put_item(TableName=TABLE, Item={"TrainingJobName": {"S": job}, "Status": {"S": status}})


def run_console(client: "DynamoDBClient", line: str) -> None:
    """Run a line of the AWS command line by the client library, which names operations and options alike."""
    words = shlex.split(line)
    assert words[:2] == ["aws", "dynamodb"]
    if words[2] == "wait":
        client.get_waiter(words[3].replace("-", "_")).wait(TableName=words[words.index("--table-name") + 1])  # type: ignore[call-overload]  # a name of the text
        return
    options: dict[str, Any] = {
        "".join(part.capitalize() for part in name[2:].split("-")): value
        for name, value in zip(words[3::2], words[4::2], strict=True)
    }
    getattr(client, words[2].replace("-", "_"))(**options)


def test_runbook_brings_a_damaged_table_back(dynamodb: "DynamoDBClient") -> None:
    for job in ("kept", "damaged", "deleted"):
        put(dynamodb, job, "InProgress")
    copied = False
    for kind, text in STEPS:
        step = text.replace("<JobsTable>", TABLE)
        if kind == "python":
            exec(compile(step, "docs/operations.md", "exec"), {})  # noqa: S102 - the runbook's own step
            continue
        for line in step.splitlines():
            run_console(dynamodb, line)
            if not copied:
                copied = True
                put(dynamodb, "damaged", "?")
                put(dynamodb, "later", "InProgress")
                dynamodb.delete_item(TableName=TABLE, Key={"TrainingJobName": {"S": "deleted"}})
    items = {each["TrainingJobName"]["S"]: each["Status"]["S"] for each in dynamodb.scan(TableName=TABLE)["Items"]}
    assert items == dict.fromkeys(("kept", "damaged", "deleted", "later"), "InProgress")
    assert dynamodb.list_tables()["TableNames"] == [TABLE]
