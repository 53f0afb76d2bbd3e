"""System files: JSON lines to columns, and columns to windows, the samples that a query for [s, e] returns.

Order is that of the files, then of the lines, not of time. A line that cannot be read is counted; the original dies of
it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.vocabulary import Vocabulary

_BEGINNING_BYTES = 131_072
_SMALL_BYTES = 4 * _BEGINNING_BYTES
# Seconds beyond this do not fit into int64 nanoseconds.
_LONGEST_TIME_S = 9.0e9


class _Line(msgspec.Struct, gc=False):
    Type: str
    Dimension: str
    Value: float
    NodeId: str
    Timestamp: float
    Name: str | None = None


@dataclass(frozen=True, slots=True)
class ManagedSeries:
    node: str
    name: str
    dimension: str


@dataclass(frozen=True, slots=True)
class SystemFile:
    """The N samples of one system file, in line order.

    ``times`` are epoch seconds as written, ``times_ns`` truncated as the original compares them; float64[N] and
    int64[N]. ``series``, int32[N], indexes ``table``, in order of their first line. Blank lines are bad ones, too.
    """

    times: FloatArray
    times_ns: NDArray[np.int64]
    values: FloatArray
    series: NDArray[np.int32]
    table: tuple[ManagedSeries, ...]
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
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_system_file(body: bytes) -> SystemFile:
    """Read one system file; what cannot be read is counted and left out."""
    lines = _decode(body)
    columns = Vocabulary()
    series = [columns[line.NodeId, line.Name, line.Dimension] for line in lines]
    times = np.array([line.Timestamp for line in lines], dtype=np.float64)
    bounded = np.clip(times, -_LONGEST_TIME_S, _LONGEST_TIME_S)
    written = body.count(b"\n") + (not body.endswith(b"\n") and bool(body))
    return SystemFile(
        times=times,
        times_ns=(bounded * 1000 * 1000 * 1000).astype(np.int64),
        values=np.array([line.Value for line in lines], dtype=np.float64),
        series=np.array(series, dtype=np.int32),
        table=tuple(ManagedSeries(node, "null" if name is None else name, of) for node, name, of in columns.known),
        bad_lines=written - len(lines),
    )


def _decode(body: bytes) -> list[_Line]:
    for decoder in (_decoder_for(body), _DECODER):
        try:
            return decoder.decode_lines(body)
        except _DECODE_ERRORS:
            continue
    return _decode_line_by_line(body)


def _decoder_for(body: bytes) -> msgspec.json.Decoder[_Line]:
    """Return a decoder that fails on texts other than those at the file's beginning.

    They are the same objects in all lines, which saves making and hashing three of them a line.
    """
    if len(body) < _SMALL_BYTES:
        return _DECODER
    try:
        lines = _DECODER.decode_lines(body[: body.find(b"\n", _BEGINNING_BYTES)])
    except _DECODE_ERRORS:
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
        except _DECODE_ERRORS:
            continue
    return lines


@dataclass(frozen=True, slots=True)
class SeriesSamples:
    """A window's samples of one series: node, device and values (float64[n]), and their rows in the window."""

    node: str
    name: str
    values: FloatArray
    rows: IntArray


@dataclass(frozen=True, slots=True)
class SystemWindow:
    """The N samples of a window, in the order in which the original's rules see them.

    ``times`` are epoch seconds, float64[N]; ``series``, int64[N], indexes ``table``, which all windows share.
    ``instants``, float64[T], are the distinct times, ascending, and ``instant``, int64[N], indexes them.
    ``run_starts``, int64[R], are rows at which the time changes. ``by_dimension`` caches ``of``.
    """

    times: FloatArray
    values: FloatArray
    series: IntArray
    table: list[ManagedSeries]
    instants: FloatArray
    instant: IntArray
    run_starts: IntArray
    by_dimension: dict[str, list[SeriesSamples]] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.times.size)

    def rows_of(self, dimension: str) -> IntArray:
        wanted = np.array([series.dimension == dimension for series in self.table], dtype=np.bool_)
        return np.flatnonzero(wanted[self.series]) if len(self) else np.empty(0, dtype=np.int64)

    def names_in(self, rows: IntArray) -> list[str]:
        """Return the distinct devices of ``rows``."""
        met = np.flatnonzero(np.bincount(self.series[rows], minlength=len(self.table)))
        return list(dict.fromkeys(self.table[number].name for number in met.tolist()))

    def by_node(self, rows: IntArray) -> dict[str, IntArray]:
        """Split ``rows`` by node, in the order of each node's first row."""
        numbers: dict[str, int] = {}
        of_series = np.array([numbers.setdefault(series.node, len(numbers)) for series in self.table], dtype=np.int64)
        codes = of_series[self.series[rows]]
        found, first = np.unique(codes, return_index=True)
        nodes = list(numbers)
        return {nodes[code]: rows[codes == code] for code in found[np.argsort(first)].tolist()}

    def of(self, dimension: str) -> list[SeriesSamples]:
        """Return the samples of a dimension by series, in the order of each series' first sample."""
        if dimension not in self.by_dimension:
            self.by_dimension[dimension] = self._split(self.rows_of(dimension))
        return self.by_dimension[dimension]

    def _split(self, rows: IntArray) -> list[SeriesSamples]:
        if not rows.size:
            return []
        codes = self.series[rows].astype(np.int16 if len(self.table) < 2**15 else np.int64)
        order = np.argsort(codes, kind="stable")
        bounds = np.flatnonzero(np.diff(codes[order])) + 1
        parts = [rows[part] for part in np.split(order, bounds)]
        parts.sort(key=lambda part: int(part[0]))
        found = []
        for part in parts:
            series = self.table[self.series[part[0]]]
            found.append(SeriesSamples(series.node, series.name, self.values[part], part))
        return found


class ManagedSystemStream:
    """Cuts windows out of files and numbers the series of the whole job."""

    def __init__(self) -> None:
        self._numbers = Vocabulary()

    def window(self, files: Sequence[SystemFile], start_us: int, end_us: int) -> SystemWindow:
        """Answer the query [start_us, end_us], both ends included, from its files in order of (time, path)."""
        start_ns, end_ns = start_us * 1000, end_us * 1000
        times, values, series = [], [], []
        inside: slice | IntArray
        for file in files:
            if file.latest_ns < start_ns or file.earliest_ns > end_ns:
                continue
            numbers = np.array([self._numbers[each] for each in file.table], dtype=np.int64)
            inside = slice(None)
            if file.earliest_ns < start_ns or file.latest_ns > end_ns:
                inside = np.flatnonzero((file.times_ns >= start_ns) & (file.times_ns <= end_ns))
            times.append(file.times[inside])
            values.append(file.values[inside])
            series.append(numbers[file.series[inside]])
        if not any(part.size for part in times):
            empty, nowhere = np.empty(0), np.empty(0, dtype=np.int64)
            return SystemWindow(empty, empty, nowhere, self._numbers.known, empty, nowhere, nowhere)
        joined = np.concatenate(times)
        run_starts = np.flatnonzero(np.diff(joined, prepend=np.nan))
        instants, of_run = np.unique(joined[run_starts], return_inverse=True)
        instant = np.repeat(of_run, np.diff(run_starts, append=joined.size))
        return SystemWindow(
            joined, np.concatenate(values), np.concatenate(series), self._numbers.known, instants, instant, run_starts
        )


def pieces_between_resets(
    samples: Sequence[SeriesSamples], sizes: Mapping[tuple[str, str], int], limit: int
) -> Iterator[list[SeriesSamples]]:
    """Cut a window's samples after each value that takes its series beyond ``limit`` values.

    ``sizes`` are the values before the window, by (node, device). State is dropped for all series at once; almost
    always there is one piece.
    """
    known = dict(sizes)
    rest = list(samples)
    while True:
        overflowing = [
            int(part.rows[limit - known.get((part.node, part.name), 0)])
            for part in rest
            if known.get((part.node, part.name), 0) + len(part.rows) > limit
        ]
        if not overflowing:
            yield rest
            return
        reset = min(overflowing)
        yield _part(rest, 0, reset + 1)
        rest = _part(rest, reset + 1, None)
        known = {}


def _part(samples: Sequence[SeriesSamples], start: int, stop: int | None) -> list[SeriesSamples]:
    """Keep the samples of rows ``start`` to ``stop`` (exclusive), without series that have none."""
    kept = []
    for part in samples:
        low, high = np.searchsorted(part.rows, (start, part.rows[-1] + 1 if stop is None else stop)).tolist()
        if high > low:
            kept.append(SeriesSamples(part.node, part.name, part.values[low:high], part.rows[low:high]))
    return sorted(kept, key=lambda part: int(part.rows[0]))
