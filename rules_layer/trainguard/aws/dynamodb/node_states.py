"""NodeState in DynamoDB: one item for each stream of a node."""

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainguard.aws.dynamodb.columns import (
    BLOB,
    COUNT,
    FLAG,
    INTEGER,
    INTEGER_OR_NONE,
    INTEGERS,
    NUMBER,
    NUMBER_OR_NONE,
    TEXT,
    TEXT_OR_NONE,
    Columns,
    Layout,
    fields_of,
    integer,
    member,
    present,
    text,
    written,
)
from trainguard.aws.dynamodb.stored_form import finding_columns, finding_of_columns, stored_node
from trainguard.aws.dynamodb.table import Expression, Table, decoding
from trainguard.core.errors import StateConflictError
from trainguard.core.records import JOB_NODE, AlertKind, NodeRecord, OutboxEntry, StreamKey

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue

    from trainguard.aws.dynamodb.columns import Item


_NAMES = {"finding_kind": "FindingKind"}
"""An entry has a kind of its own, that of the alert."""


class DynamoNodeStates:
    """Store of NodeState items; Version is the only lock.

    ``mark_sent`` does not move it, so a writer that loaded the item before may put a mark back to unsent. That costs
    one more StartExecution, which is refused by its name.
    """

    def __init__(self, *, client: "DynamoDBClient", table: str) -> None:
        self._table = Table(client=client, name=table)

    def load(self, key: StreamKey) -> NodeRecord | None:
        item = self._table.get(_key(key))
        return None if item is None else _record(key.job, item)

    def save(self, record: NodeRecord) -> NodeRecord:
        written = replace(stored_node(record), version=record.version + 1)
        names = {"#version": "Version"}
        if record.version == 0:
            condition = Expression("attribute_not_exists(#version)", names)
        else:
            condition = Expression("#version = :version", names, {":version": integer(record.version)})
        if not self._table.put(_item(written), condition):
            raise StateConflictError(_name(record.key.job, record.key.node_kind), record.version)
        return written

    def mark_sent(self, key: StreamKey, alert_ids: Sequence[str]) -> None:
        for alert_id in alert_ids:
            names = {"#outbox": "Outbox", "#entry": alert_id, "#sent": "Sent"}
            self._table.update(
                _key(key),
                Expression("SET #outbox.#entry.#sent = :true", names, {":true": {"BOOL": True}}),
                Expression("attribute_exists(#outbox.#entry)"),
            )

    def of_job(self, job: str) -> list[NodeRecord]:
        return [_record(job, item) for item in self._table.partition("TrainingJobName", job)]


def _name(job: str, node_kind: str) -> str:
    return f"NodeState/{job}/{node_kind}"


def _key(key: StreamKey) -> "Item":
    return {"TrainingJobName": text(key.job), "NodeKind": text(key.node_kind)}


_NODE: Layout = {
    "version": ("Version", INTEGER),
    "cursors": ("Cursors", INTEGERS),
    "pending": ("Pending", INTEGERS),
    "state": ("Window", BLOB),
    "codec": ("Codec", INTEGER),
    "counters": ("Counters", INTEGERS),
    "watermark_s": ("EvaluatedThrough", NUMBER_OR_NONE),
    "closed": ("Closed", FLAG),
    "expires_at": ("ExpiresAt", INTEGER_OR_NONE),
    "generation": ("Generation", COUNT),
}
_ENTRY: Layout = {
    "fire_id": ("FireId", TEXT),
    "episode": ("Episode", INTEGER),
    "enqueued_at": ("EnqueuedAt", NUMBER),
    "sent": ("Sent", FLAG),
    "kind": ("Kind", member(AlertKind)),
    "previous_severity": ("PreviousSeverity", TEXT_OR_NONE),
    "lasted_s": ("LastedS", NUMBER_OR_NONE),
}


def _item(record: NodeRecord) -> "Item":
    outbox: AttributeValue = {"M": {alert_id: {"M": _entry_item(entry)} for alert_id, entry in record.outbox.items()}}
    return _key(record.key) | present(written(record, _NODE) | {"Outbox": outbox})


def _entry_item(entry: OutboxEntry) -> "Item":
    place = {"Rule": text(entry.finding.rule), "Node": text(entry.finding.where)}
    return present(place | finding_columns(entry.finding, _NAMES) | written(entry, _ENTRY))


def _record(job: str, item: "Item") -> NodeRecord:
    columns = Columns(item)
    node_kind = item["NodeKind"]["S"]
    with decoding(_name(job, node_kind)):
        codec = columns.integer_or_none("Codec") or 0
    with decoding(_name(job, node_kind), codec):
        outbox = {alert_id: _entry(entry) for alert_id, entry in columns.nested("Outbox").items()}
        return NodeRecord(
            key=StreamKey.parse(job, node_kind), outbox=MappingProxyType(outbox), **fields_of(columns, _NODE)
        )


def _entry(columns: Columns) -> OutboxEntry:
    rule, node = columns.text("Rule"), columns.text("Node")
    finding = finding_of_columns(columns, rule=rule, node=None if node == JOB_NODE else node, names=_NAMES)
    return OutboxEntry(finding=finding, **fields_of(columns, _ENTRY))
