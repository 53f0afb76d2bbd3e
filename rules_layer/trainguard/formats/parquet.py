"""Columns of a Parquet file, by PyArrow, which the extra ``parquet`` installs."""

import importlib
from collections.abc import Collection, Container
from typing import Any

import numpy as np
import numpy.typing as npt

from trainguard.core.errors import TelemetryFormatError

MAGIC = b"PAR1"
MOST_ROWS = 20_000_000
# Of all chosen columns together, unpacked, as the file's own footer says and once more as they are read.
MOST_BYTES = 1 << 30

Column = npt.NDArray[Any]


def is_parquet(head: bytes) -> bool:
    return head.startswith(MAGIC)


def read_parquet(data: bytes, name: str, wanted: Container[str]) -> dict[str, Column]:
    """Return the wanted columns that a file has: numbers, where one is missing as floats with NaN, or texts.

    Raises TelemetryFormatError of ``name`` where the file is damaged, too large, or PyArrow is not installed.
    """
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as fault:
        need = "is a Parquet file, which needs PyArrow: pip install 'trainguard[parquet]', or write it as CSV"
        raise TelemetryFormatError(name, need) from fault
    try:
        file = parquet.ParquetFile(arrow.BufferReader(data))
        present = [column for column in file.schema_arrow.names if column in wanted]
        _check_size(file.metadata, present, name)
        columns: dict[str, list[Column]] = {column: [] for column in present}
        unpacked = 0
        for batch in file.iter_batches(columns=present):
            unpacked += batch.nbytes
            if unpacked > MOST_BYTES:
                raise _too_large(name, unpacked)
            for column in present:
                columns[column].append(batch.column(column).to_numpy(zero_copy_only=False))
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as fault:
        raise TelemetryFormatError(name, f"is no whole Parquet file: {fault}") from fault
    return {column: np.concatenate(parts) if parts else np.empty(0) for column, parts in columns.items()}


def _check_size(about: Any, present: Collection[str], name: str) -> None:
    if about.num_rows > MOST_ROWS:
        raise TelemetryFormatError(name, f"has {about.num_rows:,} rows, expected at most {MOST_ROWS:,}")
    groups = (about.row_group(number) for number in range(about.num_row_groups))
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    unpacked = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in present)
    if unpacked > MOST_BYTES:
        raise _too_large(name, unpacked)


def _too_large(name: str, unpacked: int) -> TelemetryFormatError:
    return TelemetryFormatError(name, f"has {unpacked:,} bytes unpacked, expected at most {MOST_BYTES:,}")
