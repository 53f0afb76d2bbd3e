"""Values of several series in buckets of time: how many, their sum, the lowest and the highest.

Integer arithmetic makes a table independent of the order of values. Of too many series those that come first by key
stay.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from trainguard.formats.profile.snapshots import IntArray

_MOST_PLANES = 8


# A matrix: first column and width of what is not 0, and bytes a value, which are ``planes``; then those planes.
PackedRows = tuple[int, int, int, bytes]


def pack_rows(matrix: IntArray) -> PackedRows:
    """Pack int64[R, C], no value below 0; equal matrices give equal bytes."""
    used = np.flatnonzero(matrix.any(axis=0))
    if not used.size:
        return 0, 0, 0, b""
    first, width = int(used[0]), int(used[-1] - used[0]) + 1
    window = matrix[:, first : first + width].ravel()
    planes = (int(window.max()).bit_length() + 7) // 8
    data = np.ascontiguousarray(window, dtype="<i8").view(np.uint8).reshape(-1, _MOST_PLANES)[:, :planes]
    return first, width, planes, np.ascontiguousarray(data.T).tobytes()


def unpack_rows(packed: PackedRows, shape: tuple[int, int]) -> IntArray:
    """Undo `pack_rows` for a matrix of ``shape``; raises ValueError when it cannot be one."""
    (rows, columns), (first, width, used, data) = shape, packed
    within = first >= 0 and 0 <= width <= columns - first and 0 <= used <= _MOST_PLANES
    if not within or len(data) != rows * width * used:
        found = f"{len(data)} bytes for {width} columns from {first} on"
        raise ValueError(f"{found}, expected {rows} rows within {columns} columns")
    matrix = np.zeros(shape, dtype=np.int64)
    if data:
        planes = np.zeros((rows * width, _MOST_PLANES), dtype=np.uint8)
        planes[:, :used] = np.frombuffer(data, dtype=np.uint8).reshape(used, -1).T
        matrix[:, first : first + width] = planes.view("<i8")[:, 0].reshape(rows, width)
    if (matrix < 0).any():
        raise ValueError("a negative count, expected none")
    return matrix


Key = tuple[int, str, str]

LOWEST_OF_NONE = 2**62
# Sums stay here instead of overflowing; no sum of real values comes near.
MOST_SUMMED = 2**61


# A table as bytes: its series, how many values of others had no place, counts, totals, lowest and highest values.
StoredTable = tuple[list[Key], int, PackedRows, PackedRows, PackedRows, PackedRows]


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
        self._hold(self._empty(0))

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
        self._join(rows[kept], *other._cells[:, kept])

    def row_of(self, key: Key) -> int | None:
        return self._rows.get(key)

    def joined(self, edges: IntArray) -> "BucketTable":
        """Return the table with neighbours joined; ``edges``, int64[B], are the first buckets of the new ones."""
        table = BucketTable(edges.size, self._limit)
        table.keys, table._rows, table.refused = list(self.keys), dict(self._rows), self.refused
        table._hold(table._empty(len(self.keys)))
        for join, cells, joined in zip(
            (np.add, np.add, np.minimum, np.maximum), self._cells, table._cells, strict=True
        ):
            join.reduceat(cells, edges, axis=1, out=joined)
        np.minimum(table.totals, MOST_SUMMED, out=table.totals)
        return table

    def stored(self) -> StoredTable:
        lows = np.where(self.counts > 0, self.lows, 0)
        counts, totals, lowest, highs = map(pack_rows, (self.counts, self.totals, lows, self.highs))
        return list(self.keys), self.refused, counts, totals, lowest, highs

    @classmethod
    def restored(cls, stored: StoredTable, buckets: int, limit: int) -> "BucketTable":
        table = cls(buckets, limit)
        keys, refused, *packed = stored
        if len(keys) > limit or sorted(set(keys)) != keys:
            raise ValueError(f"{len(keys)} series, expected at most {limit} in order")
        table._resize(keys)
        table.refused = refused
        for cells, each in zip(table._cells, packed, strict=True):
            cells[:] = unpack_rows(each, (len(keys), buckets))
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
        cells, rows = self._cells, {key: row for row, key in enumerate(keys)}
        places = np.array([rows.get(key, -1) for key in self.keys], dtype=np.int64)
        self.refused += int(self.counts[places < 0].sum())
        self.keys, self._rows = list(keys), rows
        self._hold(self._empty(len(keys)))
        kept = places >= 0
        self._join(places[kept], *cells[:, kept])

    def _empty(self, series: int) -> IntArray:
        cells = np.zeros((4, series, self._buckets), dtype=np.int64)
        cells[2] = LOWEST_OF_NONE
        return cells

    def _hold(self, cells: IntArray) -> None:
        self.counts, self.totals, self.lows, self.highs = self._cells = cells

    def _join(self, cells: Any, counts: IntArray, totals: IntArray, lows: IntArray, highs: IntArray) -> None:
        self.counts[cells] += counts
        self.totals[cells] = np.minimum(self.totals[cells] + totals, MOST_SUMMED)
        self.lows[cells] = np.minimum(self.lows[cells], lows)
        self.highs[cells] = np.maximum(self.highs[cells], highs)
