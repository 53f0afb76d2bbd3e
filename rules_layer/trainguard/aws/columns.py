"""Records as columns: a table for each kind says where a field is stored, and how it is written and read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trainguard.aws.attribute_values import (
    Columns,
    integer,
    integer_or_none,
    integers,
    number,
    number_or_none,
    scalar,
    text,
    text_list,
    text_or_none,
    texts,
)
from trainguard.core.timestamps import epoch_from_iso, iso_from_epoch

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue


@dataclass(frozen=True, slots=True)
class Kind:
    """How values are written and read; None has no column."""

    write: "Callable[[Any], AttributeValue | None]"
    read: Callable[[Columns, str], Any]


Layout = Mapping[str, tuple[str, Kind]]

_SAME: Mapping[str, str] = MappingProxyType({})


def written(record: object, layout: Layout, names: Mapping[str, str] = _SAME) -> "dict[str, AttributeValue | None]":
    """Write the fields of a record; ``names`` are other column names, by field."""
    return {names.get(field, name): kind.write(getattr(record, field)) for field, (name, kind) in layout.items()}


def fields_of(columns: Columns, layout: Layout, names: Mapping[str, str] = _SAME) -> dict[str, Any]:
    """Read the fields of a record."""
    return {field: kind.read(columns, names.get(field, name)) for field, (name, kind) in layout.items()}


def flag(value: bool) -> "AttributeValue":  # A value to be written.
    """Write a truth value."""
    return {"BOOL": value}


def time_or_none(epoch_s: float | None) -> "AttributeValue | None":
    """Write a time, epoch seconds, or nothing."""
    return None if epoch_s is None else text(iso_from_epoch(epoch_s))


def member(kind: type[StrEnum]) -> Kind:
    """Return how a member of an enumeration is kept."""
    return Kind(text, lambda columns, name: columns.made(name, kind))


def member_or_none(kind: type[StrEnum]) -> Kind:
    """Return how one that may be missing is kept."""
    return Kind(text_or_none, lambda columns, name: columns.made_or_none(name, kind))


TEXT = Kind(text, Columns.text)
TEXT_OR_NONE = Kind(text_or_none, Columns.text_or_none)
NAME = Kind(lambda name: text_or_none(name or None), lambda columns, name: columns.text_or_none(name) or "")
TEXTS = Kind(texts, Columns.texts)
SOME_TEXTS = Kind(lambda values: texts(values) if values else None, Columns.texts)
SOME_NAMES = Kind(lambda names: text_list(names) if names else None, Columns.text_list)
NAMES_OR_NONE = Kind(
    lambda names: None if names is None else text_list(names),
    lambda columns, name: columns.text_list(name) if name in columns else None,
)
BLOB = Kind(lambda value: {"B": value}, Columns.blob)
INTEGER = Kind(integer, Columns.integer)
INTEGER_OR_NONE = Kind(integer_or_none, Columns.integer_or_none)
TALLY = Kind(integer, lambda columns, name: columns.integer_or_none(name) or 0)
"""People see the zero."""
COUNT = Kind(lambda count: integer_or_none(count or None), TALLY.read)
"""A zero has no column."""
INTEGERS = Kind(integers, Columns.integers)
NUMBER = Kind(number, Columns.real)
NUMBER_OR_NONE = Kind(number_or_none, Columns.real_or_none)
SCALARS = Kind(lambda values: {"M": {name: scalar(value) for name, value in values.items()}}, Columns.scalars)
FLAG = Kind(flag, Columns.flag)
FLAG_OR_NONE = Kind(lambda value: None if value is None else flag(value), Columns.flag_or_none)
TIME = Kind(lambda at: text(iso_from_epoch(at)), lambda columns, name: columns.made(name, epoch_from_iso))
TIME_OR_NONE = Kind(time_or_none, lambda columns, name: columns.made_or_none(name, epoch_from_iso))
