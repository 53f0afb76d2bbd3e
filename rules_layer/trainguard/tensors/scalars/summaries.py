"""Scalars of one event of TensorBoard: ``simple_value``, or a tensor with one number."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trainguard.errors import TelemetryFormatError
from trainguard.tensors.arrays import DTYPES
from trainguard.tensors.messages import parse_event, text

LONGEST_TAG = 1_024
_PLUGIN = b"scalars"
_LISTS = ("float_val", "double_val", "int_val", "int64_val")


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number; ``at`` in epoch seconds."""

    tag: str
    step: int
    at: float
    value: float


def scalars_of(file: str, payload: bytes) -> list[Scalar]:
    """Return the scalars in an event's payload; histograms, images, texts and graphs are passed over.

    Raises
    ------
    TelemetryFormatError
        When it is no event, or a tag is no text of up to 1,024 characters.
    """
    event = parse_event(file, payload)
    found = []
    for value in event.summary.value:
        number = _number(value)
        if number is None:
            continue
        if len(value.tag) > LONGEST_TAG:
            raise TelemetryFormatError(file, f"a tag has {len(value.tag):,} bytes, expected at most {LONGEST_TAG:,}")
        found.append(Scalar(text(file, value.tag), event.step, event.wall_time, number))
    return found


def _number(value: Any) -> float | None:
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or not _is_scalar(value):
        return None
    tensor = value.tensor
    for name in _LISTS:
        numbers = getattr(tensor, name)
        if len(numbers) == 1:
            return float(numbers[0])
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None or dtype.kind not in "fiub" or len(tensor.tensor_content) != dtype.itemsize:
        return None
    return float(np.frombuffer(tensor.tensor_content, dtype)[0])


def _is_scalar(value: Any) -> bool:
    """Whether a tensor is a scalar by its plugin, or, where none is named, by having no dimensions."""
    plugins = [each.plugin_name for each in value.metadata.plugin_data if each.plugin_name]
    return _PLUGIN in plugins if plugins else not value.tensor.tensor_shape.dim
