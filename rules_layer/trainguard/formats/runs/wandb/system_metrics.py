"""System metrics of Weights & Biases as series of a profile."""

import re
from collections.abc import Iterator, Mapping

from trainguard.formats.runs.run import ONLY_NODE, SeriesName, Snapshot, SnapshotCollector, gpu_series, whole_memory

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
_HOST_MEMORY = SeriesName("memory", "MemoryUsedPercent")
_MOST_REMEMBERED = 20_000


class SystemMetrics:
    """Collects the system metrics of a run."""

    def __init__(self) -> None:
        self._collected = SnapshotCollector()
        self._known: dict[str, tuple[str, SeriesName | None]] = {}
        self._most_active: dict[str, float] = {}

    def add(self, at: float, values: Mapping[str, float]) -> None:
        """Take in values by W&B's names, measured at ``at``, epoch seconds."""
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
                found[name] = [_in_percent(each) for each in found[name]]
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


def _in_percent(snapshot: Snapshot) -> Snapshot:
    values = {series: 100.0 * value if _is_activity(series) else value for series, value in snapshot.values.items()}
    return Snapshot(snapshot.at, values)


def _named(metric: str) -> SeriesName | None:
    if match := _OF_GPU.fullmatch(metric):
        return gpu_series(f"gpu{int(match[1])}", _GPU[match[2]]) if match[2] in _GPU else None
    if match := _OF_CORE.fullmatch(metric):
        return SeriesName("cpu", f"cpu{int(match[1])}", "CPUUtilization")
    if metric == "memory_percent":
        return _HOST_MEMORY
    return SeriesName("network", _COUNTERS[metric], "Algorithm") if metric in _COUNTERS else None
