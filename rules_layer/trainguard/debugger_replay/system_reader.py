"""One system file: JSON lines to columns, in the order of the lines.

A line that cannot be read costs itself alone, and is counted; the original dies of it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainguard.telemetry.snapshots import FloatArray

_BEGINNING_BYTES = 131_072
_SMALL_BYTES = 4 * _BEGINNING_BYTES
_LONGEST_TIME_S = 9.0e9
"""Seconds beyond this do not fit into int64 nanoseconds."""


class _Line(msgspec.Struct, gc=False):
    Type: str
    Dimension: str
    Value: float
    NodeId: str
    Timestamp: float
    Name: str | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """What one sample is of."""

    node: str
    name: str
    dimension: str


@dataclass(frozen=True, slots=True)
class SystemFile:
    """The N samples of one system file, in line order.

    Attributes
    ----------
    times : float64[N]
        Epoch seconds, as written.
    times_ns : int64[N]
        Epoch nanoseconds, truncated, as the original compares them with windows.
    values : float64[N]
    series : int32[N]
        Index into ``table``.
    table : tuple of Series
        In order of their first line.
    bad_lines : int
        Lines that are no sample, blank ones included.
    """

    times: FloatArray
    times_ns: NDArray[np.int64]
    values: FloatArray
    series: NDArray[np.int32]
    table: tuple[Series, ...]
    bad_lines: int

    @property
    def earliest_ns(self) -> int:
        """The smallest of ``times_ns``; a time after all others where there is none."""
        return int(self.times_ns.min(initial=np.iinfo(np.int64).max))

    @property
    def latest_ns(self) -> int:
        """The largest of ``times_ns``; a time before all others where there is none."""
        return int(self.times_ns.max(initial=np.iinfo(np.int64).min))


_DECODER = msgspec.json.Decoder(_Line)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_system_file(body: bytes) -> SystemFile:
    """Read one system file; what cannot be read is counted and left out."""
    lines = _decode(body)
    columns: _Columns = _Columns()
    series = [columns[line.NodeId, line.Name, line.Dimension] for line in lines]
    times = np.array([line.Timestamp for line in lines], dtype=np.float64)
    bounded = np.clip(times, -_LONGEST_TIME_S, _LONGEST_TIME_S)
    written = body.count(b"\n") + (not body.endswith(b"\n") and bool(body))
    return SystemFile(
        times=times,
        times_ns=(bounded * 1000 * 1000 * 1000).astype(np.int64),
        values=np.array([line.Value for line in lines], dtype=np.float64),
        series=np.array(series, dtype=np.int32),
        table=tuple(columns.table),
        bad_lines=written - len(lines),
    )


class _Columns(dict[tuple[str, str | None, str], int]):
    """Numbers the series as they are met; a dict, so that a known one costs one look-up."""

    def __init__(self) -> None:
        super().__init__()
        self.table: list[Series] = []

    def __missing__(self, key: tuple[str, str | None, str]) -> int:
        node, name, dimension = key
        self[key] = len(self.table)
        self.table.append(Series(node, "null" if name is None else name, dimension))
        return len(self.table) - 1


def _decode(body: bytes) -> list[_Line]:
    for decoder in (_decoder_for(body), _DECODER):
        try:
            return decoder.decode_lines(body)
        except _UNREADABLE:
            continue
    return _decode_line_by_line(body)


def _decoder_for(body: bytes) -> msgspec.json.Decoder[_Line]:
    """Return a decoder that knows the texts at the file's beginning, and fails on others.

    Texts that it knows are the same objects in all lines, which saves making and hashing three of them a line.
    """
    if len(body) < _SMALL_BYTES:
        return _DECODER
    try:
        lines = _DECODER.decode_lines(body[: body.find(b"\n", _BEGINNING_BYTES)])
    except _UNREADABLE:
        return _DECODER
    texts = (
        {line.Dimension for line in lines},
        {line.NodeId for line in lines},
        {line.Name for line in lines} - {None},
    )
    return _knowing(*(tuple(sorted(filter(None, of))) or ("",) for of in texts))


@lru_cache(maxsize=64)
def _knowing(
    dimensions: tuple[str, ...], nodes: tuple[str, ...], names: tuple[str, ...]
) -> msgspec.json.Decoder[_Line]:
    literal: Any = Literal
    fields: list[Any] = [
        ("Dimension", literal[("", *dimensions)]),
        ("NodeId", literal[nodes]),
        ("Name", literal[names] | None, None),
    ]
    known = msgspec.defstruct("KnownLine", fields, bases=(_Line,), gc=False, kw_only=True)
    return msgspec.json.Decoder(known)


def _decode_line_by_line(body: bytes) -> list[_Line]:
    lines = []
    for text in body.split(b"\n"):
        try:
            lines.append(_DECODER.decode(text))
        except _UNREADABLE:
            continue
    return lines
