"""An outbox entry as the input of its execution has it: flat, beside what is said of the job; written here and read."""

from collections.abc import Mapping
from typing import Any

import msgspec

from trainguard.finding import finding_in, flat
from trainguard.records import OutboxEntry
from trainguard.timestamps import epoch_of, iso_time

_FIELDS = {
    "kind": "kind",
    "fireId": "fire_id",
    "episode": "episode",
    "previousSeverity": "previous_severity",
    "lastedS": "lasted_s",
}
"""Names in an input, and those of the same fields of an entry."""

_AT = "firedAt"


def entry_fields(entry: OutboxEntry) -> dict[str, object]:
    """Return an entry's fields as an execution's input has them."""
    said = {name: getattr(entry, field) for name, field in _FIELDS.items()}
    own = {"kind": entry.kind.value, "alertId": entry.alert_id, _AT: iso_time(entry.enqueued_at)}
    return said | own | flat(entry.finding)


def entry_in(document: Mapping[str, Any]) -> OutboxEntry:
    """Return the entry whose fields stand among those of an execution's input.

    Raises msgspec.ValidationError for a document that lacks a field or has one of another type.
    """
    said = {field: document[name] for name, field in _FIELDS.items() if name in document}
    if _AT in document:
        try:
            said["enqueued_at"] = epoch_of(document[_AT])
        except (TypeError, ValueError) as fault:
            raise msgspec.ValidationError(f"{_AT}: {fault}") from fault
    return msgspec.convert({**said, "finding": finding_in(document)}, OutboxEntry)
