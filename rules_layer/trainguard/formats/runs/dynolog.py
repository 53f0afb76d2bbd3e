"""Logs of Dynolog's JSON logger: a line a GPU and sample, ``time = … data = {…}``.

Dynolog writes local time with a ``Z`` behind it: durations are right, times of day those of its zone.
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from trainguard.formats.runs.run import (
    ENGINE,
    MOST_DEVICES,
    ONLY_NODE,
    UTILIZATION,
    SeriesName,
    SnapshotCollector,
    SourceRun,
    gpu_series,
    put_utilization,
    utc_time,
)

TOOL = "Dynolog"
MARK = re.compile(rb"time = \d{4}-\d\d-\d\dT[0-9:.]+Z data = \{")
MOST_LINES = 20_000_000
NO_RECORD = "a line of data that cannot be read"
BLANK = "a value that DCGM had not"
TOO_MANY = f"lines beyond the first {MOST_LINES:,}"
_LINE = re.compile(rb"time = (?P<time>[0-9T:.-]+)Z data = (?P<data>\{.*\})\s*")
# By Dynolog's name: the measure, the factor, and the highest value that Dynolog gives.
_SERIES = {
    "gpu_device_utilization": (UTILIZATION, 1.0, 100.0),
    "gpu_memory_utilization": ("GPUMemoryUtilization", 1.0, 100.0),
    "gpu_power_draw": ("PowerWatts", 1.0, 100_000.0),
    "gpu_frequency_mhz": ("SMClockMHz", 1.0, 100_000.0),
    "sm_active_ratio": ("SMActivityPercent", 100.0, 1.0),
    "graphics_engine_active_ratio": (ENGINE, 100.0, 1.0),
    "sm_occupancy": ("SMOccupancyPercent", 100.0, 1.0),
    "tensorcore_active": ("TensorActivityPercent", 100.0, 1.0),
    "hbm_mem_bw_util": ("DRAMActivityPercent", 100.0, 1.0),
    "pcie_tx_bytes": ("PCIeTransmittedBytesPerSecond", 1.0, 1e13),
    "pcie_rx_bytes": ("PCIeReceivedBytesPerSecond", 1.0, 1e13),
}


def read_dynolog(name: str, lines: Iterable[bytes]) -> SourceRun:
    """Read the records of GPUs; those of the kernel, and what is no whole record, are passed over."""
    run = SourceRun(name, TOOL)
    collected = SnapshotCollector()
    for line in run.first(lines, MOST_LINES, TOO_MANY):
        if b" data = {" not in line or not line.endswith(b"\n"):
            continue
        record = _record(line)
        if record is None:
            run.refuse(NO_RECORD)
            continue
        at, data = record
        device = data.get("device")
        if isinstance(device, int) and 0 <= device < MOST_DEVICES:
            values = _values(run, device, data)
            if values:
                collected.add("", at, values)
    run.snapshots = collected.snapshots(ONLY_NODE)
    replaced = put_utilization([values for each in run.snapshots.values() for _, values in each])
    if not run.snapshots:
        run.nothing = f"is a log of Dynolog without a value of a GPU: none of its records has {', '.join(_SERIES)}"
    if replaced:
        run.notes.append(f"graphics_engine_active_ratio stands for the utilization of {', '.join(replaced)}.")
    return run


def _record(line: bytes) -> tuple[float, dict[str, Any]] | None:
    match = _LINE.search(line)
    if match is None:
        return None
    at = utc_time(match["time"].decode("ascii"))
    try:
        data = json.loads(match["data"])
    except (ValueError, RecursionError):
        return None
    return None if at is None or not isinstance(data, dict) else (at, data)


def _values(run: SourceRun, device: int, data: dict[str, Any]) -> dict[SeriesName, float]:
    values = {}
    for key, (measure, factor, highest) in _SERIES.items():
        if key not in data:
            continue
        try:
            value = float(data[key])
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if 0.0 <= value <= highest:
            values[gpu_series(f"gpu{device}", measure)] = factor * value
        else:
            run.lack(BLANK)
    return values
