"""System files to windows: the samples that a query for [s, e] returns, in the original's order.

Order is that of the files, then of the lines: with several nodes a window is one node's minute after the other's, not
sorted by time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trainguard.debugger_replay.system_reader import Series, SystemFile
from trainguard.telemetry.snapshots import FloatArray, IntArray


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

    Attributes
    ----------
    times, values : float64[N]
        Epoch seconds as written, and what was measured.
    series : int64[N]
        Index into ``table``.
    table : list of Series
        All series of the job so far, in the order in which they were met; shared by its windows.
    instants : float64[T]
        The distinct times, ascending.
    instant : int64[N]
        Each sample's index into ``instants``.
    run_starts : int64[R]
        Rows at which the time differs from the row before.
    by_dimension : dict
        What ``of`` has answered.
    """

    times: FloatArray
    values: FloatArray
    series: IntArray
    table: list[Series]
    instants: FloatArray
    instant: IntArray
    run_starts: IntArray
    by_dimension: dict[str, list[SeriesSamples]] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.times.size)

    def rows_of(self, dimension: str) -> IntArray:
        """Return the rows of a dimension."""
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


class SystemStream:
    """Cuts windows out of files and numbers the series of the whole job."""

    def __init__(self) -> None:
        self._table: list[Series] = []
        self._number: dict[Series, int] = {}

    def window(self, files: Sequence[SystemFile], start_us: int, end_us: int) -> SystemWindow:
        """Answer the query [start_us, end_us], both ends included, from its files in order of (time, path)."""
        start_ns, end_ns = start_us * 1000, end_us * 1000
        times, values, series = [], [], []
        inside: slice | IntArray
        for file in files:
            if file.latest_ns < start_ns or file.earliest_ns > end_ns:
                continue
            numbers = np.array([self._series(item) for item in file.table], dtype=np.int64)
            inside = slice(None)
            if file.earliest_ns < start_ns or file.latest_ns > end_ns:
                inside = np.flatnonzero((file.times_ns >= start_ns) & (file.times_ns <= end_ns))
            times.append(file.times[inside])
            values.append(file.values[inside])
            series.append(numbers[file.series[inside]])
        if not any(part.size for part in times):
            empty, nowhere = np.empty(0), np.empty(0, dtype=np.int64)
            return SystemWindow(empty, empty, nowhere, self._table, empty, nowhere, nowhere)
        joined = np.concatenate(times)
        run_starts = np.flatnonzero(np.diff(joined, prepend=np.nan))
        instants, of_run = np.unique(joined[run_starts], return_inverse=True)
        instant = np.repeat(of_run, np.diff(run_starts, append=joined.size))
        return SystemWindow(
            joined, np.concatenate(values), np.concatenate(series), self._table, instants, instant, run_starts
        )

    def _series(self, series: Series) -> int:
        number = self._number.get(series)
        if number is None:
            number = self._number[series] = len(self._table)
            self._table.append(series)
        return number
