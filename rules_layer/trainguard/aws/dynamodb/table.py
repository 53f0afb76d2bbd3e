"""One DynamoDB table behind few verbs; conditions that do not hold are answers, everything else is an error.

``#Column`` in an expression names the column; ``names`` are the columns of other placeholders, ``values`` those of
``:placeholders``.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainguard.aws.aws_errors import translated, unless
from trainguard.aws.dynamodb.attributes import integer, text
from trainguard.core.errors import StateCodecError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import QueryInputPaginateTypeDef

    from trainguard.aws.dynamodb.attributes import AttributeValue, Item

_SERVICE = "DynamoDB"
_NAME = re.compile(r"#(\w+)")
_REFUSED = frozenset({"ConditionalCheckFailedException"})


def assignments(columns: "Mapping[str, AttributeValue | None]") -> "tuple[str, dict[str, str], Item]":
    """Return the update that sets the columns, and removes those that are None, with its names and values."""
    names = {f"#c{index}": name for index, name in enumerate(columns)}
    values = {f":c{index}": value for index, value in enumerate(columns.values()) if value is not None}
    sets = ", ".join(f"#c{value[2:]} = {value}" for value in values)
    removals = ", ".join(name for name in names if f":c{name[2:]}" not in values)
    clauses = [f"SET {sets}"] if sets else []
    clauses += [f"REMOVE {removals}"] if removals else []
    return " ".join(clauses), names, values


def _placeholders(expressions: str, names: Mapping[str, str], values: "Item") -> dict[str, Any]:
    """Return the part of a request on what stands in its expressions."""
    request: dict[str, Any] = {
        "ExpressionAttributeNames": {f"#{name}": name for name in _NAME.findall(expressions)} | {**names}
    }
    return request | ({"ExpressionAttributeValues": values} if values else {})


def row_key(job: str, target: str) -> "Item":
    return {"TrainingJobName": text(job), "RuleTarget": text(target)}


@contextmanager
def decoding(item: str, codec: int = 0) -> Iterator[None]:
    """Turn a column that is missing, or of another type or content, into StateCodecError that names the item."""
    try:
        yield
    except KeyError as error:
        raise StateCodecError(item, codec, f"there is no {error} where one is expected") from error
    except ValueError as error:
        raise StateCodecError(item, codec, str(error)) from error


class OfTable:
    """An adapter of one table."""

    def __init__(self, *, client: "DynamoDBClient", table: str) -> None:
        self._table = DynamoDBTable(client=client, name=table)


class DynamoDBTable:
    def __init__(self, *, client: "DynamoDBClient", name: str) -> None:
        self._client = client
        self._name = name

    def get(self, key: "Item") -> "Item | None":
        """Return the item, strongly consistent, or None."""
        with translated(_SERVICE, "GetItem"):
            return self._client.get_item(TableName=self._name, Key=key, ConsistentRead=True).get("Item")

    def put(self, item: "Item", condition: str, values: "Item | None" = None) -> bool:
        """Write the item whole if the condition holds; return whether it was written."""
        held = _placeholders(condition, {}, values or {})
        with translated(_SERVICE, "PutItem"):
            answer = unless(
                _REFUSED,
                lambda: self._client.put_item(TableName=self._name, Item=item, ConditionExpression=condition, **held),
            )
        return answer is not None

    def put_version(self, item: "Item", version: int) -> bool:
        """Write the item, with the next Version, if the stored one is ``version``; 0 is that of no item."""
        condition = "#Version = :version" if version else "attribute_not_exists(#Version)"
        values = {":version": integer(version)} if version else {}
        return self.put(item | {"Version": integer(version + 1)}, condition, values)

    def update(
        self,
        key: "Item",
        change: "str | Mapping[str, AttributeValue | None]",
        condition: str,
        values: "Item | None" = None,
        names: Mapping[str, str] | None = None,
    ) -> bool:
        """Change the item as `changed` does; return whether it was changed."""
        return self.changed(key, change, condition, values, names) is not None

    def changed(
        self,
        key: "Item",
        change: "str | Mapping[str, AttributeValue | None]",
        condition: str,
        values: "Item | None" = None,
        names: Mapping[str, str] | None = None,
    ) -> "Item | None":
        """Change the item, by an expression or by columns to assign, if the condition holds.

        Return it as it was, empty where there was none; None where it was not changed.
        """
        update, set_names, set_values = (change, {}, {}) if isinstance(change, str) else assignments(change)
        held = _placeholders(f"{update} {condition}", set_names | {**(names or {})}, set_values | (values or {}))
        with translated(_SERVICE, "UpdateItem"):
            answer = unless(
                _REFUSED,
                lambda: self._client.update_item(
                    TableName=self._name,
                    Key=key,
                    UpdateExpression=update,
                    ConditionExpression=condition,
                    ReturnValues="ALL_OLD",
                    **held,
                ),
            )
        return None if answer is None else answer.get("Attributes", {})

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
