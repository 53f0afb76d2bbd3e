"""NodeState in DynamoDB: one item for each stream of a node."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainguard.aws.dynamodb import attributes
from trainguard.aws.dynamodb.attributes import (
    AttributeType,
    ItemColumns,
    Layout,
    fields_of,
    flag,
    inner,
    map_of,
    member,
    present,
    text,
    written,
)
from trainguard.aws.dynamodb.stored_form import FINDING, stored_node
from trainguard.aws.dynamodb.table import OfTable, decoding
from trainguard.core.errors import StateConflictError
from trainguard.core.finding import Finding
from trainguard.core.records import JOB_NODE, AlertKind, OutboxEntry, StreamKey, StreamRecord

if TYPE_CHECKING:
    from trainguard.aws.dynamodb.attributes import AttributeValue, Item


class DynamoNodeStates(OfTable):
    """Store of NodeState items; Version is the only lock.

    ``mark_sent`` does not move it, so a writer that loaded the item before may put a mark back to unsent. That costs
    one more StartExecution, which is refused by its name.
    """

    def load(self, key: StreamKey) -> StreamRecord | None:
        item = self._table.get(_key(key))
        return None if item is None else _record(key.job, item)

    def save(self, record: StreamRecord) -> StreamRecord:
        saved = replace(stored_node(record), version=record.version + 1)
        if not self._table.put_version(_item(saved), record.version):
            raise StateConflictError(_name(record.key.job, record.key.node_kind), record.version)
        return saved

    def mark_sent(self, key: StreamKey, alert_ids: Sequence[str]) -> None:
        for alert_id in alert_ids:
            self._table.update(
                _key(key),
                "SET #Outbox.#entry.#Sent = :true",
                "attribute_exists(#Outbox.#entry)",
                {":true": flag(True)},
                {"#entry": alert_id},
            )

    def of_job(self, job: str) -> list[StreamRecord]:
        return [_record(job, item) for item in self._table.partition("TrainingJobName", job)]


def _name(job: str, node_kind: str) -> str:
    return f"NodeState/{job}/{node_kind}"


def _key(key: StreamKey) -> "Item":
    return {"TrainingJobName": text(key.job), "NodeKind": text(key.node_kind)}


_ENTRY: Layout = {
    "fire_id": ("FireId", attributes.TEXT),
    "episode": ("Episode", attributes.INTEGER),
    "enqueued_at": ("EnqueuedAt", attributes.NUMBER),
    "sent": ("Sent", attributes.FLAG),
    "kind": ("Kind", member(AlertKind)),
    "previous_severity": ("PreviousSeverity", attributes.TEXT_OR_NONE),
    "lasted_s": ("LastedS", attributes.NUMBER_OR_NONE),
}
# An entry has a kind of its own, that of the alert.
_ENTRY_FINDING: Layout = {**FINDING, "finding_kind": ("FindingKind", attributes.NAME)}


def _write_entry(entry: OutboxEntry) -> "AttributeValue":
    place = {"Rule": text(entry.finding.rule), "Node": text(entry.finding.where)}
    return {"M": present(place | written(entry.finding, _ENTRY_FINDING) | written(entry, _ENTRY))}


def _read_entry(value: "AttributeValue") -> OutboxEntry:
    columns = inner(value)
    rule, node = columns.get("Rule", attributes.TEXT), columns.get("Node", attributes.TEXT)
    finding = Finding(rule=rule, node=None if node == JOB_NODE else node, **fields_of(columns, _ENTRY_FINDING))
    return OutboxEntry(finding=finding, **fields_of(columns, _ENTRY))


_NODE: Layout = {
    "version": ("Version", attributes.INTEGER),
    "cursors": ("Cursors", attributes.INTEGERS),
    "pending": ("Pending", attributes.INTEGERS),
    "state": ("Window", attributes.BLOB),
    "codec": ("Codec", attributes.INTEGER),
    "counters": ("Counters", attributes.INTEGERS),
    "watermark_s": ("EvaluatedThrough", attributes.NUMBER_OR_NONE),
    "closed": ("Closed", attributes.FLAG),
    "expires_at": ("ExpiresAt", attributes.INTEGER_OR_NONE),
    "generation": ("Generation", attributes.COUNT),
    "outbox": ("Outbox", map_of(AttributeType(_write_entry, _read_entry))),
}


def _item(record: StreamRecord) -> "Item":
    return _key(record.key) | present(written(record, _NODE))


def _record(job: str, item: "Item") -> StreamRecord:
    columns = ItemColumns(item)
    node_kind = item["NodeKind"]["S"]
    with decoding(_name(job, node_kind)):
        codec = columns.get("Codec", attributes.INTEGER_OR_NONE) or 0
    with decoding(_name(job, node_kind), codec):
        return StreamRecord(key=StreamKey.parse(job, node_kind), **fields_of(columns, _NODE))
