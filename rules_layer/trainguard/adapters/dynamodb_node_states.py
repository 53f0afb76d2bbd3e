"""NodeState in DynamoDB: one item for each stream of a node."""

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainguard.adapters.attribute_values import (
    Columns,
    integer,
    integer_or_none,
    integers,
    number,
    number_or_none,
    present,
    text,
    text_or_none,
)
from trainguard.adapters.dynamodb_table import Expression, Table, decoding
from trainguard.adapters.findings import finding_columns, finding_of_columns
from trainguard.adapters.stored_form import stored_node
from trainguard.errors import StateConflictError
from trainguard.records import JOB_NODE, AlertKind, NodeRecord, OutboxEntry, StreamKey

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue

    from trainguard.adapters.attribute_values import Item


_NAMES = {"finding_kind": "FindingKind"}
"""An entry has a kind of its own, that of the alert."""


class DynamoNodeStates:
    """Store of NodeState items.

    Parameters
    ----------
    client : DynamoDBClient
        Low-level client.
    table : str
        Name of the table.

    Notes
    -----
    ``save`` is optimistic: Version is the only lock. ``mark_sent`` does not move it, so a writer that loaded the item
    before may put an entry's mark back to unsent. That costs one more StartExecution, which is refused by its name.
    """

    def __init__(self, *, client: "DynamoDBClient", table: str) -> None:
        self._table = Table(client=client, name=table)

    def load(self, key: StreamKey) -> NodeRecord | None:
        """Return the item as last written (strongly consistent), or None."""
        item = self._table.get(_key(key))
        return None if item is None else _record(key.job, item)

    def save(self, record: NodeRecord) -> NodeRecord:
        """Write the item if its stored Version is still ``record.version``; raise StateConflictError otherwise."""
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
        """Mark outbox entries as sent, without moving Version; entries that are gone are ignored."""
        for alert_id in alert_ids:
            names = {"#outbox": "Outbox", "#entry": alert_id, "#sent": "Sent"}
            self._table.update(
                _key(key),
                Expression("SET #outbox.#entry.#sent = :true", names, {":true": {"BOOL": True}}),
                Expression("attribute_exists(#outbox.#entry)"),
            )

    def of_job(self, job: str) -> list[NodeRecord]:
        """Return all items of a job, ordered by sort key (strongly consistent)."""
        return [_record(job, item) for item in self._table.partition("TrainingJobName", job)]


def _name(job: str, node_kind: str) -> str:
    return f"NodeState/{job}/{node_kind}"


def _key(key: StreamKey) -> "Item":
    return {"TrainingJobName": text(key.job), "NodeKind": text(key.node_kind)}


def _item(record: NodeRecord) -> "Item":
    columns: dict[str, AttributeValue | None] = {
        "Version": integer(record.version),
        "Cursors": integers(record.cursors),
        "Pending": integers(record.pending),
        "Window": {"B": record.state},
        "Codec": integer(record.codec),
        "Counters": integers(record.counters),
        "Outbox": {"M": {alert_id: {"M": _entry_item(entry)} for alert_id, entry in record.outbox.items()}},
        "EvaluatedThrough": number_or_none(record.watermark_s),
        "Closed": {"BOOL": record.closed},
        "ExpiresAt": integer_or_none(record.expires_at),
        "Generation": integer_or_none(record.generation or None),
    }
    return _key(record.key) | present(columns)


def _entry_item(entry: OutboxEntry) -> "Item":
    return present(
        {
            "Rule": text(entry.finding.rule),
            "Node": text(entry.finding.where),
            **finding_columns(entry.finding, _NAMES),
            "FireId": text(entry.fire_id),
            "Episode": integer(entry.episode),
            "EnqueuedAt": number(entry.enqueued_at),
            "Sent": {"BOOL": entry.sent},
            "Kind": text(entry.kind),
            "PreviousSeverity": text_or_none(entry.previous_severity),
            "LastedS": number_or_none(entry.lasted_s),
        }
    )


def _record(job: str, item: "Item") -> NodeRecord:
    columns = Columns(item)
    node_kind = item["NodeKind"]["S"]
    with decoding(_name(job, node_kind)):
        codec = columns.integer_or_none("Codec") or 0
    with decoding(_name(job, node_kind), codec):
        return NodeRecord(
            key=StreamKey.parse(job, node_kind),
            version=columns.integer("Version"),
            cursors=columns.integers("Cursors"),
            pending=columns.integers("Pending"),
            state=columns.blob("Window"),
            codec=columns.integer("Codec"),
            counters=columns.integers("Counters"),
            outbox=MappingProxyType(
                {alert_id: _entry(alert_id, entry) for alert_id, entry in columns.nested("Outbox").items()}
            ),
            watermark_s=columns.real_or_none("EvaluatedThrough"),
            closed=columns.flag("Closed"),
            expires_at=columns.integer_or_none("ExpiresAt"),
            generation=columns.integer_or_none("Generation") or 0,
        )


def _entry(alert_id: str, columns: Columns) -> OutboxEntry:
    """Read an entry; one that an older version wrote is a fire, and says neither that nor its name."""
    node = columns.text("Node")
    return OutboxEntry(
        fire_id=columns.text_or_none("FireId") or alert_id,
        episode=columns.integer("Episode"),
        enqueued_at=columns.real("EnqueuedAt"),
        finding=finding_of_columns(
            columns, rule=columns.text("Rule"), node=None if node == JOB_NODE else node, names=_NAMES
        ),
        sent=columns.flag("Sent"),
        kind=columns.made_or_none("Kind", AlertKind) or AlertKind.FIRE,
        previous_severity=columns.text_or_none("PreviousSeverity"),
        lasted_s=columns.real_or_none("LastedS"),
    )
