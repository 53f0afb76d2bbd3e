"""Logs of Dynolog's JSON logger: a line a GPU and sample, ``time = … data = {…}``.

Dynolog writes the local time of its machine and a ``Z`` behind it: durations are right, times of day those of its zone.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Set
from datetime import UTC, datetime
from typing import Any

from trainguard.sources.run import ONLY_NODE, SeriesName, Snapshot, SourceRun
from trainguard.sources.snapshots import SnapshotCollector

TOOL = "Dynolog"
MARK = re.compile(rb"time = \d{4}-\d\d-\d\dT[0-9:.]+Z data = \{")
MOST_LINES = 20_000_000
NO_RECORD = "a line of data that cannot be read"
BLANK = "a value that DCGM had not"
TOO_MANY = f"lines beyond the first {MOST_LINES:,}"
_LINE = re.compile(rb"time = (?P<time>[0-9T:.-]+)Z data = (?P<data>\{.*\})\s*")
_MOST_DEVICES = 64
_ENGINE = "EngineActivityPercent"
"""The end of a name that is no series: it stands for the utilization of a GPU that has none."""

_UTILIZATION = "GPUUtilization"
_SERIES = {
    "gpu_device_utilization": (_UTILIZATION, "", 1.0, 100.0),
    "gpu_memory_utilization": ("GPUMemoryUtilization", "", 1.0, 100.0),
    "gpu_power_draw": ("", "PowerWatts", 1.0, 100_000.0),
    "gpu_frequency_mhz": ("", "SMClockMHz", 1.0, 100_000.0),
    "sm_active_ratio": ("", "SMActivityPercent", 100.0, 1.0),
    "graphics_engine_active_ratio": ("", _ENGINE, 100.0, 1.0),
    "sm_occupancy": ("", "SMOccupancyPercent", 100.0, 1.0),
    "tensorcore_active": ("", "TensorActivityPercent", 100.0, 1.0),
    "hbm_mem_bw_util": ("", "DRAMActivityPercent", 100.0, 1.0),
    "pcie_tx_bytes": ("", "PCIeTransmittedBytesPerSecond", 1.0, 1e13),
    "pcie_rx_bytes": ("", "PCIeReceivedBytesPerSecond", 1.0, 1e13),
}
"""By Dynolog's name: the dimension, or the rest of the name, of a series (docs/formats.md), the factor, and the highest
value that Dynolog gives."""


def read_dynolog(name: str, lines: Iterable[bytes]) -> SourceRun:
    """Read the records of GPUs; those of the kernel have no cores and are passed over.

    Parameters
    ----------
    name : str
        What the run is called.
    lines : iterable of bytes
        Of a file. What is no record is passed over; a record that is cut off at the end is still written.
    """
    run = SourceRun(name, TOOL)
    collected = SnapshotCollector()
    for number, line in enumerate(lines):
        if number >= MOST_LINES:
            run.refuse(TOO_MANY)
            break
        if b" data = {" not in line or not line.endswith(b"\n"):
            continue
        record = _record(line)
        if record is None:
            run.refuse(NO_RECORD)
            continue
        at, data = record
        device = data.get("device")
        if isinstance(device, int) and 0 <= device < _MOST_DEVICES:
            values = _values(run, device, data)
            if values:
                collected.add("", at, values)
    run.snapshots = collected.snapshots(ONLY_NODE)
    _put_utilization(run)
    return run


def _put_utilization(run: SourceRun) -> None:
    """Let the activity of the engine be the utilization of GPUs that have none."""
    found = [values for each in run.snapshots.values() for snapshot in each if (values := snapshot.values)]
    known = {series.name for values in found for series in values if series.dimension == _UTILIZATION}
    replaced: set[str] = set()
    for node, snapshots in run.snapshots.items():
        run.snapshots[node] = [Snapshot(each.at, _with_engine(each.values, known, replaced)) for each in snapshots]
    if replaced:
        run.notes.append(f"graphics_engine_active_ratio stands for the utilization of {', '.join(sorted(replaced))}.")


def _with_engine(values: Mapping[SeriesName, float], known: Set[str], replaced: set[str]) -> Mapping[SeriesName, float]:
    put = {}
    for series, value in values.items():
        gpu, _, rest = series.name.partition(".")
        if rest != _ENGINE:
            put[series] = value
        elif gpu not in known:
            put[SeriesName("gpu", gpu, _UTILIZATION)] = value
            replaced.add(gpu)
    return put


def _record(line: bytes) -> tuple[float, dict[str, Any]] | None:
    match = _LINE.search(line)
    if match is None:
        return None
    try:
        at = datetime.fromisoformat(match["time"].decode("ascii")).replace(tzinfo=UTC).timestamp()
        data = json.loads(match["data"])
    except (ValueError, RecursionError):
        return None
    return (at, data) if isinstance(data, dict) else None


def _values(run: SourceRun, device: int, data: dict[str, Any]) -> dict[SeriesName, float]:
    values = {}
    for key, (dimension, rest, factor, highest) in _SERIES.items():
        if key not in data:
            continue
        try:
            value = float(data[key])
        except (TypeError, ValueError):
            value = math.nan
        if 0.0 <= value <= highest:
            gpu = f"gpu{device}"
            values[SeriesName("gpu", gpu if dimension else f"{gpu}.{rest}", dimension)] = factor * value
        else:
            run.refuse(BLANK)
    return values
