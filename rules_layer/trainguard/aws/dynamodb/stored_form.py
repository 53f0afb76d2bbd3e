"""The form in which rows, findings and jobs are kept, the same for every kind of store, and findings as columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from numbers import Integral
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import msgspec

from trainguard.aws.dynamodb import attributes
from trainguard.aws.dynamodb.attributes import (
    AttributeType,
    Layout,
    Scalar,
    fields_of,
    inner,
    list_of,
    member,
    moment,
    number,
    present,
    record_of,
    scalar,
    text,
    written,
)
from trainguard.core.finding import LONGEST_NAME, MOST_FACTS, Episode, Fact, Finding, Severity, clock_times
from trainguard.core.records import JobRecord, RuleRow, StreamRecord
from trainguard.core.text import one_line
from trainguard.core.timestamps import epoch_from_iso, iso_from_epoch, to_millisecond
from trainguard.core.units import show_percent

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from trainguard.aws.dynamodb.attributes import AttributeValue

    Record = TypeVar("Record", bound=DataclassInstance)


# Begins the text columns of facts for people; nothing reads them back.
FACT_COLUMN = "fact."

_PLACE: Layout = {
    "name": ("Name", attributes.TEXT),
    "series": ("Series", attributes.TEXT_OR_NONE),
    "node": ("Node", attributes.TEXT_OR_NONE),
    "device": ("Device", attributes.TEXT_OR_NONE),
    "start": ("From", attributes.TIME_OR_NONE),
    "end": ("To", attributes.TIME_OR_NONE),
    "unit": ("Unit", attributes.NAME),
}
_TIME, _SHARE, _PERCENT = "time", "share", "%"
_LONGEST_UNIT = 24
_THOUSAND = 1_000.0


def stored_finding(finding: Finding) -> Finding:
    """Return the finding after a round trip: times to the millisecond, no more facts than are kept."""
    return replace(
        finding,
        episodes=tuple(
            replace(each, start=to_millisecond(each.start) or 0.0, end=to_millisecond(each.end))
            for each in finding.episodes
        ),
        facts=tuple(_stored_fact(each) for each in finding.facts[:MOST_FACTS]),
    )


def _write_fact(fact: Fact) -> "AttributeValue":
    of_time = fact.unit == _TIME
    value = moment(fact.value) if of_time and not isinstance(fact.value, str) else scalar(fact.value)
    columns = {**written(fact, _PLACE), "Value": value}
    if fact.threshold is not None:
        columns["Threshold"] = moment(fact.threshold) if of_time else number(fact.threshold)
    return {"M": present(columns)}


def _read_fact(value: "AttributeValue") -> Fact:
    columns = inner(value)
    place = fields_of(columns, _PLACE)

    def read(name: str, kind: AttributeType) -> Scalar:
        found: Scalar = columns.get(name, kind)
        return epoch_from_iso(found) if isinstance(found, str) and place["unit"] == _TIME else found

    measured, threshold = read("Value", attributes.SCALAR), read("Threshold", attributes.SCALAR.unless(None))
    if measured is None:
        raise ValueError("a fact has the Value null, expected a number or a text")
    return Fact(value=measured, threshold=None if threshold is None else float(threshold), **place)


def fact_columns(facts: Sequence[Fact]) -> "dict[str, AttributeValue | None]":
    """Write a column a fact: ``fact.mean_utilization gpu3`` is ``41.2 % (2026-01-31 12:00 to 12:40 UTC)``."""
    names = [fact.name for fact in facts]
    columns: dict[str, AttributeValue | None] = {}
    for fact in facts:
        several = names.count(fact.name) > 1
        place = [each for each in (fact.node, fact.device, fact.series) if each] if several else []
        name = FACT_COLUMN + " ".join([fact.name, *place])
        same = sum(column == name or column.startswith(f"{name} #") for column in columns)
        columns[f"{name} #{same + 1}" if same else name] = text(shown_fact(fact))
    return columns


def shown_fact(fact: Fact) -> str:
    """Return a fact's value, and in brackets where and when it was so and what it was compared with."""
    places = [each for each in (fact.series, fact.node, fact.device) if each]
    times = [shown_times(fact)] if fact.start is not None else []
    limit = [] if fact.threshold is None else [f"threshold {shown_value(fact.threshold, fact.unit)}"]
    beside = ", ".join([*places, *times, *limit])
    return shown_value(fact.value, fact.unit) + (f" ({beside})" if beside else "")


def shown_value(value: float | int | str, unit: str) -> str:
    """Show a value of a unit of facts, for example ``41.2 %``; a share as a percentage, a time by the clock."""
    if isinstance(value, str):
        return value
    units: Mapping[str, Callable[[float], str]] = {
        _TIME: iso_from_epoch,
        _PERCENT: show_percent,
        _SHARE: lambda share: show_percent(100.0 * share),
    }
    return units[unit](value) if unit in units else f"{_figures(value)} {unit}".rstrip()


def _figures(value: float | int) -> str:
    """Return a number of four digits at least, and none of a fraction behind them."""
    whole = isinstance(value, int) or _THOUSAND <= abs(value) < _THOUSAND**4
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def shown_times(fact: Fact) -> str:
    """Return from when to when a fact is, in UTC; empty where it is of no time."""
    if fact.start is None:
        return ""
    return clock_times(iso_from_epoch(fact.start), None if fact.end is None else iso_from_epoch(fact.end))


def _stored_fact(fact: Fact) -> Fact:
    """Return a fact with plain names and Python's numbers, as no others can be written."""
    unit = one_line(fact.unit, _LONGEST_UNIT)
    if unit == _TIME and isinstance(fact.value, str):
        unit = ""
    return msgspec.structs.replace(
        fact,
        name=one_line(fact.name, LONGEST_NAME),
        value=_stored_value(fact.value, unit),
        unit=unit,
        series=_short_name(fact.series),
        node=_short_name(fact.node),
        device=_short_name(fact.device),
        start=to_millisecond(fact.start),
        end=to_millisecond(fact.end),
        threshold=None if fact.threshold is None else _stored_number(float(fact.threshold), unit),
    )


def _stored_value(value: Scalar, unit: str) -> float | int | str:
    if isinstance(value, str):
        return one_line(value, LONGEST_NAME)
    if isinstance(value, Integral) and unit != _TIME:
        return int(value)
    return _stored_number(float(value or 0.0), unit)


def _stored_number(value: float, unit: str) -> float:
    return epoch_from_iso(iso_from_epoch(value)) if unit == _TIME else value


def _short_name(name: str | None) -> str | None:
    return None if name is None else one_line(name, LONGEST_NAME)


_EPISODE: Layout = {
    "start": ("Start", attributes.TIME),
    "end": ("End", attributes.TIME_OR_NONE),
    "nodes": ("Nodes", attributes.SOME_NAMES),
    "gpus": ("Gpus", attributes.SOME_NAMES),
    "measured": ("Measured", attributes.NUMBER_OR_NONE),
    "wasted_s": ("WastedS", attributes.NUMBER_OR_NONE),
    "cost": ("Cost", attributes.NUMBER_OR_NONE),
    "currency": ("Currency", attributes.TEXT_OR_NONE),
}
# Of a finding, without its rule and node.
FINDING: Layout = {
    "finding_kind": ("Kind", attributes.NAME),
    "reason": ("Reason", attributes.TEXT),
    "measured": ("Measured", attributes.NUMBER_OR_NONE),
    "threshold": ("Threshold", attributes.NUMBER_OR_NONE),
    "severity": ("Severity", member(Severity).unless(None)),
    "advice": ("Advice", attributes.TEXT_OR_NONE),
    "cost": ("Cost", attributes.TEXT_OR_NONE),
    "episodes": ("Episodes", list_of(record_of(Episode, _EPISODE)).unless(())),
    "facts": ("Facts", list_of(AttributeType(_write_fact, _read_fact)).unless(())),
}


Key = TypeVar("Key")
Value = TypeVar("Value")


def frozen_mapping(mapping: Mapping[Key, Value]) -> Mapping[Key, Value]:
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


def stored_node(record: StreamRecord) -> StreamRecord:
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
