"""What the columns of a table are: the document ``<table>.mapping.json`` beside it, or those of ``nvidia-smi``."""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from trainguard.errors import TelemetryFormatError
from trainguard.sources.run import SeriesName

SUFFIX = ".mapping.json"
MAX_BYTES = 1024 * 1024
DEVICE = "gpu*"
"""Stands for the GPU that the device's column names."""

_GPU_SERIES = frozenset({"GPUUtilization", "GPUMemoryUtilization"})
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
    """What the columns of a table are.

    Attributes
    ----------
    time : TimeColumn
    name : str or None
        What the job is called.
    node, device : str or None
        Columns that name the node, and the number of the GPU that a line is of.
    series : dict
        By column: a series, ``gpu0/GPUUtilization``, or ``gpu*/GPUUtilization`` where a line is of one GPU.
    step : str or None
        The column of the training step.
    scalars : dict of str to str
        By column: the name of a scalar of training.
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


NVIDIA_SMI = Mapping(
    time=TimeColumn(column="timestamp", unit="text"),
    device="index",
    series={
        "utilization.gpu [%]": "gpu*/GPUUtilization",
        "utilization.memory [%]": "gpu*/GPUMemoryUtilization",
        "memory.used [MiB]": SeriesColumn(series="gpu*/MemoryUsedBytes", factor=2.0**20),
        "memory.total [MiB]": SeriesColumn(series="gpu*/MemoryTotalBytes", factor=2.0**20),
        "power.draw [W]": "gpu*/PowerWatts",
        "temperature.gpu": "gpu*/TemperatureCelsius",
        "clocks.current.sm [MHz]": "gpu*/SMClockMHz",
        "clocks.sm [MHz]": "gpu*/SMClockMHz",
    },
)
"""Of ``nvidia-smi --query-gpu=timestamp,index,… --format=csv -l 1``."""


def is_nvidia_smi(columns: Sequence[str]) -> bool:
    """Whether columns are those that ``nvidia-smi`` writes of each GPU."""
    return {"timestamp", "index", "utilization.gpu [%]"} <= set(columns)


def read_mapping(name: str, body: bytes) -> Mapping:
    """Read a mapping; raises TelemetryFormatError."""
    if len(body) > MAX_BYTES:
        raise TelemetryFormatError(name, f"larger than {MAX_BYTES:,} bytes, expected a mapping of columns")
    try:
        mapping = msgspec.json.decode(body, type=Mapping)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise TelemetryFormatError(name, f"{fault}, expected a mapping of columns") from fault
    mapping.measured(name)
    return mapping


def series_name(unit: str, rest: str) -> SeriesName:
    """Return the series of a unit."""
    if unit.startswith("gpu"):
        return SeriesName("gpu", unit, rest) if rest in _GPU_SERIES else SeriesName("gpu", f"{unit}.{rest}")
    return SeriesName("cpu", unit, rest) if unit.startswith("cpu") else SeriesName("memory", rest)


def _is_known(unit: str, rest: str) -> bool:
    if unit.startswith("gpu"):
        return _REST.fullmatch(rest) is not None
    return rest in _CPU_SERIES if unit.startswith("cpu") else (unit, rest) == ("memory", "MemoryUsedPercent")
