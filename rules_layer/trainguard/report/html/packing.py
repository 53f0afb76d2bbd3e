"""Series as base64 text: small in the page, and read by its script without parsing numbers.

A percentage is one byte in half percents, 255 where nothing was collected; any other value four bytes, a little-endian
float32, NaN where nothing was collected. The page's decoder is ``assets/timelines/data.js``.
"""

import base64
from collections.abc import Sequence

import numpy as np

MISSING = 255
STEPS_A_PERCENT = 2


def pack_percents(values: Sequence[float | None]) -> str:
    """Pack percentages; what lies outside 0 to 100 is drawn on that edge."""
    found = _floats(values)
    kept = np.nan_to_num(np.clip(found, 0.0, 100.0), nan=0.0)
    steps = np.rint(kept * STEPS_A_PERCENT).astype(np.uint8)
    return _text(np.where(np.isnan(found), np.uint8(MISSING), steps).tobytes())


def unpack_percents(text: str) -> list[float | None]:
    """Read what pack_percents wrote: exact to a quarter of a percent."""
    steps = np.frombuffer(base64.b64decode(text), np.uint8)
    return [None if each == MISSING else each / STEPS_A_PERCENT for each in steps.tolist()]


def pack_floats(values: Sequence[float | None]) -> str:
    """Pack values of any size, to the seven digits of a float32."""
    limit = float(np.finfo(np.float32).max)
    return _text(np.clip(_floats(values), -limit, limit).astype("<f4").tobytes())


def unpack_floats(text: str) -> list[float | None]:
    """Read what pack_floats wrote."""
    found = np.frombuffer(base64.b64decode(text), "<f4")
    return [None if np.isnan(each) else float(each) for each in found]


def _floats(values: Sequence[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([np.nan if each is None else each for each in values], np.float64)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
