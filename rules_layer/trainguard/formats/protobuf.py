"""Protobuf messages from tables of their fields, without generated code; texts are bytes. Imports protobuf."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DOUBLE, FLOAT, INT64, UINT64, INT32, BOOL, MESSAGE, BYTES, UINT32, SINT64 = 1, 2, 3, 4, 5, 8, 11, 12, 13, 18
"""Types of fields, numbered as in protobuf's descriptors."""

_OPTIONAL, _REPEATED = 1, 3

MessageTable = Mapping[str, Sequence[tuple[str, int, int, str]]]
"""By message: name, number, type, and the message, or nothing, followed by a star for what is repeated."""


def message_classes(package: str, table: MessageTable) -> Mapping[str, Any]:
    """Return a class for each message of a table; ``package`` is a name of its own."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_described(package, table))
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in table}


def _described(package: str, table: MessageTable) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package.replace('.', '/')}.proto", package=package, syntax="proto2"
    )
    for name, fields in table.items():
        described = file.message_type.add(name=name)
        for field, number, kind, target in fields:
            label = _REPEATED if target.endswith("*") else _OPTIONAL
            added = described.field.add(name=field, number=number, type=cast("Any", kind), label=cast("Any", label))
            if target.rstrip("*"):
                added.type_name = f".{package}.{target.rstrip('*')}"
            if label == _REPEATED and kind not in {BYTES, MESSAGE}:
                added.options.packed = True
    return file
