"""The points of a window as a matrix, and as the packed columns that are stored: time, mean CPU, then those of GPUs."""

from collections.abc import Sequence

import numpy as np

from trainguard.state.codec import PackedColumn, pack_column, unpack_column, unpack_columns
from trainguard.telemetry.snapshots import FloatArray


def gpus_of(columns: Sequence[PackedColumn]) -> int:
    """Return of how many GPUs a window's columns are: time, mean CPU, and two of each GPU.

    Raises
    ------
    ValueError
        When their number is another one, or they differ in length.
    """
    if len(columns) % 2 or len({each.points for each in columns}) > 1:
        lengths = sorted({each.points for each in columns})
        raise ValueError(f"{len(columns)} columns of {lengths} points, expected two and two for each GPU, alike")
    return max(len(columns) // 2 - 1, 0)


def empty_matrix(gpus: int) -> FloatArray:
    """Return the matrix of no point: float64[0, 2 + 2G]."""
    return np.empty((0, 2 + 2 * gpus))


def packed(matrix: FloatArray) -> list[PackedColumn]:
    """Pack float64[K, 2 + 2G]: times as steps, then the other columns."""
    if len(matrix) == 0:
        return []
    steps = np.diff(matrix[:, 0], prepend=0.0)
    return [pack_column(steps), *(pack_column(np.ascontiguousarray(column)) for column in matrix[:, 1:].T)]


def unpacked(columns: list[PackedColumn], gpus: int) -> FloatArray:
    """Return the matrix, float64[K, 2 + 2G]; GPUs that appeared since it was packed are missing in its points."""
    if not columns:
        return empty_matrix(gpus)
    time, cpu = (unpack_column(column) for column in columns[:2])
    devices = unpack_columns(columns[2:], len(time))
    before = len(devices) // 2
    matrix = np.full((time.size, 2 + 2 * gpus), np.nan)
    matrix[:, 0] = np.cumsum(time)
    matrix[:, 1] = cpu
    matrix[:, 2 : 2 + before] = devices[:before].T
    matrix[:, 2 + gpus : 2 + gpus + before] = devices[before:].T
    return matrix
