"""Further series of GPUs that a report shows over time where they are collected."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainguard.formats.profile import snapshots as names
from trainguard.formats.profile.snapshots import DeviceSamples, FloatArray, device_order
from trainguard.report.timeline.buckets import Key

MOST_GPUS = 64


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A quantity of a GPU; a percentage and any other value has two decimals, a rate in bytes per second none."""

    name: str
    title: str
    metrics: tuple[str, ...]
    unit: str

    @property
    def is_percent(self) -> bool:
        return self.unit == "%"

    @property
    def is_rate(self) -> bool:
        return self.unit == "bytes per second"


DEVICE_KINDS = (
    DeviceKind("sm_activity", "SM activity", (names.SM_ACTIVITY,), "%"),
    DeviceKind("memory_used", "GPU memory in use", (names.MEMORY_USED,), "%"),
    DeviceKind("tensor_activity", "Tensor core activity", (names.TENSOR_ACTIVITY,), "%"),
    DeviceKind("dram_activity", "Use of GPU memory's bandwidth", (names.DRAM_ACTIVITY,), "%"),
    DeviceKind("sm_occupancy", "SM occupancy", (names.SM_OCCUPANCY,), "%"),
    DeviceKind("power", "GPU power", (names.POWER,), "watts"),
    DeviceKind("sm_clock", "SM clock", (names.SM_CLOCK,), "MHz"),
    DeviceKind("temperature", "GPU temperature", (names.TEMPERATURE,), "°C"),
    DeviceKind("nvlink", "NVLink, both directions", (names.NVLINK_SENT, names.NVLINK_RECEIVED), "bytes per second"),
    DeviceKind("pcie", "PCIe, both directions", (names.PCIE_SENT, names.PCIE_RECEIVED), "bytes per second"),
)

KIND_LIMITS = {each.name: MOST_GPUS * len(each.metrics) for each in DEVICE_KINDS}


def device_series(devices: DeviceSamples) -> Iterator[tuple[DeviceKind, Key, FloatArray, FloatArray]]:
    """Yield kind, key, times (epoch seconds, float64[N]) and values (float64[N]) of one object's series.

    Memory in use, percent of the GPU's, is left out where the GPU's memory is not in the same object.
    """
    totals = devices.of(names.MEMORY_TOTAL)
    for kind in DEVICE_KINDS:
        for metric in kind.metrics:
            for device, series in devices.of(metric).items():
                if not device.startswith("gpu"):
                    continue
                number = device_order(device)[0]
                values = series.values
                if kind.name == "memory_used":
                    if device not in totals or totals[device].last <= 0.0:
                        continue
                    values = np.minimum(100.0 * values / totals[device].last, 100.0)
                yield kind, (number, device, metric if len(kind.metrics) > 1 else ""), series.times, values
