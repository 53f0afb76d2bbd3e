"""A run file of Weights & Biases as a `SourceRun`. Importing this module imports protobuf."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from google.protobuf import message

from trainguard.formats.runs.run import (
    HOST_MEMORY,
    LARGEST_STEP,
    ONLY_NODE,
    WORDS,
    Outcome,
    ScalarsOfStep,
    SeriesName,
    Snapshot,
    SnapshotCollector,
    SourceRun,
    gpu_series,
    whole_memory,
)
from trainguard.formats.runs.wandb.log_file import Record, Records

_GPU = {
    "gpu": "GPUUtilization",
    "memory": "GPUMemoryUtilization",
    "memoryAllocatedBytes": "MemoryUsedBytes",
    "powerWatts": "PowerWatts",
    "enforcedPowerLimitWatts": "PowerLimitWatts",
    "temp": "TemperatureCelsius",
    "smClock": "SMClockMHz",
    "pcieTxBytes": "PCIeTransmittedBytesPerSecond",
    "pcieRxBytes": "PCIeReceivedBytesPerSecond",
    "nvlinkTxBytes": "NVLinkTransmittedBytesPerSecond",
    "nvlinkRxBytes": "NVLinkReceivedBytesPerSecond",
    "smActive": "SMActivityPercent",
    "smOccupancy": "SMOccupancyPercent",
    "pipeTensorActive": "TensorActivityPercent",
    "dramActive": "DRAMActivityPercent",
}

_ACTIVITY = frozenset(each for each in _GPU.values() if each.endswith(("ActivityPercent", "OccupancyPercent")))
"""W&B writes these in percent from NVML, and as shares of 1 from dcgm-exporter."""

_SHARE = re.compile(r"(?:system\.)?gpu\.(\d{1,2})\.memoryAllocated(/l:.+)?", re.DOTALL)
_LEAST_SHARE = 0.5
"""Smaller shares are too coarse to estimate the whole memory from, percent."""

_NAME = re.compile(r"(?:system\.)?(?P<metric>[^/]*(?:/(?!l:)[^/]*)*?)(?:/l:(?P<node>.+))?", re.DOTALL)
_OF_GPU = re.compile(r"gpu\.(\d{1,2})\.(\w+)")
_OF_CORE = re.compile(r"cpu\.(\d{1,4})\.cpu_percent")
_COUNTERS = {"network.recv": "ReceiveBytesPerSecond", "network.sent": "TransmitBytesPerSecond"}
_MOST_REMEMBERED = 20_000


class SystemMetrics:
    def __init__(self) -> None:
        self._collected = SnapshotCollector()
        self._known: dict[str, tuple[str, SeriesName | None]] = {}
        self._most_active: dict[str, float] = {}

    def add(self, at: float, values: Mapping[str, float]) -> None:
        by_node: dict[str, dict[SeriesName, float]] = {}
        for name, value in values.items():
            node, series = self._series(name)
            if series is None:
                continue
            measured = self._collected.rate(node, series, at, value) if series.type == "network" else value
            if measured is not None:
                by_node.setdefault(node, {})[series] = measured
            if _is_activity(series):
                self._most_active[node] = max(self._most_active.get(node, 0.0), value)
        for node, series, total in self._totals(values):
            by_node.setdefault(node, {})[series] = total
        for node, found in by_node.items():
            self._collected.add(node, at, found)

    def snapshots(self, host: str) -> dict[str, list[Snapshot]]:
        """Return snapshots by node; ``host`` is the name of the node that the metrics do not name."""
        found = self._collected.snapshots(host or ONLY_NODE)
        for node, most in self._most_active.items():
            if most <= 1.0:
                # All of a run at 1 % or less would be a GPU that does nothing: these are shares of 1.
                name = node or host or ONLY_NODE
                for _, values in found[name]:
                    values.update({series: 100.0 * value for series, value in values.items() if _is_activity(series)})
        return found

    def _totals(self, values: Mapping[str, float]) -> Iterator[tuple[str, SeriesName, float]]:
        """Yield node, series and bytes of each GPU of which bytes and percent in use are known."""
        for name, share in values.items():
            match = _SHARE.fullmatch(name)
            used = values.get(name.replace(".memoryAllocated", ".memoryAllocatedBytes", 1)) if match else None
            total = None if used is None else whole_memory(used, share, _LEAST_SHARE)
            if match is not None and total is not None:
                yield (match[2] or "").removeprefix("/l:"), gpu_series(f"gpu{int(match[1])}", "MemoryTotalBytes"), total

    def _series(self, name: str) -> tuple[str, SeriesName | None]:
        """Return the node, empty where it is not named, and the series; one of the network counts up."""
        if name not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            match = _NAME.fullmatch(name)
            self._known[name] = ("", None) if match is None else (match["node"] or "", _named(match["metric"]))
        return self._known[name]


def _is_activity(series: SeriesName) -> bool:
    return series.type == "gpu" and series.name.partition(".")[2] in _ACTIVITY


def _named(metric: str) -> SeriesName | None:
    if match := _OF_GPU.fullmatch(metric):
        return gpu_series(f"gpu{int(match[1])}", _GPU[match[2]]) if match[2] in _GPU else None
    if match := _OF_CORE.fullmatch(metric):
        return SeriesName("cpu", f"cpu{int(match[1])}", "CPUUtilization")
    if metric == "memory_percent":
        return HOST_MEMORY
    return SeriesName("network", _COUNTERS[metric], "Algorithm") if metric in _COUNTERS else None


TOOL = "Weights & Biases"
_OWN_STEPS = ("train/global_step", "trainer/global_step")
"""Under these names trainers log the step that they count: W&B's own counts what was logged."""

_TIME, _STEP = "_timestamp", "_step"
_LONGEST_NAME = 1_024
_MOST_NAMES = 10_000
NO_RECORD = "a record that is no message of W&B"
NO_NUMBER = "a system metric that is no number"
TOO_MANY_NAMES = f"scalars beyond the first {_MOST_NAMES:,} names of a step"
_HTTPS = "https://wandb.ai"


def read_run_file(name: str, stream: BinaryIO) -> SourceRun:
    """Read a run file; one that is still written ends anywhere. Raises TelemetryFormatError when it is none."""
    records = Records(name, stream)
    reading = _Reading()
    for body in records:
        try:
            record = Record.FromString(body)
        except message.DecodeError:
            reading.run.refuse(NO_RECORD)
            continue
        reading.take(record)
    for why, count in records.bad.items():
        reading.run.refuse(why, count)
    return reading.finished()


class _Reading:
    def __init__(self) -> None:
        self.run = SourceRun("", TOOL)
        self._system = SystemMetrics()
        self._exit: Any = None
        self._last_at: float | None = None
        self._host = ""

    def take(self, record: Any) -> None:
        if record.HasField("stats"):
            self._stats(record.stats)
        elif record.HasField("history"):
            self._history(record.history)
        elif record.HasField("run"):
            self._described(record.run)
        elif record.HasField("exit"):
            self._exit = record.exit
        elif record.HasField("environment") and record.environment.gpu_type:
            self.run.gpu_type = _text(record.environment.gpu_type)

    def finished(self) -> SourceRun:
        run = self.run
        run.snapshots = self._system.snapshots(self._host)
        times = [each[-1][0] for each in run.snapshots.values() if each] + [row.at for row in run.scalars[-1:]]
        run.ended_at = max(times, default=None)
        if self._exit is not None:
            run.outcome = Outcome.FAILED if self._exit.exit_code else Outcome.COMPLETED
        return run

    def _described(self, described: Any) -> None:
        run = self.run
        parts = [_text(each) for each in (described.entity, described.project)]
        identity = _text(described.run_id)
        run.name = _text(described.display_name) or identity
        if all(parts) and identity:
            run.link = "/".join((_HTTPS, *parts, "runs", identity))
        run.owners = dict(zip(("team", "project"), parts, strict=True))
        self._host = _text(described.host)
        if described.HasField("start_time"):
            run.started_at = _seconds(described.start_time)

    def _stats(self, stats: Any) -> None:
        values = {}
        for item in stats.item:
            value = _number(item.value_json)
            if value is None:
                self.run.refuse(NO_NUMBER)
            elif math.isfinite(value):
                values[_text(item.key)] = value
        self._system.add(_seconds(stats.timestamp), values)

    def _history(self, history: Any) -> None:
        values: dict[str, float] = {}
        at, step = None, history.step.num
        for item in history.item:
            name = _text(item.key) if item.key else ".".join(map(_text, item.nested_key))
            value = _value(item)
            if value is None or len(name) > _LONGEST_NAME:
                continue  # Texts, pictures and tables are no scalars.
            if name == _TIME:
                at = value
            elif name == _STEP:
                step = _whole(value, step)
            elif not name.startswith("_"):
                if len(values) >= _MOST_NAMES:
                    self.run.refuse(TOO_MANY_NAMES)
                    break
                values[name] = value
        own = next((values[name] for name in _OWN_STEPS if name in values), None)
        step = step if own is None else _whole(own, step)
        at = self._last_at if at is None or not math.isfinite(at) else at
        at = self.run.started_at if at is None else at
        if values and at is not None and 0 <= step <= LARGEST_STEP:
            self._last_at = at
            self.run.scalars.append(ScalarsOfStep(step, at, values))


def _value(item: Any) -> float | None:
    for kind in ("number", "integer", "boolean"):
        if item.HasField(kind):
            return float(getattr(item, kind))
    return _number(item.value_json)


def _number(text: bytes) -> float | None:
    """Return a number in JSON, or one of the words that W&B writes for what is none; None of anything else."""
    try:
        return float(text)
    except ValueError:
        pass
    if len(text) > len('"-Infinity"'):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if isinstance(value, bool):
        return float(value)
    return WORDS.get(value) if isinstance(value, str) else None


def _whole(value: float, otherwise: int) -> int:
    return int(value) if math.isfinite(value) and 0 <= value <= LARGEST_STEP else otherwise


def _seconds(time: Any) -> float:
    return float(time.seconds) + float(time.nanos) / 1e9


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")
