"""Further series of GPUs that a report shows over time where they are collected."""

from collections.abc import Iterator, Mapping

import numpy as np

from trainguard.formats.profile import snapshots as names
from trainguard.formats.profile.snapshots import DeviceSamples, FloatArray, device_order
from trainguard.report.timeline.buckets import Key

MOST_GPUS = 64


PERCENT, RATE = "%", "bytes per second"
"""Units of values from 0 to 100, and of rates; a rate has no decimals, any other value has two."""

DEVICE_KINDS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "sm_activity": ("SM activity", PERCENT, (names.SM_ACTIVITY,)),
    "memory_used": ("GPU memory in use", PERCENT, (names.MEMORY_USED,)),
    "tensor_activity": ("Tensor core activity", PERCENT, (names.TENSOR_ACTIVITY,)),
    "dram_activity": ("Use of GPU memory's bandwidth", PERCENT, (names.DRAM_ACTIVITY,)),
    "sm_occupancy": ("SM occupancy", PERCENT, (names.SM_OCCUPANCY,)),
    "power": ("GPU power", "watts", (names.POWER,)),
    "sm_clock": ("SM clock", "MHz", (names.SM_CLOCK,)),
    "temperature": ("GPU temperature", "°C", (names.TEMPERATURE,)),
    "nvlink": ("NVLink, both directions", RATE, (names.NVLINK_SENT, names.NVLINK_RECEIVED)),
    "pcie": ("PCIe, both directions", RATE, (names.PCIE_SENT, names.PCIE_RECEIVED)),
}
"""Title, unit and metrics of each quantity of a GPU."""

KIND_LIMITS = {kind: MOST_GPUS * len(metrics) for kind, (_, _, metrics) in DEVICE_KINDS.items()}


def device_series(devices: DeviceSamples) -> Iterator[tuple[str, Key, FloatArray, FloatArray]]:
    """Yield kind, key, times (epoch seconds, float64[N]) and values (float64[N]) of one object's series.

    Memory in use, percent of the GPU's, is left out where the GPU's memory is not in the same object.
    """
    totals = devices.of(names.MEMORY_TOTAL)
    for kind, (_, _, metrics) in DEVICE_KINDS.items():
        for metric in metrics:
            for device, series in devices.of(metric).items():
                if not device.startswith("gpu"):
                    continue
                number = device_order(device)[0]
                values = series.values
                if kind == "memory_used":
                    if device not in totals or totals[device].last <= 0.0:
                        continue
                    values = np.minimum(100.0 * values / totals[device].last, 100.0)
                yield kind, (number, device, metric if len(metrics) > 1 else ""), series.times, values
