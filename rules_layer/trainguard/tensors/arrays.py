"""Entries of tensors as numpy arrays: the numbers of their types, shapes and bytes."""

import math
from collections.abc import Sequence

import numpy as np

from trainguard.errors import TelemetryFormatError
from trainguard.tensors.step_view import Tensor

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
"""By the number that TensorFlow gave it. The hook writes text with number 0 and ``string_val``."""

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
