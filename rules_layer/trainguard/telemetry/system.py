"""System metrics: JSON lines to samples.

A fast path decodes the whole object at once, and is fastest where it has only dimensions that are known: those are not
made into new strings. Where that fails, each line is decoded alone, so that one bad line costs itself and no other.
Whatever is not used is counted under the name of its fault.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np

from trainguard.telemetry.snapshots import FloatArray, IntArray
from trainguard.telemetry.unpack import UNREADABLE, printable, unpack

MINUTE_BEFORE_S = 60.0
MINUTE_AFTER_S = 120.0
PERCENT_ROUNDING = 1.0
"""Samplers round above 100 (psutil does, per core); up to 101 is clipped, beyond it is no percentage."""

MAX_SERIES = {"cpu": 1_024, "io_wait": 1_024, "gpu": 64, "gpu_memory": 64, "host_memory": 1, "network": 64}
"""No node has more; a hostile object must not grow the state of its node without bound."""

_DIMENSIONS = {
    "CPUUtilization": "cpu",
    "I/OWaitPercentage": "io_wait",
    "GPUUtilization": "gpu",
    "GPUMemoryUtilization": "gpu_memory",
    "Algorithm": "network",
}
_HOST_MEMORY = "MemoryUsedPercent"
_UNREAD_DIMENSIONS = frozenset({"Platform", ""})
_MAX_BYTES = 1e15
"""A petabyte a second: beyond every network, and small enough for the sum of all its devices."""

_IGNORED = -1
_UNKNOWN = -2
_TOO_MANY_SERIES = -3


class SystemLine(msgspec.Struct, gc=False):
    """What is used of one line of a system metrics object; ``Type`` says nothing that ``Dimension`` does not."""

    Name: str | None
    Dimension: str
    Value: float
    NodeId: str
    Timestamp: float


class KnownLine(SystemLine, gc=False):
    """A line of a dimension that system metrics are known to have."""

    Dimension: Literal[
        "CPUUtilization",
        "I/OWaitPercentage",
        "GPUUtilization",
        "GPUMemoryUtilization",
        "Algorithm",
        "Platform",
        "",
    ]


@dataclass(frozen=True, slots=True)
class Series:
    """One column of the samples: ``kind`` is a key of MAX_SERIES, ``name`` the device."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Samples:
    """The N usable samples of one object, in line order.

    Attributes
    ----------
    times : float64[N]
        Epoch seconds.
    values : float64[N]
        Percent in [0, 100]; bytes per second of kind network.
    series : int64[N]
        Index into ``table``.
    table : tuple of Series
        Ordered by kind and by device number, whatever the order of the lines.
    tally : Counter
        What was not used and why, and how many lines were read.
    """

    times: FloatArray
    values: FloatArray
    series: IntArray
    table: tuple[Series, ...]
    tally: Counter[str] = field(default_factory=Counter)


def read_system_object(key: str, body: bytes, *, node: str, minute: int) -> Samples:
    """Read one object of system metrics.

    Parameters
    ----------
    key : str
        Named in errors.
    body : bytes
        JSON lines, or a gzip stream of them.
    node : str
        The node that the key names; lines of others are counted and left out.
    minute : int
        The minute that the key names, epoch seconds; samples more than 60 s before it or 120 s after it are left out.

    Raises
    ------
    TelemetryFormatError
        When nothing can be read of the object: it is larger than 64 MiB or a broken gzip stream.
    """
    tally: Counter[str] = Counter()
    text = unpack(key, body, tally, mark=b"\n")
    lines = _decode(text, tally)
    tally["lines"] += len(lines)
    return _columns(lines, node=node, minute=minute, tally=tally)


_DECODER = msgspec.json.Decoder(SystemLine)
_KNOWN_DECODER = msgspec.json.Decoder(KnownLine)


def _decode(text: bytes, tally: Counter[str]) -> Sequence[SystemLine]:
    for decoder in (_KNOWN_DECODER, _DECODER):
        try:
            return decoder.decode_lines(text)
        except UNREADABLE:
            continue
    return _decode_line_by_line(text, tally)


def _decode_line_by_line(text: bytes, tally: Counter[str]) -> list[SystemLine]:
    lines: list[SystemLine] = []
    decode = _DECODER.decode
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        try:
            lines.append(decode(line))
        except UNREADABLE:
            tally["bad_lines"] += 1
    return lines


def _columns(lines: Sequence[SystemLine], *, node: str, minute: int, tally: Counter[str]) -> Samples:
    foreign = len(lines) - [line.NodeId for line in lines].count(node)
    if foreign:
        lines = [line for line in lines if line.NodeId == node]
        tally["wrong_node"] += foreign
    columns = _SeriesColumns()
    count = len(lines)
    ids = np.fromiter([columns[line.Dimension][line.Name] for line in lines], np.int64, count)
    times = np.fromiter([line.Timestamp for line in lines], np.float64, count)
    values = np.fromiter([line.Value for line in lines], np.float64, count)
    known = ids >= 0
    timely = (times >= minute - MINUTE_BEFORE_S) & (times <= minute + MINUTE_AFTER_S)
    largest = columns.largest()[ids]
    sane = (values >= 0.0) & (values <= largest + PERCENT_ROUNDING)
    used = known & timely & sane
    values = np.minimum(values, largest)
    if not used.all():
        tally["unknown_dimensions"] += int(np.count_nonzero(ids == _UNKNOWN))
        tally["too_many_series"] += int(np.count_nonzero(ids == _TOO_MANY_SERIES))
        tally["times_outside_minute"] += int(np.count_nonzero(known & ~timely))
        tally["values_out_of_range"] += int(np.count_nonzero(known & timely & ~sane))
        ids, times, values = ids[used], times[used], values[used]
    table, rank = columns.ordered()
    return Samples(times, values, rank[ids], table, +tally)


class _SeriesColumns(dict[str, "_DeviceColumns"]):
    """Gives each dimension of the lines, and then each device, its column; dicts, so that known ones cost a look-up."""

    def __init__(self) -> None:
        super().__init__()
        self._table: list[Series] = []
        self._sizes: Counter[str] = Counter()

    def __missing__(self, dimension: str) -> "_DeviceColumns":
        devices = _DeviceColumns(dimension, self)
        self[dimension] = devices
        return devices

    def admit(self, dimension: str, name: str | None) -> int:
        """Return the column of a device that was not met yet, or why it has none."""
        kind = "host_memory" if name == _HOST_MEMORY else _DIMENSIONS.get(dimension)
        if kind is None:
            return _IGNORED if dimension in _UNREAD_DIMENSIONS else _UNKNOWN
        if self._sizes[kind] >= MAX_SERIES[kind]:
            return _TOO_MANY_SERIES
        self._sizes[kind] += 1
        self._table.append(Series(kind, printable(name or "?")))
        return len(self._table) - 1

    def largest(self) -> FloatArray:
        """Return the largest value of each column: float64[C + 3], at the end for the lines that have no column."""
        limits = [_MAX_BYTES if series.kind == "network" else 100.0 for series in self._table]
        return np.array([*limits, *[100.0] * -_TOO_MANY_SERIES], dtype=np.float64)

    def ordered(self) -> tuple[tuple[Series, ...], IntArray]:
        """Return the series in canonical order and, for each column as it was met, its place in it."""
        keys = [series_order(series) for series in self._table]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        return tuple(self._table[column] for column in order), rank


class _DeviceColumns(dict[str | None, int]):
    """The columns of one dimension's devices."""

    def __init__(self, dimension: str, columns: _SeriesColumns) -> None:
        super().__init__()
        self._dimension = dimension
        self._columns = columns

    def __missing__(self, name: str | None) -> int:
        column = self._columns.admit(self._dimension, name)
        self[name] = column
        return column


@lru_cache(maxsize=4_096)
def series_order(series: Series) -> tuple[str, int, str]:
    """Sort key that puts gpu2 before gpu10."""
    digits = "".join(character for character in series.name if character.isdecimal() and character.isascii())
    return series.kind, int(digits[:9] or 0), series.name
