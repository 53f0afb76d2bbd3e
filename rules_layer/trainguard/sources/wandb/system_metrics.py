"""System metrics of Weights & Biases as series of a profile."""

import re
from collections.abc import Mapping

from trainguard.sources.run import ONLY_NODE, SeriesName, Snapshot
from trainguard.sources.snapshots import SnapshotCollector

_GPU = {
    "gpu": ("GPUUtilization", ""),
    "memory": ("GPUMemoryUtilization", ""),
    "memoryAllocatedBytes": ("", "MemoryUsedBytes"),
    "powerWatts": ("", "PowerWatts"),
    "temp": ("", "TemperatureCelsius"),
    "smClock": ("", "SMClockMHz"),
    "pcieTxBytes": ("", "PCIeTransmittedBytesPerSecond"),
    "pcieRxBytes": ("", "PCIeReceivedBytesPerSecond"),
}
"""By W&B's name: the dimension, or the rest of the name, of a series (docs/formats.md)."""

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
        for node, found in by_node.items():
            self._collected.add(node, at, found)

    def snapshots(self, host: str) -> dict[str, list[Snapshot]]:
        """Return snapshots by node; ``host`` is the name of the node that the metrics do not name."""
        return self._collected.snapshots(host or ONLY_NODE)

    def _series(self, name: str) -> tuple[str, SeriesName | None]:
        """Return the node, empty where it is not named, and the series; one of the network counts up."""
        if name not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            match = _NAME.fullmatch(name)
            self._known[name] = ("", None) if match is None else (match["node"] or "", _named(match["metric"]))
        return self._known[name]


def _named(metric: str) -> SeriesName | None:
    if match := _OF_GPU.fullmatch(metric):
        gpu, kind = f"gpu{int(match[1])}", match[2]
        if kind not in _GPU:
            return None
        dimension, rest = _GPU[kind]
        return SeriesName("gpu", gpu if dimension else f"{gpu}.{rest}", dimension)
    if match := _OF_CORE.fullmatch(metric):
        return SeriesName("cpu", f"cpu{int(match[1])}", "CPUUtilization")
    if metric == "memory_percent":
        return _HOST_MEMORY
    return SeriesName("network", _COUNTERS[metric], "Algorithm") if metric in _COUNTERS else None
