"""NodeState in memory."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from trainguard.adapters.immutable import frozen_record
from trainguard.adapters.memory.faults import Faults
from trainguard.adapters.stored_form import stored_node
from trainguard.errors import StateConflictError
from trainguard.records import NodeRecord, StreamKey


class MemoryNodeStates:
    """Twin of DynamoNodeStates; thread-safe, its conditional writes are atomic."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._records: dict[StreamKey, NodeRecord] = {}

    def load(self, key: StreamKey) -> NodeRecord | None:
        """Return the item as last written, or None."""
        with self._faults.call("NodeStates.load"), self._lock:
            return self._records.get(key)

    def save(self, record: NodeRecord) -> NodeRecord:
        """Write the item if its stored Version is still ``record.version``; raise StateConflictError otherwise."""
        key = record.key
        item = f"NodeState/{key.job}/{key.node_kind}"
        written = replace(stored_node(record), version=record.version + 1)
        with self._faults.call("NodeStates.save", item=item, version=record.version), self._lock:
            stored = self._records.get(key)
            if (0 if stored is None else stored.version) != record.version:
                raise StateConflictError(item, record.version)
            self._records[key] = written
        return written

    def mark_sent(self, key: StreamKey, alert_ids: Sequence[str]) -> None:
        """Mark outbox entries as sent, without moving Version; entries that are gone are ignored."""
        for alert_id in alert_ids:
            with self._faults.call("NodeStates.mark_sent"), self._lock:
                stored = self._records.get(key)
                if stored is not None and alert_id in stored.outbox:
                    sent = replace(stored.outbox[alert_id], sent=True)
                    self._records[key] = frozen_record(stored, outbox={**stored.outbox, alert_id: sent})

    def of_job(self, job: str) -> list[NodeRecord]:
        """Return all items of a job, ordered by sort key."""
        with self._faults.call("NodeStates.of_job"), self._lock:
            records = [record for key, record in self._records.items() if key.job == job]
        return sorted(records, key=lambda record: record.key.node_kind)

    def remove(self, key: StreamKey) -> None:
        """Delete an item, as an operator may."""
        with self._lock:
            self._records.pop(key, None)
