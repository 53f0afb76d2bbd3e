"""Whole numbers as base64 text: LEB128, so that small ones take a byte each.

The page's decoder is ``assets/kernels/columns.js``. It holds numbers as doubles, so none is larger than `LARGEST`.
"""

import base64

import numpy as np

from trainguard.kernels.columns import Ints

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
    return base64.b64encode(packed.tobytes()).decode("ascii")


def pack_signed(values: Ints) -> str:
    """Pack numbers of any sign: 0, -1, 1, -2 as 0, 1, 2, 3."""
    kept = np.clip(values, -(LARGEST >> 1), LARGEST >> 1)
    return pack_counts(np.where(kept < 0, -2 * kept - 1, 2 * kept))


def pack_steps(values: Ints) -> str:
    """Pack numbers as what each is more than the one before."""
    return pack_signed(np.diff(values, prepend=0))


def unpack_counts(text: str) -> list[int]:
    """Read what pack_counts wrote."""
    found, value, shift = [], 0, 0
    for byte in base64.b64decode(text):
        value |= (byte & 0x7F) << shift
        shift += _BITS
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return found
