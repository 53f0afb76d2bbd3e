"""The protobuf messages of event files: the fields that TrainGuard reads, with the numbers that TensorFlow gave them.

The classes are made from descriptors when this module is imported. Texts are bytes: whoever reads one says how.
"""

from typing import Any, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from trainguard.errors import TelemetryFormatError

_DOUBLE, _FLOAT, _INT64, _INT32, _BOOL, _MESSAGE, _BYTES = 1, 2, 3, 5, 8, 11, 12
_OPTIONAL, _REPEATED = 1, 3
_PACKAGE = "trainguard.events"

_MESSAGES: dict[str, list[tuple[str, int, int, str]]] = {
    "Event": [("wall_time", 1, _DOUBLE, ""), ("step", 2, _INT64, ""), ("summary", 5, _MESSAGE, "Summary")],
    "Summary": [("value", 1, _MESSAGE, "Value*")],
    "Value": [
        ("tag", 1, _BYTES, ""),
        ("simple_value", 2, _FLOAT, ""),
        ("tensor", 8, _MESSAGE, "TensorProto"),
        ("metadata", 9, _MESSAGE, "SummaryMetadata"),
    ],
    "SummaryMetadata": [("plugin_data", 1, _MESSAGE, "PluginData*")],
    "PluginData": [("plugin_name", 1, _BYTES, ""), ("content", 2, _BYTES, "")],
    "TensorProto": [
        ("dtype", 1, _INT32, ""),
        ("tensor_shape", 2, _MESSAGE, "TensorShapeProto"),
        ("tensor_content", 4, _BYTES, ""),
        ("float_val", 5, _FLOAT, "*"),
        ("double_val", 6, _DOUBLE, "*"),
        ("int_val", 7, _INT32, "*"),
        ("string_val", 8, _BYTES, "*"),
        ("int64_val", 10, _INT64, "*"),
        ("bool_val", 11, _BOOL, "*"),
    ],
    "TensorShapeProto": [("dim", 2, _MESSAGE, "Dim*")],
    "Dim": [("size", 1, _INT64, ""), ("name", 2, _BYTES, "")],
}
"""By message: name, number, type, and the message or a star for what is repeated."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="trainguard/events.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for field, number, kind, target in fields:
            label = _REPEATED if target.endswith("*") else _OPTIONAL
            added = described.field.add(name=field, number=number, type=cast("Any", kind), label=cast("Any", label))
            if target.rstrip("*"):
                added.type_name = f".{_PACKAGE}.{target.rstrip('*')}"
            if label == _REPEATED and kind not in {_BYTES, _MESSAGE}:
                added.options.packed = True
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


Event: Any = _class("Event")
TensorShape: Any = _class("TensorShapeProto")


def parse_event(file: str, payload: bytes) -> Any:
    """Return the Event in a frame's payload; raises TelemetryFormatError when it is none."""
    try:
        return Event.FromString(payload)
    except message.DecodeError as fault:
        raise TelemetryFormatError(file, f"a frame holds no event: {fault}") from fault


def text(file: str, content: bytes) -> str:
    """Return a text of a message; raises TelemetryFormatError when it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as fault:
        raise TelemetryFormatError(file, f"{content[:40]!r} is no UTF-8 text") from fault
