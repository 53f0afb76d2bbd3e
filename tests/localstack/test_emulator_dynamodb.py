"""DynamoDB on the emulator: what the product's conditional writes rely on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.types import Binary, TypeDeserializer
from botocore.exceptions import ClientError

from tests.localstack.emulator_kit import make_table

if TYPE_CHECKING:
    from emulator.launch import Emulator

pytestmark = pytest.mark.localstack


@pytest.fixture(scope="module")
def table(emulator: Emulator) -> Any:
    return make_table(emulator, "items")


def test_eight_concurrent_writers_write_each_version_once(emulator: Emulator, table: Any) -> None:
    table.put_item(Item={"id": "race", "Version": 0, "Writers": []})

    def write_5_times(writer: int) -> int:
        own, won = emulator.resource("dynamodb").Table("items"), 0
        while won < 5:
            version = own.get_item(Key={"id": "race"}, ConsistentRead=True)["Item"]["Version"]
            try:
                own.update_item(
                    Key={"id": "race"},
                    UpdateExpression="SET Version = :next, Writers = list_append(Writers, :writer)",
                    ConditionExpression="Version = :seen",
                    ExpressionAttributeValues={":next": version + 1, ":seen": version, ":writer": [writer]},
                )
            except own.meta.client.exceptions.ConditionalCheckFailedException:
                continue
            won += 1
        return won

    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(write_5_times, range(8)))

    item = table.get_item(Key={"id": "race"})["Item"]
    assert sum(wins) == item["Version"] == len(item["Writers"]) == 40


def test_failed_condition_returns_nested_binary_whole(emulator: Emulator, table: Any) -> None:
    old = {
        "id": "binary",
        "Window": Binary(bytes(range(256))),
        "Outbox": [{"Fire": Binary(b"\x00\xff"), "Sent": False}],
        "Cursor": {"Minute": 60, "Packed": Binary(b"\x01")},
    }
    table.put_item(Item=old)

    with pytest.raises(ClientError) as refused:
        table.put_item(
            Item={"id": "binary"},
            ConditionExpression="attribute_not_exists(id)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )

    response: Any = refused.value.response
    assert response["Error"]["Code"] == "ConditionalCheckFailedException"
    assert {name: TypeDeserializer().deserialize(value) for name, value in response["Item"].items()} == old


def test_item_holds_390_kb_of_binary(table: Any) -> None:
    table.put_item(Item={"id": "large", "Window": Binary(bytes(390_000))})

    assert len(bytes(table.get_item(Key={"id": "large"})["Item"]["Window"])) == 390_000
    with pytest.raises(ClientError, match="Item size"):
        table.put_item(Item={"id": "larger", "Window": Binary(bytes(420_000))})


def test_transaction_with_a_failed_condition_writes_nothing(emulator: Emulator, table: Any) -> None:
    table.put_item(Item={"id": "taken"})
    put = {"TableName": "items", "ConditionExpression": "attribute_not_exists(id)"}

    with pytest.raises(ClientError, match="TransactionCanceled"):
        emulator.client("dynamodb").transact_write_items(
            TransactItems=[
                {"Put": put | {"Item": {"id": {"S": "free"}}}},
                {"Put": put | {"Item": {"id": {"S": "taken"}}}},
            ]
        )

    assert "Item" not in table.get_item(Key={"id": "free"})
