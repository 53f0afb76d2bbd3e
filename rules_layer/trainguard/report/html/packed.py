"""Numbers as a page's script reads them, packed into text, and JSON that may stand in a page."""

import base64
from collections.abc import Sequence

import numpy as np

from trainguard.kernels.columns import Ints

MISSING = 255
STEPS_A_PERCENT = 2


def pack_percents(values: Sequence[float | None]) -> str:
    """Pack percentages; what lies outside 0 to 100 is drawn on that edge."""
    found = _floats(values)
    kept = np.nan_to_num(np.clip(found, 0.0, 100.0), nan=0.0)
    steps = np.rint(kept * STEPS_A_PERCENT).astype(np.uint8)
    return _text(np.where(np.isnan(found), np.uint8(MISSING), steps).tobytes())


def pack_floats(values: Sequence[float | None]) -> str:
    """Pack values of any size, to the seven digits of a float32."""
    limit = float(np.finfo(np.float32).max)
    return _text(np.clip(_floats(values), -limit, limit).astype("<f4").tobytes())


def _floats(values: Sequence[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([np.nan if each is None else each for each in values], np.float64)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


LARGEST = (1 << 53) - 1
_BITS = 7


def pack_counts(values: Ints) -> str:
    """Pack numbers of 0 or more; smaller ones become 0, larger ones than `LARGEST` become it."""
    left = np.clip(values, 0, LARGEST)
    length = np.ones(len(left), dtype=np.int64)
    for more in range(_BITS, LARGEST.bit_length(), _BITS):
        length += left >> more > 0
    ends = np.cumsum(length)
    packed = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    begins = ends - length
    for place in range(int(length.max()) if len(length) else 0):
        has = length > place
        bits = left[has] >> (_BITS * place) & 0x7F
        packed[begins[has] + place] = bits | np.where(length[has] > place + 1, 0x80, 0)
    return _text(packed.tobytes())


def pack_signed(values: Ints) -> str:
    """Pack numbers of any sign: 0, -1, 1, -2 as 0, 1, 2, 3."""
    kept = np.clip(values, -(LARGEST >> 1), LARGEST >> 1)
    return pack_counts(np.where(kept < 0, -2 * kept - 1, 2 * kept))


def pack_steps(values: Ints) -> str:
    """Pack numbers as what each is more than the one before."""
    return pack_signed(np.diff(values, prepend=0))


# JSON needs none of these outside of strings, and every reader of JSON takes the escapes.
_ESCAPES = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})


def in_script(document: bytes) -> str:
    """Return JSON that cannot end the script element in which it stands."""
    return document.decode().translate(_ESCAPES)
