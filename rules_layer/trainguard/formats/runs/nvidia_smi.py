"""Samples of ``nvidia-smi``: of its queries in CSV, with or without a header and units, and of ``nvidia-smi dmon``.

Names and units are those of ``nvidia-smi --help-query-gpu``. Without a column that names the GPU, lines of one moment
are GPUs in their order. Times have no zone, and are taken for UTC.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, islice, pairwise

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.runs.run import (
    MEBI,
    MOST_DEVICES,
    ONLY_NODE,
    SnapshotCollector,
    SourceRun,
    device_number,
    gpu_series,
    utc_time,
)

TOOL = "nvidia-smi"
MOST_LINES = 20_000_000
NO_TIME = "a line of nvidia-smi without a time"
NO_DEVICE = "a line of nvidia-smi without its GPU"
NO_NUMBER = "a cell of nvidia-smi that is no number"
FAILED = "a line in which nvidia-smi says that it failed"
TOO_MANY = f"lines of nvidia-smi beyond the first {MOST_LINES:,}"
_HOW = (
    "nvidia-smi --query-gpu=timestamp,index,utilization.gpu,utilization.memory,memory.used,power.draw --format=csv -l 5"
)

_SERIES = {
    "utilization.gpu": ("GPUUtilization", 1.0),
    "utilization.memory": ("GPUMemoryUtilization", 1.0),
    "memory.used": ("MemoryUsedBytes", MEBI),
    "memory.total": ("MemoryTotalBytes", MEBI),
    "power.draw": ("PowerWatts", 1.0),
    "power.draw.instant": ("PowerWatts", 1.0),
    "power.draw.average": ("PowerWatts", 1.0),
    "temperature.gpu": ("TemperatureCelsius", 1.0),
    "clocks.current.sm": ("SMClockMHz", 1.0),
    "clocks.sm": ("SMClockMHz", 1.0),
}
_OF_DMON = {
    "sm": "utilization.gpu",
    "mem": "utilization.memory",
    "fb": "memory.used",
    "pwr": "power.draw",
    "gtemp": "temperature.gpu",
    "pclk": "clocks.sm",
    "gpu": "index",
}
# From what names a GPU wherever it is to what a reboot, another order or another host may change.
_DEVICES = ("gpu_uuid", "uuid", "gpu_serial", "serial", "gpu_bus_id", "pci.bus_id", "index")

_SHARES = frozenset({"GPUUtilization", "GPUMemoryUtilization"})
_UNITS = {"%": ("utilization.gpu", "utilization.memory"), "MiB": ("memory.used",), "W": ("power.draw",)}
_STAMP = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_OF_GPU = re.compile(r"GPU-|NVIDIA |Tesla |GeForce |Quadro |P\d+$|[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:")
_CELL = re.compile(r"(?P<number>[-+]?\d+(?:\.\d+)?)\s*(?P<unit>%|MiB|W|MHz|C)?")
_LOST = re.compile(r"GPU is lost|Lost|requires reset", re.IGNORECASE)
_ABSENT = re.compile(r"\[?(?:|-|n/?a|not (?:supported|available|found)|insufficient permissions|not active|active|"
                     r"enabled|disabled|requested functionality has been deprecated)\]?", re.IGNORECASE)  # fmt: skip
_BROKEN = re.compile(r"ERR!|\[?unknown error\]?", re.IGNORECASE)
_MESSAGE = re.compile(r"unable to|failed|error|no devices", re.IGNORECASE)
_LOOKED_AT = 400


def is_nvidia_smi(beginning: str) -> bool:
    """Whether a text is samples of nvidia-smi, by its first lines."""
    lines = [line for line in beginning.splitlines()[:_LOOKED_AT] if line.strip()]
    if not lines:
        return False
    columns = _names(lines[0])
    if columns and "utilization.gpu" in columns:
        return True
    return _is_dmon(lines[0]) or (_STAMP.match(lines[0]) is not None and _is_query(list(_cells(lines))))


def _is_query(rows: Sequence[Sequence[str]]) -> bool:
    """Whether lines are of a query whose columns are known, or of one without header and units, which are not."""
    return _inferred(rows) is not None or all(len(cells) > 1 and _is_bare(cells) for cells in rows)


def _is_bare(cells: Sequence[str]) -> bool:
    return all(_NUMBER.fullmatch(cell) or _ABSENT.fullmatch(cell) or _OF_GPU.match(cell) for cell in cells[1:])


def read_nvidia_smi(name: str, lines: Iterable[str], title: str) -> SourceRun:
    """Read samples; raises TelemetryFormatError where they have no times."""
    text = iter(lines)
    ahead = list(islice(text, _LOOKED_AT))
    first = next((line for line in ahead if line.strip()), "")
    reading = _Reading(SourceRun(title, TOOL))
    if _is_dmon(first):
        reading.use(_names_of_dmon(first))
        rows: Iterator[list[str]] = (line.split() for line in chain(ahead, text))
    else:
        found = list(_cells(ahead))
        columns = _names(first) or _inferred(found)
        if columns is None:
            several = f"{max(map(len, found), default=0)} columns"
            why = f"no header, and no units: which of its {several} are utilization.gpu and memory.used is not known"
            raise TelemetryFormatError(name, f"{why}, expected {_HOW}")
        reading.use(columns)
        reading.order(found)
        rows = csv.reader(chain(ahead, text), skipinitialspace=True)
    if "timestamp" not in reading.places:
        raise TelemetryFormatError(name, f"no column timestamp (dmon: -o DT), expected {_HOW}")
    return reading.read(rows)


def _is_dmon(line: str) -> bool:
    words = line.lstrip("# ").lower().split()
    return line.lstrip().startswith("#") and "gpu" in words and "sm" in words


def _names_of_dmon(line: str) -> list[str]:
    words = line.strip().lstrip("#").lower().split()
    return [_OF_DMON.get(word, word) for word in words]


def _names(line: str) -> list[str] | None:
    """Return the names of columns without their units; None of a line that has none."""
    cells = next(_cells([line]), [])
    names = [re.sub(r"\s*\[.*\]$", "", cell).strip().lower() for cell in cells]
    return names if {"timestamp", "index", "utilization.gpu", "memory.used", "power.draw"} & set(names) else None


def _cells(lines: Sequence[str]) -> Iterator[list[str]]:
    try:
        for cells in csv.reader(lines, skipinitialspace=True):
            if any(cells):
                yield [cell.strip() for cell in cells]
    except csv.Error:
        return


def _inferred(rows: Iterable[Sequence[str]]) -> list[str] | None:
    """Name columns by the units of their cells; None where none has a unit, or lines do not begin with a time."""
    found = [cells for cells in rows if _STAMP.fullmatch(cells[0])]
    if not found:
        return None
    width = max(map(len, found))
    columns = [[cells[place] for cells in found if place < len(cells)] for place in range(width)]
    names, left = ["timestamp"], {unit: list(of_unit) for unit, of_unit in _UNITS.items()}
    for cells in columns[1:]:
        names.append(_named(cells, left, with_index="index" not in names))
    sizes = [place for place, cells in enumerate(columns) if _unit_of(cells) == "MiB"]
    if len(sizes) > 1:
        _name_sizes(names, columns, sizes)
    return names if "utilization.gpu" in names else None


def _named(cells: Sequence[str], left: dict[str, list[str]], *, with_index: bool) -> str:
    unit = _unit_of(cells)
    if unit is not None:
        return left[unit].pop(0) if left.get(unit) else ""
    if all(cell.startswith("GPU-") for cell in cells):
        return "uuid"
    if all(re.fullmatch(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:\S+", cell) for cell in cells):
        return "pci.bus_id"
    numbers = {int(cell) for cell in cells if cell.isdecimal()}
    return "index" if with_index and numbers == set(range(len(numbers))) and all(map(str.isdecimal, cells)) else ""


def _unit_of(cells: Sequence[str]) -> str | None:
    matches = (_CELL.fullmatch(cell) for cell in cells)
    return next((match["unit"] for match in matches if match is not None), None)


def _name_sizes(names: list[str], columns: Sequence[Sequence[str]], sizes: Sequence[int]) -> None:
    """Name the largest column of sizes, which is all memory, and, of two, the other one."""
    means = {place: _mean(columns[place]) for place in sizes}
    for place in sizes:
        names[place] = ""
    largest = max(means, key=lambda place: means[place])
    names[largest] = "memory.total"
    if len(sizes) == 2:
        names[next(place for place in sizes if place != largest)] = "memory.used"


def _mean(cells: Sequence[str]) -> float:
    numbers = [float(match["number"]) for cell in cells if (match := _CELL.fullmatch(cell)) is not None]
    return sum(numbers) / len(numbers) if numbers else 0.0


@dataclass(slots=True)
class _Reading:
    run: SourceRun
    places: dict[str, int] = field(default_factory=dict)
    _header: list[str] = field(default_factory=list)
    _device: str | None = None
    _devices: dict[str, int] = field(default_factory=dict)
    _apart_s: float = math.inf
    _newest: tuple[float, int] = (-math.inf, -1)
    _lost: dict[int, float] = field(default_factory=dict)
    _empty: dict[int, bool] = field(default_factory=dict)

    def use(self, columns: Sequence[str]) -> None:
        self._header = list(columns)
        self.places = {name: place for place, name in reversed(list(enumerate(columns))) if name}
        if {"date", "time"} <= self.places.keys():
            self.places["timestamp"] = self.places["date"]
        self._device = next((name for name in _DEVICES if name in self.places), None)

    def order(self, rows: Sequence[Sequence[str]]) -> None:
        """Find how far moments lie apart, for lines that do not name their GPU."""
        times = [at for cells in rows if (at := self._time(cells)) is not None]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        self._apart_s = max(gaps, default=math.inf) / 2.0

    def read(self, rows: Iterator[list[str]]) -> SourceRun:
        collected = SnapshotCollector()
        for raw in self.run.first(_whole(rows, self.run), MOST_LINES, TOO_MANY):
            self._row([cell.strip() for cell in raw], collected)
        self.run.snapshots = collected.snapshots(ONLY_NODE)
        for device, is_empty in sorted(self._empty.items()):
            if is_empty and device not in self._lost:
                self.run.notes.append(f"The table has lines of gpu{device}, and no value in any of them.")
        for device, at in sorted(self._lost.items()):
            since = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
            self.run.notes.append(f"nvidia-smi says from {since} on that gpu{device} is lost.")
        return self.run

    def _row(self, cells: list[str], collected: SnapshotCollector) -> None:
        if not any(cells) or cells[0].startswith("#"):
            return
        names = None if cells[0][:1].isdecimal() else _names(", ".join(cells))
        if names is not None:
            self.use(names)
            return
        at = self._time(cells)
        if at is None:
            self.run.refuse(FAILED if _MESSAGE.search(" ".join(cells)) else NO_TIME)
            return
        device = self._number_of_device(cells, at)
        if device is None:
            self.run.refuse(NO_DEVICE)
            return
        values = self._values(cells, device, at)
        self._empty[device] = self._empty.get(device, True) and not values
        if values:
            collected.add("", at, {gpu_series(f"gpu{device}", measure): value for measure, value in values.items()})

    def _values(self, cells: Sequence[str], device: int, at: float) -> dict[str, float]:
        if any(_LOST.search(cell) for cell in cells):
            self._lost.setdefault(device, at)
            return {"Lost": 1.0}
        values: dict[str, float] = {}
        for name, (measure, factor) in _SERIES.items():
            place = self.places.get(name, len(cells))
            text = cells[place] if place < len(cells) else ""
            match = _CELL.fullmatch(text)
            if match is not None:
                value = float(match["number"]) * factor
                if measure not in _SHARES or 0.0 <= value <= 100.0:
                    values.setdefault(measure, value)
                    continue
            if not _ABSENT.fullmatch(text):
                self.run.refuse(NO_NUMBER if match is not None or not _BROKEN.fullmatch(text) else FAILED)
        return values

    def _time(self, cells: Sequence[str]) -> float | None:
        place = self.places.get("timestamp")
        if place is None or place >= len(cells):
            return None
        text = cells[place]
        if "date" in self.places and self.places["time"] < len(cells):
            text = text.replace("/", "-")
            text = f"{text[:4]}-{text[4:6]}-{text[6:8]} {cells[self.places['time']]}"
        return utc_time(text)

    def _number_of_device(self, cells: Sequence[str], at: float) -> int | None:
        if self._device is None:
            before, device = self._newest
            device = device + 1 if at - before < self._apart_s else 0
            self._newest = at, device
            return device if device < MOST_DEVICES else None
        place = self.places[self._device]
        text = cells[place] if place < len(cells) else ""
        if self._device == "index":
            return device_number(text)
        if not text or (text not in self._devices and len(self._devices) >= MOST_DEVICES):
            return None
        if text not in self._devices:
            self._devices[text] = self._free_number(cells)
        return self._devices[text]

    def _free_number(self, cells: Sequence[str]) -> int:
        """Return the number that a GPU's line gives, unless another GPU has it, else the first that is free."""
        place, taken = self.places.get("index", len(cells)), set(self._devices.values())
        given = device_number(cells[place]) if place < len(cells) else None
        if given is not None and given not in taken:
            return given
        return next(number for number in range(MOST_DEVICES) if number not in taken)


def _whole(rows: Iterator[list[str]], run: SourceRun) -> Iterator[list[str]]:
    """Yield rows; what quotes make no row is counted, and passed over."""
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error:
            run.refuse(NO_NUMBER)
