"""Tables of samples: CSV by the mapping of its columns beside it, ``<table>.mapping.json``."""

import csv
import math
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.runs.run import (
    HOST_MEMORY,
    ONLY_NODE,
    SeriesName,
    SnapshotCollector,
    SourceRun,
    device_number,
    gpu_series,
    utc_time,
)
from trainguard.formats.tensors.scalars.rows import LARGEST_STEP, Recording

SUFFIX = ".mapping.json"
MAX_BYTES = 1024 * 1024
# Stands for the GPU that the device's column names.
DEVICE = "gpu*"

_CPU_SERIES = frozenset({"CPUUtilization", "I/OWaitPercentage"})
_UNIT = re.compile(r"(?P<unit>gpu(?:\*|\d{1,2})|cpu\d{1,4}|memory|network)/(?P<rest>.+)")
_REST = re.compile(r"[A-Za-z]{1,60}")
_EXPECTED = (
    "expected gpu<n>/GPUUtilization, gpu<n>/GPUMemoryUtilization, gpu<n>/<a further series>, cpu<n>/CPUUtilization, "
    "cpu<n>/I/OWaitPercentage or memory/MemoryUsedPercent"
)


class TimeColumn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The column of times: numbers since the epoch in seconds or milliseconds, or texts; those without zone are UTC."""

    column: str
    unit: Literal["s", "ms", "text"] = "s"


class SeriesColumn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a column measures; a value is multiplied by ``factor``."""

    series: str
    factor: float = 1.0


class Mapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns of a table: by name a series, ``gpu0/GPUUtilization``, or a scalar of training.

    A series is ``gpu*/…`` where a line is of the GPU that the column ``device`` names.
    """

    time: TimeColumn
    name: str | None = None
    node: str | None = None
    device: str | None = None
    series: dict[str, str | SeriesColumn] = {}
    step: str | None = None
    scalars: dict[str, str] = {}

    def measured(self, name: str) -> dict[str, tuple[str, str, float]]:
        """Return by column the unit, what it measures, and the factor; raises TelemetryFormatError."""
        found = {}
        for column, about in self.series.items():
            series, factor = (about, 1.0) if isinstance(about, str) else (about.series, about.factor)
            match = _UNIT.fullmatch(series)
            if match is None or not _is_known(match["unit"], match["rest"]):
                raise TelemetryFormatError(name, f"column {column!r} is {series!r:.80}, {_EXPECTED}")
            if match["unit"] == DEVICE and self.device is None:
                raise TelemetryFormatError(name, f"column {column!r} is of {DEVICE}, and no column is the device")
            found[column] = (match["unit"], match["rest"], factor)
        return found


def read_mapping(name: str, body: bytes) -> Mapping:
    if len(body) > MAX_BYTES:
        raise TelemetryFormatError(name, f"larger than {MAX_BYTES:,} bytes, expected a mapping of columns")
    try:
        mapping = msgspec.json.decode(body, type=Mapping)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise TelemetryFormatError(name, f"{fault}, expected a mapping of columns") from fault
    mapping.measured(name)
    return mapping


def series_name(unit: str, rest: str) -> SeriesName:
    if unit.startswith("gpu"):
        return gpu_series(unit, rest)
    return SeriesName("cpu", unit, rest) if unit.startswith("cpu") else HOST_MEMORY


def _is_known(unit: str, rest: str) -> bool:
    if unit.startswith("gpu"):
        return _REST.fullmatch(rest) is not None
    return rest in _CPU_SERIES if unit.startswith("cpu") else (unit, rest) == ("memory", "MemoryUsedPercent")


TOOL = "A table"
MOST_LINES = 20_000_000
NO_TIME = "a line without a time"
NO_DEVICE = "a line without the number of its GPU"
NO_NUMBER = "a cell that is no number"
NO_SHARE = "a utilization below 0 % or above 100 %"
TOO_MANY = f"lines beyond the first {MOST_LINES:,}"
_NUMBER = re.compile(
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|[-+]?inf(?:inity)?)\s*[%A-Za-z°]{0,8}", re.IGNORECASE
)
_PERCENT = frozenset({"GPUUtilization", "GPUMemoryUtilization", "CPUUtilization", "I/OWaitPercentage"})
_ABSENT = frozenset({"", "n/a", "[n/a]", "[not supported]", "na", "null", "none", "-"})
_MS = 1_000.0
_ALL = 100.0


def read_table(name: str, lines: Iterable[str], mapping: Mapping, title: str) -> SourceRun:
    """Read a table, whose first line has the names of columns; ``title`` is the job's name where the mapping has none.

    Raises TelemetryFormatError when a column of the mapping is missing, or the lines are no table.
    """
    reader = csv.reader(lines)
    try:
        columns = [cell.strip() for cell in next(reader, [])]
        return _Table(name, columns, mapping, title).read(reader)
    except csv.Error as fault:
        raise TelemetryFormatError(name, f"{fault}, expected a table in CSV") from fault


class _Table:
    def __init__(self, name: str, columns: Sequence[str], mapping: Mapping, title: str) -> None:
        self.run = SourceRun(mapping.name or title, TOOL)
        self._places = {column: place for place, column in reversed(list(enumerate(columns)))}
        self._mapping = mapping
        self._lines: dict[tuple[str, int], bool] = {}
        measured = mapping.measured(name)
        self._measured = {self._places[column]: about for column, about in measured.items() if column in self._places}
        self._scalars = {self._places[column]: to for column, to in mapping.scalars.items() if column in self._places}
        self._step = None if mapping.step is None else self._places.get(mapping.step)
        wanted = [
            each for each in (mapping.time.column, mapping.node, mapping.device, mapping.step) if each is not None
        ]
        missing = [column for column in wanted if column not in self._places]
        if missing or not (self._measured or self._scalars):
            what = missing[0] if missing else next(iter((*measured, *mapping.scalars)), "series")
            raise TelemetryFormatError(name, f"has no column {what!r}, only {', '.join(columns[:20])!r:.200}")

    def read(self, lines: Iterable[Sequence[str]]) -> SourceRun:
        run, collected = self.run, SnapshotCollector()
        for number, cells in enumerate(run.first(lines, MOST_LINES, TOO_MANY)):
            if not cells:
                continue
            at = self._time(cells)
            if at is None:
                run.refuse(NO_TIME)
                continue
            values = self._values(cells)
            if values:
                collected.add(self._cell(cells, self._mapping.node), at, values)
            found = {
                to: value for place, to in self._scalars.items() if (value := self._number(cells, place)) is not None
            }
            step = float(number) if not found or self._step is None else self._number(cells, self._step)
            if found and step is not None and 0 <= step <= LARGEST_STEP:
                run.scalars.append(Recording(int(step), at, found))
        run.snapshots = collected.snapshots(ONLY_NODE)
        for (node, device), measured in sorted(self._lines.items()):
            if not measured:
                of = f" of {node}" if node else ""
                run.notes.append(f"The table has lines of gpu{device}{of}, and no value in any of them.")
        return run

    def _values(self, cells: Sequence[str]) -> dict[SeriesName, float]:
        values = {}
        device = self._device(cells)
        of_gpu = (self._cell(cells, self._mapping.node), device) if device is not None else None
        for place, (unit, rest, factor) in self._measured.items():
            value = self._number(cells, place)
            if unit == DEVICE:
                if device is None:
                    continue
                unit = f"gpu{device}"  # noqa: PLW2901  # The star stands for it.
            if value is None or not math.isfinite(value):
                continue
            if rest in _PERCENT and not 0.0 <= value * factor <= _ALL:
                self.run.refuse(NO_SHARE)
            else:
                values[series_name(unit, rest)] = value * factor
        if of_gpu is not None:
            self._lines[of_gpu] = self._lines.get(of_gpu, False) or bool(values)
        return values

    def _device(self, cells: Sequence[str]) -> int | None:
        if self._mapping.device is None:
            return None
        device = device_number(self._cell(cells, self._mapping.device).removeprefix("gpu"))
        if device is None:
            self.run.refuse(NO_DEVICE)
        return device

    def _time(self, cells: Sequence[str]) -> float | None:
        text = self._cell(cells, self._mapping.time.column)
        if self._mapping.time.unit == "text":
            return utc_time(text)
        try:
            number = float(text)
        except ValueError:
            return None
        seconds = number / _MS if self._mapping.time.unit == "ms" else number
        return seconds if math.isfinite(seconds) else None

    def _number(self, cells: Sequence[str], place: int) -> float | None:
        """Return None where a cell says that there is no value; a unit may stand behind the number."""
        text = cells[place].strip() if place < len(cells) else ""
        match = _NUMBER.fullmatch(text)
        if match is not None:
            return float(match["number"])
        if text.lower() not in _ABSENT:
            self.run.refuse(NO_NUMBER)
        return None

    def _cell(self, cells: Sequence[str], column: str | None) -> str:
        place = len(cells) if column is None else self._places[column]
        return cells[place].strip() if place < len(cells) else ""
