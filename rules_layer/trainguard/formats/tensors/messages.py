"""The protobuf messages of event files, with TensorFlow's numbers of fields, and entries of tensors as numpy arrays."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf import message

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.protobuf import BOOL, BYTES, DOUBLE, FLOAT, INT32, INT64, MESSAGE, MessageTable, message_classes
from trainguard.formats.tensors.step_view import Tensor

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


DTYPES: dict[int, np.dtype[np.generic]] = {
    number: np.dtype(name)
    for number, name in {
        1: "<f4",
        2: "<f8",
        3: "<i4",
        4: "u1",
        5: "<i2",
        6: "i1",
        8: "<c8",
        9: "<i8",
        10: "?",
        17: "<u2",
        18: "<c16",
        19: "<f2",
        22: "<u4",
        23: "<u8",
    }.items()
}
"""By TensorFlow's number. The hook writes text with number 0 and ``string_val``."""

TEXT = 0
MOST_DIMENSIONS = 32
_TF_TEXT = 7


def is_text(dtype: int) -> bool:
    """Whether a type's number says text: the hook's, or TensorFlow's own."""
    return dtype in {TEXT, _TF_TEXT}


def dtype_of(file: str, number: int) -> "np.dtype[np.generic]":
    """Return the type of a number; raises TelemetryFormatError for one that is not read."""
    found = DTYPES.get(number)
    if found is None:
        raise TelemetryFormatError(
            file, f"a tensor has dtype {number}, expected one of {sorted(DTYPES)}, or {TEXT} for text"
        )
    return found


def check_shape(file: str, shape: Sequence[int], content: int, itemsize: int) -> tuple[int, ...]:
    """Return a shape whose entries take as many bytes as there are; raises TelemetryFormatError for another."""
    if len(shape) > MOST_DIMENSIONS or any(size < 0 for size in shape):
        raise TelemetryFormatError(
            file, f"a tensor has shape {list(shape[:MOST_DIMENSIONS])}, expected sizes from 0 on"
        )
    if math.prod(shape) * itemsize != content:
        raise TelemetryFormatError(
            file, f"a tensor of shape {list(shape)} and {itemsize} bytes an entry has {content:,} bytes"
        )
    return tuple(shape)


def numbers(file: str, dtype: int, shape: Sequence[int], content: bytes) -> Tensor:
    """Return entries from their bytes, which stay where they are; the array cannot be written to."""
    kind = dtype_of(file, dtype)
    checked = check_shape(file, shape, len(content), kind.itemsize)
    return np.frombuffer(content, kind).reshape(checked)


def texts(file: str, shape: Sequence[int], content: Sequence[bytes]) -> Tensor:
    """Return texts as an array of dtype ``object``; a byte that is no UTF-8 is replaced."""
    checked = check_shape(file, shape, len(content), 1)
    array = np.empty(len(content), dtype=object)
    array[:] = [each.decode(errors="replace") for each in content]
    return array.reshape(checked)
