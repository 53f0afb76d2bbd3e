"""Samples as points of OpenTelemetry's semantic conventions for hardware and systems."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Optional, Union

from trainguard_collector.metrics import Sample

GAUGE, COUNTER, UP_DOWN = "gauge", "counter", "up_down"


_Attributes = dict[str, Union[str, int]]


class Metric(NamedTuple):
    """``unit`` is UCUM's; a value of a series is multiplied by ``factor``."""

    name: str
    kind: str
    unit: str
    help: str
    factor: float = 1.0

    @property
    def is_whole(self) -> bool:
        return self.unit in ("By", "{error}") or self.kind == UP_DOWN


class Point(NamedTuple):
    """A value at epoch second ``at``; a counter of ours counts from ``since`` on."""

    metric: Metric
    attributes: "_Attributes"
    value: float
    at: float
    since: Optional[float] = None


# What is known of a device, as attributes by its name.
About = Mapping[str, Mapping[str, str]]
_GPU = {"hw.type": "gpu"}
_ERRORS = Metric("hw.errors", COUNTER, "{error}", "Number of errors encountered by the component.")
_IO = Metric("hw.gpu.io", COUNTER, "By", "Received and transmitted bytes by the GPU.")
_USED = Metric("hw.gpu.memory.utilization", GAUGE, "1", "Fraction of GPU memory used.")
_STATUS = Metric(
    "hw.status", UP_DOWN, "1", "Operational status: 1 (true) or 0 (false) for each of the possible states."
)
_CPU = Metric("system.cpu.utilization", GAUGE, "1", "Fraction of time that the logical CPU was busy.", 0.01)
# Series of a device, the dimension where it has no name of its own; no convention has those of the last four.
_OF_GPU: "dict[str, tuple[Metric, dict[str, str]]]" = {
    "GPUUtilization": (
        Metric("hw.gpu.utilization", GAUGE, "1", "Fraction of time spent in a specific task.", 0.01),
        {"hw.gpu.task": "general"},
    ),
    "MemoryUsedBytes": (Metric("hw.gpu.memory.usage", UP_DOWN, "By", "GPU memory used."), {}),
    "MemoryTotalBytes": (Metric("hw.gpu.memory.limit", UP_DOWN, "By", "Size of the GPU memory."), {}),
    "PowerWatts": (Metric("hw.power", GAUGE, "W", "Instantaneous power consumed by the component."), {}),
    "TemperatureCelsius": (
        Metric("hw.temperature", GAUGE, "Cel", "Temperature in degrees Celsius."),
        {"hw.sensor_location": "GPU"},
    ),
    "ECCCorrectedErrors": (_ERRORS, {"error.type": "corrected"}),
    "ECCUncorrectedErrors": (_ERRORS, {"error.type": "uncorrected"}),
    "SMActivityPercent": (
        Metric("trainguard.gpu.sm.activity", GAUGE, "1", "Fraction of time with work, of all SMs.", 0.01),
        {},
    ),
    "SMOccupancyPercent": (
        Metric("trainguard.gpu.sm.occupancy", GAUGE, "1", "Resident warps of those possible.", 0.01),
        {},
    ),
    "TensorActivityPercent": (
        Metric("trainguard.gpu.tensor.activity", GAUGE, "1", "Fraction of time that tensor cores worked.", 0.01),
        {},
    ),
    "DRAMActivityPercent": (
        Metric("trainguard.gpu.dram.activity", GAUGE, "1", "Fraction of the memory bandwidth that was used.", 0.01),
        {},
    ),
}
_OF_MEMORY: "dict[str, tuple[Metric, dict[str, str]]]" = {
    "MemoryUsedPercent": (
        Metric("system.memory.utilization", GAUGE, "1", "Fraction of memory in use, of the container's limit.", 0.01),
        {"system.memory.state": "used"},
    ),
    "MemoryTotalBytes": (Metric("system.memory.limit", UP_DOWN, "By", "Total memory available in the system."), {}),
}
_TRAFFIC = re.compile(r"(PCIe|NVLink)(Transmitted|Received)BytesPerSecond")
_DIRECTIONS = {"Transmitted": "transmit", "Received": "receive"}
_XID = re.compile(r"XIDCount(\d+)")
_FAILED = ("Lost", "Unanswered")

_Key = tuple[str, str, str]


class Newest:
    """The newest sample of each series that is at most ``kept_s`` old; traffic is added up. Any thread may ask."""

    def __init__(self, kept_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._kept_s, self._monotonic = kept_s, monotonic
        self._lock = threading.Lock()
        # Value, epoch seconds, and seconds of a clock that nobody sets.
        self._found: dict[_Key, tuple[float, float, float]] = {}
        # Bytes so far, and since when.
        self._bytes: dict[str, tuple[float, float]] = {}
        self._about: dict[str, Mapping[str, str]] = {}

    def take(self, samples: Iterable[Sample], at: float, steady: float, about: About) -> None:
        with self._lock:
            self._about.update(about)
            for kind, name, dimension, value in samples:
                if not math.isfinite(value):
                    continue
                key = kind, name, dimension
                if kind == "gpu" and name.endswith("BytesPerSecond"):
                    so_far, since = self._bytes.get(name, (0.0, at))
                    # A rate is the mean since the reading before.
                    passed = steady - self._found[key][2] if key in self._found else 0.0
                    self._bytes[name] = so_far + value * passed, since
                self._found[key] = value, at, steady

    def points(self) -> "list[Point]":
        oldest = self._monotonic() - self._kept_s
        with self._lock:
            fresh = {key: (value, at) for key, (value, at, steady) in self._found.items() if steady >= oldest}
            traffic, about = dict(self._bytes), dict(self._about)
        return points(fresh, traffic, about)


def points(
    found: "Mapping[_Key, tuple[float, float]]", traffic: "Mapping[str, tuple[float, float]]", about: About
) -> "list[Point]":
    """Return points of values and times by type, name and dimension; ``traffic`` has bytes so far, and since when."""
    made: list[Point] = []
    failed: dict[str, tuple[float, float]] = {}
    for (kind, name, dimension), (value, at) in found.items():
        if kind == "cpu" and dimension == "CPUUtilization":
            made.append(Point(_CPU, {"cpu.logical_number": int(name[len("cpu") :])}, value * _CPU.factor, at))
        elif kind == "memory" and name in _OF_MEMORY:
            metric, more = _OF_MEMORY[name]
            made.append(Point(metric, {**more}, value * metric.factor, at))
        elif kind == "gpu":
            device, _, series = (name, "", dimension) if dimension else name.rpartition(".")
            if series in _FAILED:
                failed[device] = max(failed.get(device, (0.0, at)), (value, at))
            elif point := _of_gpu(series, _attributes(device, about), value, at, traffic.get(name)):
                made.append(point)
                total = found.get((kind, f"{device}.MemoryTotalBytes", ""), (0.0, 0.0))[0]
                if series == "MemoryUsedBytes" and total > 0.0:
                    made.append(Point(_USED, point.attributes, value / total, at))
    for device, (value, at) in failed.items():
        for state, is_so in (("ok", not value), ("failed", bool(value))):
            made.append(Point(_STATUS, {**_attributes(device, about), "hw.state": state}, float(is_so), at))
    return made


def _of_gpu(
    series: str, device: "_Attributes", value: float, at: float, traffic: "Optional[tuple[float, float]]"
) -> Optional[Point]:
    if series in _OF_GPU:
        metric, more = _OF_GPU[series]
        return Point(metric, {**device, **more}, value * metric.factor, at)
    if xid := _XID.fullmatch(series):
        return Point(_ERRORS, {**device, "error.type": f"xid_{xid[1]}"}, value, at)
    link = _TRAFFIC.fullmatch(series)
    if link is None or traffic is None:
        return None
    more = {"network.io.direction": _DIRECTIONS[link[2]], "trainguard.link": link[1].lower()}
    return Point(_IO, {**device, **more}, traffic[0], at, traffic[1])


def _attributes(device: str, about: About) -> "_Attributes":
    """Return what names a device, or an instance of one (MIG): the id is unique in the host, the name in the job."""
    whole, _, instance = device.partition(".")
    known = about.get(whole, {})
    parent = known.get("hw.id", whole)
    own = {"hw.id": f"{parent}.{instance}", "hw.parent": parent} if instance else {"hw.id": parent}
    return {**known, **_GPU, "hw.name": device, **own}
