"""One DynamoDB table behind few verbs; conditions that do not hold are answers, everything else is an error."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code, translated
from trainguard.core.errors import StateCodecError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue
    from mypy_boto3_dynamodb.type_defs import (
        PutItemInputTypeDef,
        QueryInputPaginateTypeDef,
        UpdateItemInputTypeDef,
    )

    from trainguard.aws.dynamodb.columns import Item

_SERVICE = "DynamoDB"


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression with its placeholders: names with ``#``, values with ``:``, none both in update and condition."""

    text: str
    names: Mapping[str, str] = field(default_factory=dict)
    values: "Mapping[str, AttributeValue]" = field(default_factory=dict)

    def joined(self, other: "Expression") -> "Expression":
        """Return this text followed by the other's, with the placeholders of both."""
        return Expression(self.text + other.text, {**self.names, **other.names}, {**self.values, **other.values})


def assignments(columns: "Mapping[str, AttributeValue | None]") -> Expression:
    """Return the update that sets the columns, and removes those that are None."""
    names = {f"#c{index}": name for index, name in enumerate(columns)}
    values = {f":c{index}": value for index, value in enumerate(columns.values()) if value is not None}
    sets = ", ".join(f"#c{value[2:]} = {value}" for value in values)
    removals = ", ".join(name for name in names if f":c{name[2:]}" not in values)
    clauses = [f"SET {sets}"] if sets else []
    clauses += [f"REMOVE {removals}"] if removals else []
    return Expression(" ".join(clauses), names, values)


@contextmanager
def decoding(item: str, codec: int = 0) -> Iterator[None]:
    """Turn a column that is missing, or of another type or content, into StateCodecError that names the item."""
    try:
        yield
    except KeyError as error:
        raise StateCodecError(item, codec, f"there is no {error} where one is expected") from error
    except ValueError as error:
        raise StateCodecError(item, codec, str(error)) from error


class Table:
    """One table."""

    def __init__(self, *, client: "DynamoDBClient", name: str) -> None:
        self._client = client
        self._name = name

    def get(self, key: "Item") -> "Item | None":
        """Return the item, strongly consistent, or None."""
        with translated(_SERVICE, "GetItem"):
            return self._client.get_item(TableName=self._name, Key=key, ConsistentRead=True).get("Item")

    def put(self, item: "Item", condition: Expression) -> bool:
        """Write the item whole if the condition holds; return whether it was written."""
        request: PutItemInputTypeDef = {
            "TableName": self._name,
            "Item": item,
            "ConditionExpression": condition.text,
            "ExpressionAttributeNames": condition.names,
        }
        if condition.values:
            request["ExpressionAttributeValues"] = condition.values
        with translated(_SERVICE, "PutItem"), _Condition() as condition_held:
            self._client.put_item(**request)
        return condition_held.holds

    def update(self, key: "Item", update: Expression, condition: Expression) -> bool:
        """Change the item if the condition holds; return whether it was changed."""
        return self.changed(key, update, condition) is not None

    def changed(self, key: "Item", update: Expression, condition: Expression) -> "Item | None":
        """Change the item if the condition holds; return it as it was, empty where there was none, else None."""
        placeholders = update.joined(condition)
        request: UpdateItemInputTypeDef = {
            "TableName": self._name,
            "Key": key,
            "UpdateExpression": update.text,
            "ExpressionAttributeNames": placeholders.names,
            "ExpressionAttributeValues": placeholders.values,
            "ConditionExpression": condition.text,
            "ReturnValues": "ALL_OLD",
        }
        with translated(_SERVICE, "UpdateItem"), _Condition():
            return self._client.update_item(**request).get("Attributes", {})
        return None

    def partition(self, column: str, value: str, *, index: str | None = None) -> "Iterator[Item]":
        """Iterate over a partition's items in sort order; strongly consistent but for an index."""
        request: QueryInputPaginateTypeDef = {
            "TableName": self._name,
            "KeyConditionExpression": "#partition = :partition",
            "ExpressionAttributeNames": {"#partition": column},
            "ExpressionAttributeValues": {":partition": {"S": value}},
        }
        if index is None:
            request["ConsistentRead"] = True
        else:
            request["IndexName"] = index
        with translated(_SERVICE, "Query"):
            for page in self._client.get_paginator("query").paginate(**request):
                yield from page["Items"]

    def first_after(self, column: str, value: str, sort_column: str, after: str) -> "Item | None":
        """Return the item whose sort key is the next above ``after`` (strongly consistent), or None."""
        with translated(_SERVICE, "Query"):
            page = self._client.query(
                TableName=self._name,
                KeyConditionExpression="#partition = :partition AND #sort > :after",
                ExpressionAttributeNames={"#partition": column, "#sort": sort_column},
                ExpressionAttributeValues={":partition": {"S": value}, ":after": {"S": after}},
                ConsistentRead=True,
                Limit=1,
            )
        return next(iter(page["Items"]), None)

    def items(self) -> "Iterator[Item]":
        """Iterate over all items of the table, page by page and in no order; not strongly consistent."""
        with translated(_SERVICE, "Scan"):
            for page in self._client.get_paginator("scan").paginate(TableName=self._name):
                yield from page["Items"]


class _Condition:
    """Notes that a conditional write was refused, and lets every other error pass."""

    def __init__(self) -> None:
        self.holds = True

    def __enter__(self) -> "_Condition":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        refused = isinstance(error, ClientError) and error_code(error) == "ConditionalCheckFailedException"
        self.holds = not refused
        return refused
