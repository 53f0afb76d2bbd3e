"""Values of several series in buckets of time: how many, their sum, the lowest and the highest.

Integer arithmetic makes a table independent of the order of values. Of too many series those that come first by key
stay.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from trainguard.formats.profile.snapshots import IntArray

_MOST_PLANES = 8


class PackedRows(msgspec.Struct, array_like=True):
    """A matrix: ``planes`` bytes a value of the ``width`` columns from ``first`` on; the others are 0."""

    first: int
    width: int
    planes: int
    data: bytes


def pack_rows(matrix: IntArray) -> PackedRows:
    """Pack int64[R, C], no value below 0; equal matrices give equal bytes."""
    used = np.flatnonzero(matrix.any(axis=0))
    if not used.size:
        return PackedRows(0, 0, 0, b"")
    first, width = int(used[0]), int(used[-1] - used[0]) + 1
    window = matrix[:, first : first + width].ravel()
    planes = (int(window.max()).bit_length() + 7) // 8
    data = np.ascontiguousarray(window, dtype="<i8").view(np.uint8).reshape(-1, _MOST_PLANES)[:, :planes]
    return PackedRows(first, width, planes, np.ascontiguousarray(data.T).tobytes())


def unpack_rows(packed: PackedRows, shape: tuple[int, int]) -> IntArray:
    """Undo `pack_rows` for a matrix of ``shape``; raises ValueError when it cannot be one."""
    rows, columns = shape
    within = packed.first >= 0 and 0 <= packed.width <= columns - packed.first and 0 <= packed.planes <= _MOST_PLANES
    if not within or len(packed.data) != rows * packed.width * packed.planes:
        found = f"{len(packed.data)} bytes for {packed.width} columns from {packed.first} on"
        raise ValueError(f"{found}, expected {rows} rows within {columns} columns")
    matrix = np.zeros(shape, dtype=np.int64)
    if packed.data:
        planes = np.zeros((rows * packed.width, _MOST_PLANES), dtype=np.uint8)
        planes[:, : packed.planes] = np.frombuffer(packed.data, dtype=np.uint8).reshape(packed.planes, -1).T
        matrix[:, packed.first : packed.first + packed.width] = planes.view("<i8")[:, 0].reshape(rows, packed.width)
    if (matrix < 0).any():
        raise ValueError("a negative count, expected none")
    return matrix


Key = tuple[int, str, str]

LOWEST_OF_NONE = 2**62
MOST_SUMMED = 2**61
"""Sums stay here instead of overflowing; no sum of real values comes near."""


class StoredTable(msgspec.Struct, array_like=True):
    """A table as bytes; ``refused`` counts the values of series that had no place."""

    keys: list[Key]
    refused: int
    counts: PackedRows
    totals: PackedRows
    lows: PackedRows
    highs: PackedRows


class BucketTable:
    """Series of non-negative integers over one axis.

    ``counts``, ``totals``, ``lows`` and ``highs`` are int64[S, buckets]; where ``counts`` is 0, ``lows`` is
    LOWEST_OF_NONE. ``refused`` counts values of series that had no place among the ``limit`` ones.
    """

    def __init__(self, buckets: int, limit: int) -> None:
        self.keys: list[Key] = []
        self.refused = 0
        self._buckets = buckets
        self._limit = limit
        self._rows: dict[Key, int] = {}
        self.counts, self.totals, self.lows, self.highs = self._empty(0)

    def add(self, keys: Sequence[Key], series: IntArray, buckets: IntArray, values: IntArray) -> None:
        """Add values, int64[N] from 0 to 1e12, whose ``series``, int64[N], are rows of ``keys``.

        ``buckets``, int64[N], are places on the axis. Keys without a value are not admitted.
        """
        if not values.size:
            return
        met = np.flatnonzero(np.bincount(series, minlength=len(keys)))
        rows = np.full(len(keys), -1, dtype=np.int64)
        rows[met] = self._rows_of([keys[index] for index in met.tolist()])
        places = rows[series]
        if (rows[met] < 0).any():
            known = places >= 0
            self.refused += int(np.count_nonzero(~known))
            places, buckets, values = places[known], buckets[known], values[known]
            if not values.size:
                return
        first = int(buckets.min())
        width = int(buckets.max()) - first + 1
        cells = places * width + (buckets - first)
        shape = (len(self.keys), width)
        counts = np.bincount(cells, minlength=shape[0] * width)
        totals, highs = np.zeros((2, counts.size), dtype=np.int64)
        lows = np.full(counts.size, LOWEST_OF_NONE, dtype=np.int64)
        np.add.at(totals, cells, values)
        np.minimum.at(lows, cells, values)
        np.maximum.at(highs, cells, values)
        window = np.s_[:, first : first + width]
        self._join(window, *(each.reshape(shape) for each in (counts, totals, lows, highs)))

    def merge(self, other: "BucketTable") -> None:
        rows = self._rows_of(other.keys)
        kept = np.flatnonzero(rows >= 0)
        self.refused += other.refused + int(other.counts[rows < 0].sum())
        columns = (other.counts, other.totals, other.lows, other.highs)
        self._join(rows[kept], *(column[kept] for column in columns))

    def row_of(self, key: Key) -> int | None:
        return self._rows.get(key)

    def joined(self, edges: IntArray) -> "BucketTable":
        """Return the table with neighbours joined; ``edges``, int64[B], are the first buckets of the new ones."""
        table = BucketTable(edges.size, self._limit)
        table.keys, table._rows, table.refused = list(self.keys), dict(self._rows), self.refused
        table.counts = np.add.reduceat(self.counts, edges, axis=1)
        table.totals = np.minimum(np.add.reduceat(self.totals, edges, axis=1), MOST_SUMMED)
        table.lows = np.minimum.reduceat(self.lows, edges, axis=1)
        table.highs = np.maximum.reduceat(self.highs, edges, axis=1)
        return table

    def stored(self) -> StoredTable:
        lows = np.where(self.counts > 0, self.lows, 0)
        columns = (self.counts, self.totals, lows, self.highs)
        return StoredTable(list(self.keys), self.refused, *(pack_rows(column) for column in columns))

    @classmethod
    def restored(cls, stored: StoredTable, buckets: int, limit: int) -> "BucketTable":
        table = cls(buckets, limit)
        if len(stored.keys) > limit or sorted(set(stored.keys)) != stored.keys:
            raise ValueError(f"{len(stored.keys)} series, expected at most {limit} in order")
        table._resize(stored.keys)
        table.refused = stored.refused
        shape = (len(stored.keys), buckets)
        packed = (stored.counts, stored.totals, stored.lows, stored.highs)
        table.counts, table.totals, table.lows, table.highs = (unpack_rows(each, shape) for each in packed)
        table.lows[table.counts == 0] = LOWEST_OF_NONE
        return table

    def _rows_of(self, keys: Iterable[Key]) -> IntArray:
        """Return the row of each series, int64[len(keys)], -1 without a place; new ones make room for themselves."""
        wanted = list(keys)
        new = [key for key in wanted if key not in self._rows]
        if new:
            kept = sorted({*self.keys, *new})[: self._limit]
            if kept != self.keys:
                self._resize(kept)
        return np.array([self._rows.get(key, -1) for key in wanted], dtype=np.int64)

    def _resize(self, keys: list[Key]) -> None:
        """Make ``keys`` the series; values of those that lose their place are counted."""
        columns = self.counts, self.totals, self.lows, self.highs
        rows = {key: row for row, key in enumerate(keys)}
        places = np.array([rows.get(key, -1) for key in self.keys], dtype=np.int64)
        self.refused += int(self.counts[places < 0].sum())
        self.keys, self._rows = list(keys), rows
        self.counts, self.totals, self.lows, self.highs = self._empty(len(keys))
        kept = places >= 0
        self._join(places[kept], *(column[kept] for column in columns))

    def _empty(self, series: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        shape = (series, self._buckets)
        counts, totals, highs = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        return counts, totals, np.full(shape, LOWEST_OF_NONE, dtype=np.int64), highs

    def _join(self, cells: Any, counts: IntArray, totals: IntArray, lows: IntArray, highs: IntArray) -> None:
        self.counts[cells] += counts
        self.totals[cells] = np.minimum(self.totals[cells] + totals, MOST_SUMMED)
        self.lows[cells] = np.minimum(self.lows[cells], lows)
        self.highs[cells] = np.maximum(self.highs[cells], highs)
