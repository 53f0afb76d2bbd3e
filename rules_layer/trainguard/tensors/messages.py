"""The protobuf messages of event files: the fields that TrainGuard reads, with TensorFlow's numbers."""

from typing import Any

from google.protobuf import message

from trainguard.errors import TelemetryFormatError
from trainguard.message_classes import BOOL, BYTES, DOUBLE, FLOAT, INT32, INT64, MESSAGE, MessageTable, message_classes

_MESSAGES: MessageTable = {
    "Event": [("wall_time", 1, DOUBLE, ""), ("step", 2, INT64, ""), ("summary", 5, MESSAGE, "Summary")],
    "Summary": [("value", 1, MESSAGE, "Value*")],
    "Value": [
        ("tag", 1, BYTES, ""),
        ("simple_value", 2, FLOAT, ""),
        ("tensor", 8, MESSAGE, "TensorProto"),
        ("metadata", 9, MESSAGE, "SummaryMetadata"),
    ],
    "SummaryMetadata": [("plugin_data", 1, MESSAGE, "PluginData*")],
    "PluginData": [("plugin_name", 1, BYTES, ""), ("content", 2, BYTES, "")],
    "TensorProto": [
        ("dtype", 1, INT32, ""),
        ("tensor_shape", 2, MESSAGE, "TensorShapeProto"),
        ("tensor_content", 4, BYTES, ""),
        ("float_val", 5, FLOAT, "*"),
        ("double_val", 6, DOUBLE, "*"),
        ("int_val", 7, INT32, "*"),
        ("string_val", 8, BYTES, "*"),
        ("int64_val", 10, INT64, "*"),
        ("bool_val", 11, BOOL, "*"),
    ],
    "TensorShapeProto": [("dim", 2, MESSAGE, "Dim*")],
    "Dim": [("size", 1, INT64, ""), ("name", 2, BYTES, "")],
}

_CLASSES = message_classes("trainguard.events", _MESSAGES)
Event: Any = _CLASSES["Event"]
TensorShape: Any = _CLASSES["TensorShapeProto"]


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
