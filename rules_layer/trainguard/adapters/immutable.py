"""Records that nobody can change behind a store's back."""

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)

Key = TypeVar("Key")
Value = TypeVar("Value")


def frozen_mapping(mapping: Mapping[Key, Value]) -> Mapping[Key, Value]:
    """Return a read-only copy."""
    return MappingProxyType(dict(mapping))


def frozen_record(record: "Record", **changes: object) -> "Record":
    """Return the record with ``changes`` and with a read-only copy in each field that holds a mapping.

    Both kinds of stores hand out such records, so code that changes one in place fails in a test as it would not in
    production, where it would silently change nothing but its own copy.
    """
    mappings = {
        declared.name: frozen_mapping(held)
        for declared in fields(record)
        if isinstance(held := changes.get(declared.name, getattr(record, declared.name)), Mapping)
    }
    return replace(record, **(changes | mappings))
