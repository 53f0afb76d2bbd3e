"""System metrics: JSON lines to samples.

Many lines are decoded at once; where that fails, each alone, so that one bad line costs itself. What is not used is
counted by its fault. Pieces are decoded one after the other, so that reading takes little more memory than the text.
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.git_lfs import refuse_pointer
from trainguard.formats.profile.snapshots import (
    MOST_DEVICE_SERIES,
    NO_DEVICES,
    DeviceSamples,
    FloatArray,
    IntArray,
    device_name,
    device_samples,
)

# A node-minute of 192 cores and 16 GPUs at 100 ms is 31 MB; what is larger than twice that is not one.
MAX_OBJECT_BYTES = 64 * 1024 * 1024

# Lines or events of one object: twice those of that node-minute. Decoded, they take many times their bytes.
MAX_RECORDS = 500_000

# Up to here any number of records fits into a function's memory and time, and counting them would cost more.
UNCOUNTED_BYTES = 4 * 1024 * 1024

# Nesting without end is included.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError)

MAX_NAME_LENGTH = 64

_GZIP_MAGIC = b"\x1f\x8b"


def unpack(key: str, body: bytes, tally: Counter[str], *, mark: bytes) -> bytes:
    """Return the text of an object; counts gzip, truncated and empty ones.

    Every record has ``mark`` once. Raises TelemetryFormatError for more than 64 MiB, also once unpacked, over 500,000
    records (counted over 4 MiB), or a broken gzip stream.
    """
    if body.startswith(_GZIP_MAGIC):
        tally["gzip_objects"] += 1
        body = _gunzip(key, body, tally)
    if len(body) > MAX_OBJECT_BYTES:
        raise TelemetryFormatError(key, f"larger than {MAX_OBJECT_BYTES} bytes, expected one node's minute")
    records = body.count(mark) if len(body) > UNCOUNTED_BYTES else 0
    if records > MAX_RECORDS:
        raise TelemetryFormatError(key, f"{records} records, expected one node's minute with at most {MAX_RECORDS}")
    if not body or body.isspace():
        tally["empty_objects"] += 1
        return b""
    return body


def _gunzip(key: str, body: bytes, tally: Counter[str]) -> bytes:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = unpacker.decompress(body, MAX_OBJECT_BYTES + 1)
    except zlib.error as fault:
        raise TelemetryFormatError(key, f"a broken gzip stream ({fault}), expected JSON") from fault
    if not unpacker.eof and len(text) <= MAX_OBJECT_BYTES:
        tally["truncated_objects"] += 1
    return text


def printable(name: str) -> str:
    """Return a name from telemetry as it may stand in rows, reports and mails: short, on one line."""
    return _on_one_line(name[:MAX_NAME_LENGTH])


@lru_cache(maxsize=4_096)
def _on_one_line(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name)


MINUTE_BEFORE_S = 60.0
MINUTE_AFTER_S = 120.0
# Samplers round above 100 (psutil does, per core); up to 101 is clipped, beyond it is no percentage.
PERCENT_ROUNDING = 1.0

# No node has more; a hostile object must not grow the state of its node without bound.
MAX_SERIES = {"cpu": 1_024, "io_wait": 1_024, "gpu": 64, "gpu_memory": 64, "host_memory": 1, "network": 64}

# Half of what the shortest configured interval is: no grid of snapshots is finer.
SHORTEST_INTERVAL_S = 0.05

# Snapshots times series of one object: four times those of 192 cores and 16 GPUs in a minute at 100 ms.
MAX_CELLS = 2_000_000

# So much text is decoded at once: decoded, lines take many times their bytes.
_PIECE_BYTES = 4 * 1024 * 1024

# Further names without a place are looked at each time.
_MOST_DIMENSIONS, _MOST_NAMES = 64, 4_096

_DIMENSIONS = {
    "CPUUtilization": "cpu",
    "I/OWaitPercentage": "io_wait",
    "GPUUtilization": "gpu",
    "GPUMemoryUtilization": "gpu_memory",
    "Algorithm": "network",
}
_HOST_MEMORY = "MemoryUsedPercent"
_NO_DIMENSION = ""
_UNREAD_DIMENSIONS = frozenset({"Platform", _NO_DIMENSION})
_DEVICE = "device"

# A petabyte a second: beyond every network, and small enough for the sum of all its devices.
_MAX_BYTES = 1e15

_IGNORED = -1
_UNKNOWN = -2
_TOO_MANY_SERIES = -3
_NOT_JUDGED = -4

# The dimension of a line that names an accelerator whose metrics are recorded, and not read.
NOT_JUDGED = "NotJudged"


class SystemLine(msgspec.Struct, gc=False):
    """A line of a system metrics object; ``Type`` says nothing that ``Dimension`` does not."""

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
class MetricSeries:
    """One column of the samples: ``kind`` is a key of MAX_SERIES, ``name`` the device."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Samples:
    """The N usable samples of one object, in line order.

    ``times``, float64[N], are epoch seconds; ``values``, float64[N], percent in [0, 100], of kind network bytes per
    second. ``series``, int64[N], indexes ``table``, which is ordered by kind and device number. ``tally`` counts the
    lines and what was not used.
    """

    times: FloatArray
    values: FloatArray
    series: IntArray
    table: tuple[MetricSeries, ...]
    tally: Counter[str] = field(default_factory=Counter)
    devices: DeviceSamples = NO_DEVICES


def read_system_object(key: str, body: bytes, *, node: str, minute: int) -> Samples:
    """Read one object of system metrics, JSON lines or a gzip stream of them.

    Lines of other nodes are counted and left out, and samples more than 60 s before ``minute`` (epoch seconds) or 120 s
    after it. Raises TelemetryFormatError for more than 64 MiB, a broken gzip stream, or too many series and times.
    """
    refuse_pointer(key, body)
    tally: Counter[str] = Counter()
    text = unpack(key, body, tally, mark=b"\n")
    samples = _columns(text, node=node, minute=minute, tally=tally)
    if samples.tally["bad_lines"] and not samples.times.size and not samples.devices.by_metric:
        samples.tally["bad_objects"] += 1
    _check_size(key, samples)
    return samples


_DECODER = msgspec.json.Decoder(SystemLine)
_KNOWN_DECODER = msgspec.json.Decoder(KnownLine)


def _decode(text: bytes, tally: Counter[str]) -> Sequence[SystemLine]:
    for decoder in (_KNOWN_DECODER, _DECODER):
        try:
            return decoder.decode_lines(text)
        except DECODE_ERRORS:
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
        except DECODE_ERRORS:
            tally["bad_lines"] += 1
    return lines


def _pieces(text: bytes) -> Iterator[bytes]:
    start = 0
    while len(text) - start > _PIECE_BYTES and (end := text.find(b"\n", start + _PIECE_BYTES) + 1):
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _check_size(key: str, samples: Samples) -> None:
    series = len(samples.table)
    if samples.times.size * series <= MAX_CELLS:
        return
    most = np.unique(np.floor(samples.times / (SHORTEST_INTERVAL_S / 2.0))).size
    if most * series > MAX_CELLS:
        found = f"{series:,} series at {most:,} times"
        raise TelemetryFormatError(key, f"{found}, expected one node's minute with at most {MAX_CELLS:,} values")


def _columns(text: bytes, *, node: str, minute: int, tally: Counter[str]) -> Samples:
    columns = _SeriesColumns()
    parts = [_arrays(_decode(piece, tally), columns, node, tally) for piece in _pieces(text)]
    ids = np.concatenate([part[0] for part in parts])
    times, values = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
    known = ids >= 0
    timely = (times >= minute - MINUTE_BEFORE_S) & (times <= minute + MINUTE_AFTER_S)
    largest = columns.largest()[ids]
    sane = (values >= 0.0) & (values <= largest + PERCENT_ROUNDING)
    used = known & timely & sane
    values = np.minimum(values, largest)
    if not used.all():
        tally["unknown_dimensions"] += int(np.count_nonzero(ids == _UNKNOWN))
        tally["devices_not_judged"] += int(np.count_nonzero(ids == _NOT_JUDGED))
        tally["too_many_series"] += int(np.count_nonzero(ids == _TOO_MANY_SERIES))
        tally["times_outside_minute"] += int(np.count_nonzero(known & ~timely))
        tally["values_out_of_range"] += int(np.count_nonzero(known & timely & ~sane))
        ids, times, values = ids[used], times[used], values[used]
    table, rank = columns.ordered()
    return _apart(Samples(times, values, rank[ids], table, +tally))


def _apart(samples: Samples) -> Samples:
    places = [place for place, series in enumerate(samples.table) if series.kind == _DEVICE]
    if not places:
        return samples
    names = [name for place in places if (name := device_name(samples.table[place].name)) is not None]
    further = np.zeros(len(samples.table), dtype=np.bool_)
    further[places] = True
    place_in = np.where(further, np.cumsum(further), np.cumsum(~further)) - 1
    chosen = further[samples.series]
    columns = place_in[samples.series]
    own = ~chosen
    return Samples(
        samples.times[own],
        samples.values[own],
        columns[own],
        tuple(series for series in samples.table if series.kind != _DEVICE),
        samples.tally,
        device_samples(names, samples.times[chosen], samples.values[chosen], columns[chosen]),
    )


def _arrays(
    lines: Sequence[SystemLine], columns: "_SeriesColumns", node: str, tally: Counter[str]
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return column, time and value of the node's lines, N each."""
    tally["lines"] += len(lines)
    foreign = len(lines) - [line.NodeId for line in lines].count(node)
    if foreign:
        lines = [line for line in lines if line.NodeId == node]
        tally["wrong_node"] += foreign
    count = len(lines)
    return (
        np.fromiter([columns[line.Dimension][line.Name] for line in lines], np.int64, count),
        np.fromiter([line.Timestamp for line in lines], np.float64, count),
        np.fromiter([line.Value for line in lines], np.float64, count),
    )


class _SeriesColumns(dict[str, "_DeviceColumns"]):
    """Columns by dimension and device; dicts, so that known ones cost a look-up."""

    def __init__(self) -> None:
        super().__init__()
        self._table: list[MetricSeries] = []
        self._sizes: Counter[str] = Counter()

    def __missing__(self, dimension: str) -> "_DeviceColumns":
        devices = _DeviceColumns(dimension, self)
        if dimension in _DIMENSIONS or len(self) < _MOST_DIMENSIONS:
            self[dimension] = devices
        return devices

    def admit(self, dimension: str, name: str | None) -> int:
        """Return the column of a new device, or why it has none."""
        kind = "host_memory" if name == _HOST_MEMORY else _DIMENSIONS.get(dimension)
        if kind is None and dimension == _NO_DIMENSION and device_name(name) is not None:
            kind = _DEVICE
        if dimension == NOT_JUDGED:
            return _NOT_JUDGED
        if kind is None:
            return _IGNORED if dimension in _UNREAD_DIMENSIONS else _UNKNOWN
        if self._sizes[kind] >= MAX_SERIES.get(kind, MOST_DEVICE_SERIES):
            return _TOO_MANY_SERIES
        self._sizes[kind] += 1
        self._table.append(MetricSeries(kind, printable(name or "?")))
        return len(self._table) - 1

    def largest(self) -> FloatArray:
        """Return float64[C + 4], at the end for the lines that have no column."""
        further = [device_name(series.name) if series.kind == _DEVICE else None for series in self._table]
        limits = [
            name[2] if name is not None else _MAX_BYTES if series.kind == "network" else 100.0
            for series, name in zip(self._table, further, strict=True)
        ]
        return np.array([*limits, *[100.0] * -_NOT_JUDGED], dtype=np.float64)

    def ordered(self) -> tuple[tuple[MetricSeries, ...], IntArray]:
        """Return the series in canonical order and each column's place in it."""
        keys = [series_order(series) for series in self._table]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        return tuple(self._table[column] for column in order), rank


class _DeviceColumns(dict[str | None, int]):
    def __init__(self, dimension: str, columns: _SeriesColumns) -> None:
        super().__init__()
        self._dimension = dimension
        self._columns = columns

    def __missing__(self, name: str | None) -> int:
        column = self._columns.admit(self._dimension, name)
        if column >= 0 or len(self) < _MOST_NAMES:
            self[name] = column
        return column


@lru_cache(maxsize=4_096)
def series_order(series: MetricSeries) -> tuple[str, int, str]:
    """Sort key that puts gpu2 before gpu10."""
    digits = "".join(character for character in series.name if character.isdecimal() and character.isascii())
    return series.kind, int(digits[:9] or 0), series.name
