"""Values of any type, as versions of a format write them, to whole numbers and doubles."""

from typing import Any

import numpy as np

from trainguard.kernels.columns import Floats, Ints

_INT64 = 1 << 63
_UNKNOWN = -1


def whole(value: Any) -> int:
    """Return a whole number as int64 holds it; -1 for anything else."""
    if type(value) is int:
        return value if -_INT64 <= value < _INT64 else _UNKNOWN
    if isinstance(value, str):
        try:
            return whole(int(value, 0))
        except ValueError:
            return _UNKNOWN
    if isinstance(value, float) and value.is_integer() and abs(value) < _INT64:
        return int(value)
    return _UNKNOWN


def number(value: Any) -> float:
    """Return a number; NaN for anything else."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return float("nan")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < _INT64 else float("nan")
    return float("nan")


def floats(values: list[Any]) -> Floats:
    """Return numbers; NaN for what is none."""
    try:
        found = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.empty((0, 0))
    return found if found.ndim == 1 else np.array([number(value) for value in values], dtype=np.float64)


def ints(values: list[Any]) -> Ints:
    """Return whole numbers; -1 for what is none."""
    try:
        found = np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        found = np.empty((0, 0), dtype=np.int64)
    return found if found.ndim == 1 else np.array([whole(value) for value in values], dtype=np.int64)
