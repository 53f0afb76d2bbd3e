"""System metrics of a node: a matrix with one row a snapshot, and the series that the collector adds of devices."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

FULL_CORE = 90.0


@dataclass(frozen=True, slots=True)
class Snapshots:
    """T snapshots of one node with G GPUs, oldest first; NaN where a snapshot has no sample of a series.

    A snapshot is what the samplers saw within half a sampling interval; ``times``, float64[T], are epoch seconds of its
    first sample. GPU values are float64[T, G], others float64[T]; all are percentages in [0, 100], but ``cores_full``,
    a number of cores above FULL_CORE, and ``network``, bytes per second of both directions. ``gpu_memory`` is
    memory-controller activity; ``cpu`` and ``io_wait`` are over the cores.
    """

    times: FloatArray
    gpu_names: tuple[str, ...]
    gpu_utilization: FloatArray
    gpu_memory: FloatArray
    cpu_mean: FloatArray
    cpu_max: FloatArray
    cores_full: FloatArray
    io_wait_mean: FloatArray
    io_wait_max: FloatArray
    host_memory: FloatArray
    network: FloatArray

    def __len__(self) -> int:
        return int(self.times.size)


MEMORY_USED = "MemoryUsedBytes"
MEMORY_TOTAL = "MemoryTotalBytes"
POWER = "PowerWatts"
TEMPERATURE = "TemperatureCelsius"
SM_CLOCK = "SMClockMHz"
SM_CLOCK_MAXIMUM = "SMClockMaximumMHz"
POWER_LIMIT = "PowerLimitWatts"
MEMORY_SHARE = "MemoryUsedPercent"
SM_ACTIVITY = "SMActivityPercent"
ENGINE_ACTIVITY = "EngineActivityPercent"
SM_OCCUPANCY = "SMOccupancyPercent"
TENSOR_ACTIVITY = "TensorActivityPercent"
DRAM_ACTIVITY = "DRAMActivityPercent"
THROTTLE_REASONS = "ThrottleReasons"
LINK_WIDTH = "PCIeLinkWidth"
LINK_WIDTH_MAXIMUM = "PCIeLinkWidthMaximum"
ECC_UNCORRECTED = "ECCUncorrectedErrors"
REMAPPING_FAILED = "RemappedRowsFailed"
XID = "XID"
XID_COUNT = "XIDCount"
LOST = "Lost"
UNANSWERED = "Unanswered"
NVLINK_SENT, NVLINK_RECEIVED = "NVLinkTransmittedBytesPerSecond", "NVLinkReceivedBytesPerSecond"
PCIE_SENT, PCIE_RECEIVED = "PCIeTransmittedBytesPerSecond", "PCIeReceivedBytesPerSecond"
DISK_WRITE = "WriteThroughputInBytesPerSecond"
DISK_READ = "ReadThroughputInBytesPerSecond"

NODE = ""

# No node has more: 64 GPUs with all series of each.
MOST_DEVICE_SERIES = 2_048

# Instances of partitioned GPUs of a node that rules judge.
MOST_INSTANCES = 64

_PETA = 1e15
_LARGEST = {
    **dict.fromkeys((MEMORY_USED, MEMORY_TOTAL, ECC_UNCORRECTED, REMAPPING_FAILED), _PETA),
    **dict.fromkeys((NVLINK_SENT, NVLINK_RECEIVED, PCIE_SENT, PCIE_RECEIVED), _PETA),
    **dict.fromkeys((POWER, POWER_LIMIT, SM_CLOCK, SM_CLOCK_MAXIMUM, XID), 100_000.0),
    **dict.fromkeys((MEMORY_SHARE, SM_ACTIVITY, ENGINE_ACTIVITY, SM_OCCUPANCY, TENSOR_ACTIVITY, DRAM_ACTIVITY), 100.0),
    **dict.fromkeys((LINK_WIDTH, LINK_WIDTH_MAXIMUM), 1_024.0),
    **dict.fromkeys((LOST, UNANSWERED), 1.0),
    TEMPERATURE: 1_000.0,
    THROTTLE_REASONS: 2.0**53,
}
_OF_NODE = {DISK_WRITE: _PETA, DISK_READ: _PETA}
_DEVICE = re.compile(r"(gpu\d{1,4}(?:\.mig\d{1,3})?|neuron\d{1,4})\.([A-Za-z]{1,40})(\d{0,6})")


# A further series: its device, NODE for the whole node, its metric, and the largest value that it can have.
DeviceName = tuple[str, str, float]


def device_name(name: str | None) -> DeviceName | None:
    """Read the name of a line without a dimension; None of one that nothing is made of."""
    if name in _OF_NODE:
        return NODE, name, _OF_NODE[name]
    match = _DEVICE.fullmatch(name or "")
    if match is None:
        return None
    device, metric, code = match.groups()
    if metric == XID_COUNT and code:
        return device, f"{XID_COUNT}{int(code)}", _PETA
    return (device, metric, _LARGEST[metric]) if metric in _LARGEST and not code else None


@dataclass(frozen=True, slots=True)
class DeviceSeries:
    """The N > 0 samples of one series in one object: epoch seconds in order, and values, float64[N] each."""

    times: FloatArray
    values: FloatArray

    @property
    def first(self) -> float:
        return float(self.values[0])

    @property
    def last(self) -> float:
        return float(self.values[-1])

    @property
    def least(self) -> float:
        return float(self.values.min())

    @property
    def greatest(self) -> float:
        return float(self.values.max())

    @property
    def mean(self) -> float:
        return float(self.values.mean())


@dataclass(frozen=True, slots=True)
class DeviceSamples:
    """The further series of one object, by metric and then by device, in the order of the devices' numbers."""

    by_metric: Mapping[str, Mapping[str, DeviceSeries]] = field(default_factory=dict)

    def of(self, metric: str) -> Mapping[str, DeviceSeries]:
        return self.by_metric.get(metric, {})

    def of_node(self, metric: str) -> DeviceSeries | None:
        return self.of(metric).get(NODE)

    @property
    def devices(self) -> frozenset[str]:
        return frozenset(device for series in self.by_metric.values() for device in series if device != NODE)

    @property
    def xids(self) -> Mapping[int, Mapping[str, DeviceSeries]]:
        start = len(XID_COUNT)
        return {
            int(metric[start:]): series for metric, series in self.by_metric.items() if metric.startswith(XID_COUNT)
        }


NO_DEVICES = DeviceSamples()


def instances_of(known: list[str], devices: DeviceSamples) -> list[str]:
    """Return the instances of partitioned GPUs that are known, with those of ``devices``, at most MOST_INSTANCES."""
    new = [device for device in devices.devices if ".mig" in device and device not in known]
    return sorted([*known, *new], key=device_order)[:MOST_INSTANCES] if new else known


def device_order(device: str) -> tuple[int, int, str]:
    """Return what orders devices: the numbers of a GPU and of its instance, -1 for the whole GPU."""
    gpu, _, instance = device.partition(".mig")
    return int(re.sub(r"\D", "", gpu) or 0), int(instance) if instance.isdecimal() else -1, device


def device_samples(names: list[DeviceName], times: FloatArray, values: FloatArray, columns: IntArray) -> DeviceSamples:
    """Group samples by series; ``times`` and ``values`` are float64[N], ``columns`` int64[N] indexes ``names``."""
    if not names:
        return NO_DEVICES
    order = np.lexsort((times, columns))
    ends = np.cumsum(np.bincount(columns, minlength=len(names))).tolist()
    found: dict[str, dict[str, DeviceSeries]] = {}
    for (device, metric, _), start, end in zip(names, [0, *ends], ends, strict=False):
        if end > start:
            part = order[start:end]
            found.setdefault(metric, {})[device] = DeviceSeries(times[part], values[part])
    return DeviceSamples(found)


def points_in(seconds: float, interval_s: float) -> int:
    return max(1, round(seconds / interval_s))
