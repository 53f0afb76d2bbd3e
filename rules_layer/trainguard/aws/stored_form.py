"""The form in which rows and jobs are kept, the same for every kind of store."""

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from trainguard.aws.facts import stored_finding
from trainguard.core.records import JobRecord, NodeRecord, RuleRow
from trainguard.core.timestamps import to_millisecond

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)


Key = TypeVar("Key")
Value = TypeVar("Value")


def frozen_mapping(mapping: Mapping[Key, Value]) -> Mapping[Key, Value]:
    """Return a read-only copy."""
    return MappingProxyType(dict(mapping))


def frozen_record(record: "Record", **changes: object) -> "Record":
    """Return the record with ``changes`` and read-only mappings: a change in place fails in a test."""
    mappings = {
        declared.name: frozen_mapping(held)
        for declared in fields(record)
        if isinstance(held := changes.get(declared.name, getattr(record, declared.name)), Mapping)
    }
    return replace(record, **(changes | mappings))


REASON_MAX_CHARACTERS = 1024


def stored_row(row: RuleRow) -> RuleRow:
    """Return the row as it reads after a round trip: times to the millisecond, texts that fit on a screen."""
    finding = stored_finding(row.finding)
    advice = finding.advice
    return frozen_record(
        row,
        finding=replace(finding, reason=capped(finding.reason), advice=None if advice is None else capped(advice)),
        evaluated_through=to_millisecond(row.evaluated_through),
        fired_at=to_millisecond(row.fired_at),
    )


def stored_node(record: NodeRecord) -> NodeRecord:
    """Return the item as it reads after a round trip: the findings in its outbox as `stored_finding` has them."""
    outbox = {name: replace(entry, finding=stored_finding(entry.finding)) for name, entry in record.outbox.items()}
    return frozen_record(record, outbox=outbox)


def stored_job(record: JobRecord) -> JobRecord:
    """Return the job as it reads after a round trip: times to the millisecond, polling as stored."""
    return frozen_record(
        record,
        created_at=to_millisecond(record.created_at),
        started_at=to_millisecond(record.started_at),
        ended_at=to_millisecond(record.ended_at),
        last_object_at=to_millisecond(record.last_object_at),
        close_asked_at=to_millisecond(record.close_asked_at),
        left_at=to_millisecond(record.left_at),
        asked_at=to_millisecond(record.asked_at),
        polled_fast=record.polled_fast or record.closing or not record.active,
    )


def capped(sentence: str) -> str:
    """Shorten a sentence to 1024 characters, with an ellipsis."""
    return sentence if len(sentence) <= REASON_MAX_CHARACTERS else sentence[: REASON_MAX_CHARACTERS - 1] + "…"
