"""Which events hold one large value, such as a histogram, and so no scalar: seen from their first bytes, at once."""

import numpy as np
from numpy.typing import NDArray

from trainguard.tensors.frames import Walk

SMALLEST = 512
"""Shorter payloads are not looked at."""

_HEAD = 256
_LARGE = 128
"""A tensor with one number takes fewer bytes."""

_WALL_TIME, _STEP, _SUMMARY, _VALUE, _TAG = 0x09, 0x10, 0x2A, 0x0A, 0x0A
_LARGE_FIELDS = (0x22, 0x2A, 0x32, 0x42)
"""Keys of image, histogram, audio and tensor in a value."""

Ints = NDArray[np.int64]


def hold_no_scalar(content: bytes, walk: Walk, frames: Ints) -> NDArray[np.bool_]:
    """Say of frames whether they hold nothing but one large value (bool[F]).

    Such a payload is an event with a time, maybe a step, and a summary of one value up to its end. That value has a tag
    and then a field of more bytes than a scalar takes. An event of any other form is False.
    """
    found = np.zeros(frames.size, bool)
    starts, lengths = walk.starts[frames], walk.lengths[frames]
    large = np.flatnonzero((lengths > SMALLEST) & (starts + _HEAD <= len(content)))
    if large.size:
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(content, np.uint8), _HEAD)
        found[large] = _Heads(windows[starts[large]]).end_in_one_value(lengths[large])
    return found


class _Heads:
    """The first bytes of payloads, and how far each of them was read."""

    def __init__(self, table: NDArray[np.uint8]) -> None:
        self._table = table
        self._rows = np.arange(len(table))
        self._at = np.zeros(len(table), np.int64)
        self._good = np.ones(len(table), bool)

    def end_in_one_value(self, lengths: Ints) -> NDArray[np.bool_]:
        self._good &= self._next() == _WALL_TIME
        self._at += 8
        has_step = self._byte() == _STEP
        before = self._at.copy()
        self._at += 1
        self._number()
        self._at = np.where(has_step, self._at, before)
        for key in (_SUMMARY, _VALUE):
            self._good &= self._next() == key
            self._good &= self._number() + self._at == lengths
        self._good &= self._next() == _TAG
        self._at += self._number()
        self._good &= np.isin(self._next(), _LARGE_FIELDS)
        self._good &= self._number() > _LARGE
        return self._good

    def _byte(self) -> NDArray[np.uint8]:
        """Return the byte that each row is at; where that lies behind the table the row is no good."""
        self._good &= self._at < self._table.shape[1]
        byte: NDArray[np.uint8] = self._table[self._rows, np.minimum(self._at, self._table.shape[1] - 1)]
        return byte

    def _next(self) -> NDArray[np.uint8]:
        byte = self._byte()
        self._at += 1
        return byte

    def _number(self) -> Ints:
        """Return the varint that each row is at, of up to 35 bits."""
        value = np.zeros(len(self._rows), np.int64)
        more = np.ones(len(self._rows), bool)
        for place in range(5):
            byte = self._byte()
            value |= np.where(more, byte & 0x7F, 0).astype(np.int64) << (7 * place)
            self._at += more
            more &= byte >= 0x80
            if not more.any():
                break
        self._good &= ~more
        return np.minimum(value, 2**35)
