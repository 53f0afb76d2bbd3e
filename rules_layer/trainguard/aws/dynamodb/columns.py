"""Records as columns of DynamoDB's attribute values: a table for each kind says where and how a field is stored.

A number is written as the shortest text that reads back as the same float. boto3's TypeSerializer and TypeDeserializer
took 12 times as long to write a row with 30 facts, and 3 times as long to read it. A number beyond DynamoDB's 38 digits
or its magnitudes (1e-130 to 1e126) is kept as ``{"Number": "<text>"}``.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from trainguard.core.timestamps import epoch_from_iso, iso_from_epoch

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue

    Item = dict[str, AttributeValue]
if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue


Scalar = float | int | str | None
Value = TypeVar("Value")

_SMALLEST = 1e-130
_LIMIT = 1e126
_EXACT_INTEGER = 2**sys.float_info.mant_dig
_OUT_OF_RANGE = "Number"
_LONGEST_NAME = 80


def text(value: str) -> "AttributeValue":
    """Write a string."""
    return {"S": value}


def text_or_none(value: str | None) -> "AttributeValue | None":
    """Write a string, or nothing."""
    return None if value is None else text(value)


def integer(value: int) -> "AttributeValue":
    """Write an integer of at most 38 digits."""
    return {"N": str(value)}


def integer_or_none(value: int | None) -> "AttributeValue | None":
    """Write an integer, or nothing."""
    return None if value is None else integer(value)


def number(value: float) -> "AttributeValue":
    """Write a float or an integer such that it reads back as an equal number."""
    if value == 0:
        return {"N": "0"}
    smallest, limit = (1, _EXACT_INTEGER + 1) if isinstance(value, int) else (_SMALLEST, _LIMIT)
    fits = smallest <= abs(value) < limit
    return {"N": repr(value)} if fits else {"M": {_OUT_OF_RANGE: text(repr(value))}}


def number_or_none(value: float | None) -> "AttributeValue | None":
    """Write a number, or nothing."""
    return None if value is None else number(value)


def integers(values: Mapping[str, int]) -> "AttributeValue":
    """Write a map of integers."""
    return {"M": {name: integer(value) for name, value in values.items()}}


def texts(values: Mapping[str, str]) -> "AttributeValue":
    """Write a map of strings."""
    return {"M": {name: text(value) for name, value in values.items()}}


def text_list(values: Iterable[str]) -> "AttributeValue":
    """Write a list of strings."""
    return {"L": [text(value) for value in values]}


def maps(values: "Iterable[Item]") -> "AttributeValue":
    """Write a list of maps."""
    return {"L": [{"M": value} for value in values]}


def scalar(value: Scalar) -> "AttributeValue":
    """Write a parameter's value."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    return text(value) if isinstance(value, str) else number(value)


def present(columns: "Mapping[str, AttributeValue | None]") -> "Item":
    """Return the columns that have a value."""
    return {name: value for name, value in columns.items() if value is not None}


class Columns:
    """Reads an item by the type of each column; raises KeyError for a missing column, ValueError for a wrong one."""

    def __init__(self, item: "Mapping[str, AttributeValue]", within: str = "") -> None:
        self._item = item
        self._within = within

    def __contains__(self, name: str) -> bool:
        return name in self._item

    def text(self, name: str) -> str:
        """Read a string."""
        return self._read(name, _text)

    def text_or_none(self, name: str) -> str | None:
        """Read a string that may be missing."""
        return self.text(name) if name in self._item else None

    def made(self, name: str, make: Callable[[str], Value]) -> Value:
        """Read a string and convert it, to a time or a member of an enumeration."""
        return self._read(name, lambda value: make(_text(value)))

    def made_or_none(self, name: str, make: Callable[[str], Value]) -> Value | None:
        """Read a string that may be missing, and convert it."""
        return self.made(name, make) if name in self._item else None

    def integer(self, name: str) -> int:
        """Read an integer."""
        return self._read(name, _integer)

    def integer_or_none(self, name: str) -> int | None:
        """Read an integer that may be missing."""
        return self.integer(name) if name in self._item else None

    def real(self, name: str) -> float:
        """Read a number."""
        return self._read(name, _real)

    def real_or_none(self, name: str) -> float | None:
        """Read a number that may be missing."""
        return self.real(name) if name in self._item else None

    def flag(self, name: str) -> bool:
        """Read a truth value."""
        return self._read(name, _flag)

    def flag_or_none(self, name: str) -> bool | None:
        """Read a truth value; None where the column is missing or null."""
        return self.flag(name) if "NULL" not in self._item.get(name, {"NULL": True}) else None

    def blob(self, name: str) -> bytes:
        """Read bytes."""
        return self._read(name, _blob)

    def integers(self, name: str) -> Mapping[str, int]:
        """Read a map of integers; a missing column is an empty map."""
        return self._map(name, _integer)

    def texts(self, name: str) -> Mapping[str, str]:
        """Read a map of strings; a missing column is an empty map."""
        return self._map(name, _text)

    def text_list(self, name: str) -> tuple[str, ...]:
        """Read a list of strings; a missing column is an empty one."""
        return self._read(name, _text_list) if name in self._item else ()

    def map_list(self, name: str) -> "list[Columns]":
        """Read a list of maps; a missing column is an empty one."""
        held = self._read(name, _map_list) if name in self._item else []
        return [Columns(each, self._path(name)) for each in held]

    def scalar(self, name: str) -> Scalar:
        """Read a number, a text, a truth value or null."""
        return self._read(name, _scalar)

    def scalars(self, name: str) -> Mapping[str, Scalar]:
        """Read a map of parameter values; a missing column is an empty map."""
        return self._map(name, _scalar)

    def nested(self, name: str) -> "Mapping[str, Columns]":
        """Read a map of maps; a missing column is an empty map."""
        held = self._held(name)
        return MappingProxyType({key: Columns(held._read(key, _inner), held._path(key)) for key in held._item})

    def _map(self, name: str, read: "Callable[[AttributeValue], Value]") -> Mapping[str, Value]:
        held = self._held(name)
        return MappingProxyType({key: held._read(key, read) for key in held._item})

    def _held(self, name: str) -> "Columns":
        return Columns(self._read(name, _inner) if name in self._item else {}, self._path(name))

    def _read(self, name: str, read: "Callable[[AttributeValue], Value]") -> Value:
        if name not in self._item:
            raise KeyError(self._path(name))
        value = self._item[name]
        try:
            return read(value)
        except KeyError as fault:
            raise ValueError(f"there is no {fault} in {self._path(name)}, which is {value!r:.100}") from fault
        except (ValueError, TypeError, AttributeError) as fault:
            raise ValueError(f"{self._path(name)} is {value!r:.100}: {fault}") from fault

    def _path(self, name: str) -> str:
        return f"{self._within}.{name[:_LONGEST_NAME]!r}" if self._within else name


def _text(value: "AttributeValue") -> str:
    return value["S"]


def _integer(value: "AttributeValue") -> int:
    return int(value["N"])


def _real(value: "AttributeValue") -> float:
    return float(_read_number(value))


def _flag(value: "AttributeValue") -> bool:
    return value["BOOL"]


def _blob(value: "AttributeValue") -> bytes:
    return bytes(value["B"])


def _text_list(value: "AttributeValue") -> tuple[str, ...]:
    return tuple(each["S"] for each in value["L"])


def _map_list(value: "AttributeValue") -> "list[Mapping[str, AttributeValue]]":
    return [_inner(each) for each in value["L"]]


def _inner(value: "AttributeValue") -> "Mapping[str, AttributeValue]":
    return cast("Mapping[str, AttributeValue]", value["M"])


def _scalar(value: "AttributeValue") -> Scalar:
    if "NULL" in value:
        return None
    if "BOOL" in value:
        return value["BOOL"]
    return value["S"] if "S" in value else _read_number(value)


def _read_number(value: "AttributeValue") -> float | int:
    """Read a number: integral text is an integer where floats could not mean another one."""
    stored = value["N"] if "N" in value else _inner(value)[_OUT_OF_RANGE]["S"]
    if not stored.lstrip("-").isdigit():
        return float(stored)
    exact = int(stored)
    return exact if "M" in value or abs(exact) <= _EXACT_INTEGER else float(stored)


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
    return {field: kind.read(columns, names.get(field, name)) for field, (name, kind) in layout.items()}


def flag(value: bool) -> "AttributeValue":  # A value to be written.
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
