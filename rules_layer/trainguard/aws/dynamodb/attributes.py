"""Records as columns of DynamoDB's attribute values: a table for each kind says where and how a field is stored.

A number is written as the shortest text that reads back as the same float. boto3's TypeSerializer and TypeDeserializer
took 12 times as long to write a row with 30 facts, and 3 times as long to read it. A number beyond DynamoDB's 38 digits
or its magnitudes (1e-130 to 1e126) is kept as ``{"Number": "<text>"}``.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from trainguard.core.timestamps import epoch_from_iso, iso_from_epoch

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    AttributeValue = AttributeValueTypeDef
    Item = dict[str, AttributeValue]


Scalar = float | int | str | None

_SMALLEST = 1e-130
_LIMIT = 1e126
_EXACT_INTEGER = 2**sys.float_info.mant_dig
_OUT_OF_RANGE = "Number"
_LONGEST_NAME = 80
_REQUIRED = object()


@dataclass(frozen=True, slots=True)
class AttributeType:
    """How a value is written and read; a missing column reads as ``default``, which has no column if ``omitted``."""

    write: "Callable[[Any], AttributeValue]"
    read: "Callable[[AttributeValue], Any]"
    default: Any = _REQUIRED
    omitted: bool = False

    def column(self, value: Any) -> "AttributeValue | None":
        """Write a value, None where it has no column."""
        return None if self.omitted and value == self.default else self.write(value)

    def unless(self, default: Any) -> "AttributeType":
        """Return the kind of a column that is there unless the value is ``default``."""
        return replace(self, default=default, omitted=True)


# Name and kind of the column of each field.
Layout = Mapping[str, tuple[str, AttributeType]]


class ItemColumns:
    """Reads an item by the kind of each column; raises KeyError for a missing column, ValueError for a wrong one."""

    def __init__(self, item: "Mapping[str, AttributeValue]") -> None:
        self._item = item

    def __contains__(self, name: str) -> bool:
        return name in self._item

    def get(self, name: str, kind: AttributeType) -> Any:
        if name not in self._item:
            if kind.default is _REQUIRED:
                raise KeyError(name)
            return kind.default
        value, place = self._item[name], name[:_LONGEST_NAME]
        try:
            return kind.read(value)
        except KeyError as fault:
            raise ValueError(f"there is no {fault} in {place}, which is {value!r:.100}") from fault
        except (ValueError, TypeError, AttributeError) as fault:
            raise ValueError(f"{place} is {value!r:.100}: {fault}") from fault


def present(columns: "Mapping[str, AttributeValue | None]") -> "Item":
    return {name: value for name, value in columns.items() if value is not None}


def written(record: object, layout: Layout) -> "dict[str, AttributeValue | None]":
    return {name: kind.column(getattr(record, field)) for field, (name, kind) in layout.items()}


def fields_of(columns: ItemColumns, layout: Layout) -> dict[str, Any]:
    return {field: columns.get(name, kind) for field, (name, kind) in layout.items()}


def inner(value: "AttributeValue") -> ItemColumns:
    return ItemColumns(cast("Mapping[str, AttributeValue]", value["M"]))


def text(value: str) -> "AttributeValue":
    return {"S": value}


def integer(value: int) -> "AttributeValue":
    """Write an integer of at most 38 digits."""
    return {"N": str(value)}


def flag(value: bool) -> "AttributeValue":  # A value to be written.
    return {"BOOL": value}


def moment(epoch_s: float) -> "AttributeValue":
    """Write a time: its text has a fixed width, so that a comparison of texts is one of times."""
    return text(iso_from_epoch(epoch_s))


def number(value: float) -> "AttributeValue":
    """Write a float or an integer such that it reads back as an equal number."""
    if value == 0:
        return {"N": "0"}
    smallest, limit = (1, _EXACT_INTEGER + 1) if isinstance(value, int) else (_SMALLEST, _LIMIT)
    fits = smallest <= abs(value) < limit
    return {"N": repr(value)} if fits else {"M": {_OUT_OF_RANGE: text(repr(value))}}


def _read_number(value: "AttributeValue") -> float | int:
    """Read a number: integral text is an integer where floats could not mean another one."""
    stored = value["N"] if "N" in value else value["M"][_OUT_OF_RANGE]["S"]
    if not stored.lstrip("-").isdigit():
        return float(stored)
    exact = int(stored)
    return exact if "M" in value or abs(exact) <= _EXACT_INTEGER else float(stored)


def scalar(value: Scalar) -> "AttributeValue":
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return flag(value)
    return text(value) if isinstance(value, str) else number(value)


def _read_scalar(value: "AttributeValue") -> Scalar:
    if "NULL" in value:
        return None
    if "BOOL" in value:
        return value["BOOL"]
    return value["S"] if "S" in value else _read_number(value)


def list_of(kind: AttributeType) -> AttributeType:
    """Return the kind of a list, which is read as a tuple."""

    def write(values: Iterable[Any]) -> "AttributeValue":
        return {"L": [kind.write(value) for value in values]}

    return AttributeType(write, lambda value: tuple(kind.read(each) for each in value["L"]))


def map_of(kind: AttributeType) -> AttributeType:
    """Return the kind of a map, which is read-only; a missing one is empty."""

    def write(values: Mapping[str, Any]) -> "AttributeValue":
        return {"M": {name: kind.write(value) for name, value in values.items()}}

    def read(value: "AttributeValue") -> Mapping[str, Any]:
        held = inner(value)
        return MappingProxyType({name: held.get(name, kind) for name in value["M"]})

    return AttributeType(write, read, default=MappingProxyType({}))


def record_of(make: Callable[..., Any], layout: Layout) -> AttributeType:
    """Return the kind of a record's map."""
    return AttributeType(
        lambda record: {"M": present(written(record, layout))}, lambda value: make(**fields_of(inner(value), layout))
    )


def member(kind: type[StrEnum]) -> AttributeType:
    """Return how a member of an enumeration is kept."""
    return AttributeType(text, lambda value: kind(value["S"]))


TEXT = AttributeType(text, lambda value: value["S"])
TEXT_OR_NONE = TEXT.unless(None)
NAME = TEXT.unless("")
TEXTS = map_of(TEXT)
SOME_TEXTS = TEXTS.unless(TEXTS.default)
NAMES_OR_NONE = list_of(TEXT).unless(None)
SOME_NAMES = list_of(TEXT).unless(())
BLOB = AttributeType(lambda value: {"B": value}, lambda value: bytes(value["B"]))
INTEGER = AttributeType(integer, lambda value: int(value["N"]))
INTEGER_OR_NONE = INTEGER.unless(None)
# People see the zero.
TALLY = replace(INTEGER, default=0)

COUNT = INTEGER.unless(0)
INTEGERS = map_of(INTEGER)
NUMBER = AttributeType(number, lambda value: float(_read_number(value)))
NUMBER_OR_NONE = NUMBER.unless(None)
SCALAR = AttributeType(scalar, _read_scalar)
SCALARS = map_of(SCALAR)
FLAG = AttributeType(flag, lambda value: value["BOOL"])
FLAG_OR_NONE = AttributeType(flag, lambda value: None if "NULL" in value else value["BOOL"], default=None, omitted=True)
TIME = AttributeType(moment, lambda value: epoch_from_iso(value["S"]))
TIME_OR_NONE = TIME.unless(None)
