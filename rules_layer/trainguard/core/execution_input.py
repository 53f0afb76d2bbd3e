"""An outbox entry and its job as the flat input of an execution."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from trainguard.core.finding import finding_in, flat
from trainguard.core.records import OutboxEntry
from trainguard.core.timestamps import epoch_of, iso_time

_FIELDS = {
    "kind": "kind",
    "fireId": "fire_id",
    "episode": "episode",
    "previousSeverity": "previous_severity",
    "lastedS": "lasted_s",
}

_AT = "firedAt"


def entry_fields(entry: OutboxEntry) -> dict[str, object]:
    """Return an entry's fields as an execution's input has them."""
    columns = {name: getattr(entry, field) for name, field in _FIELDS.items()}
    own = {"kind": entry.kind.value, "alertId": entry.alert_id, _AT: iso_time(entry.enqueued_at)}
    return columns | own | flat(entry.finding)


def entry_in(document: Mapping[str, Any]) -> OutboxEntry:
    """Return the entry in an execution's input; raises msgspec.ValidationError where a field is missing or wrong."""
    columns = {field: document[name] for name, field in _FIELDS.items() if name in document}
    if _AT in document:
        try:
            columns["enqueued_at"] = epoch_of(document[_AT])
        except (TypeError, ValueError) as fault:
            raise msgspec.ValidationError(f"{_AT}: {fault}") from fault
    return msgspec.convert({**columns, "finding": finding_in(document)}, OutboxEntry)


def execution_input(payload: Mapping[str, object]) -> str:
    """Return the input document of an execution; raises ValueError or TypeError for what JSON cannot hold."""
    return json.dumps(dict(payload), ensure_ascii=False, allow_nan=False)
