"""Findings as columns, the same in rows and in outbox entries; the rule and the node have places of their own there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trainguard.adapters.attribute_values import (
    Columns,
    maps,
    number_or_none,
    present,
    text,
    text_list,
    text_or_none,
)
from trainguard.adapters.facts import facts_of, facts_value
from trainguard.adapters.timestamps import epoch_from_iso, iso_from_epoch
from trainguard.finding import Episode, Finding, Severity

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue

_SAME: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Column:
    """Where a field is stored, and how it is written and read; what is written as None has no column."""

    field: str
    name: str
    write: "Callable[[Any], AttributeValue | None]"
    read: Callable[[Columns, str], Any]


def finding_columns(finding: Finding, names: Mapping[str, str] = _SAME) -> "dict[str, AttributeValue | None]":
    """Write a finding, without its rule and node; ``names`` are of columns that are called otherwise, by field."""
    return _written(finding, _FINDING, names)


def finding_of_columns(columns: Columns, *, rule: str, node: str | None, names: Mapping[str, str] = _SAME) -> Finding:
    """Read a finding of ``rule`` on ``node``."""
    return Finding(rule=rule, node=node, **_read(columns, _FINDING, names))


def _written(
    record: object, table: Sequence[_Column], names: Mapping[str, str] = _SAME
) -> "dict[str, AttributeValue | None]":
    return {names.get(each.field, each.name): each.write(getattr(record, each.field)) for each in table}


def _read(columns: Columns, table: Sequence[_Column], names: Mapping[str, str] = _SAME) -> dict[str, Any]:
    return {each.field: each.read(columns, names.get(each.field, each.name)) for each in table}


def _name_value(name: str) -> "AttributeValue | None":
    return text_or_none(name or None)


def _name_of(columns: Columns, name: str) -> str:
    return columns.text_or_none(name) or ""


def _names_value(names: Sequence[str]) -> "AttributeValue | None":
    return text_list(names) if names else None


def _time_value(epoch_s: float | None) -> "AttributeValue | None":
    return None if epoch_s is None else text(iso_from_epoch(epoch_s))


def _episodes_value(episodes: Sequence[Episode]) -> "AttributeValue | None":
    """Write episodes as a list of maps; None where there is none."""
    return maps(present(_written(each, _EPISODE)) for each in episodes) if episodes else None


def _episodes_of(columns: Columns, name: str) -> tuple[Episode, ...]:
    """Read episodes; an item of a version that kept none has none."""
    return tuple(Episode(**_read(each, _EPISODE)) for each in columns.map_list(name))


_FINDING = (
    _Column("finding_kind", "Kind", _name_value, _name_of),
    _Column("reason", "Reason", text, Columns.text),
    _Column("measured", "Measured", number_or_none, Columns.real_or_none),
    _Column("threshold", "Threshold", number_or_none, Columns.real_or_none),
    _Column("severity", "Severity", text_or_none, lambda columns, name: columns.made_or_none(name, Severity)),
    _Column("advice", "Advice", text_or_none, Columns.text_or_none),
    _Column("cost", "Cost", text_or_none, Columns.text_or_none),
    _Column("episodes", "Episodes", _episodes_value, _episodes_of),
    _Column("facts", "Facts", facts_value, facts_of),
)
_EPISODE = (
    _Column("start", "Start", _time_value, lambda columns, name: columns.made(name, epoch_from_iso)),
    _Column("end", "End", _time_value, lambda columns, name: columns.made_or_none(name, epoch_from_iso)),
    _Column("nodes", "Nodes", _names_value, Columns.text_list),
    _Column("gpus", "Gpus", _names_value, Columns.text_list),
    _Column("measured", "Measured", number_or_none, Columns.real_or_none),
    _Column("wasted_s", "WastedS", number_or_none, Columns.real_or_none),
    _Column("cost", "Cost", number_or_none, Columns.real_or_none),
    _Column("currency", "Currency", text_or_none, Columns.text_or_none),
)
