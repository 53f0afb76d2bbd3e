"""Matrices of non-negative integers as few bytes: the columns that are used, in byte planes that compress well."""

import msgspec
import numpy as np

from trainguard.telemetry.snapshots import IntArray

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
