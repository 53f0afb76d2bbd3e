"""The exporters that are read: names of their metrics, what these measure, and labels of devices.

Sources: dcgm-exporter's `etc/default-counters.csv` and its template of labels (NVIDIA/dcgm-exporter); neuron-monitor's
`neuron-monitor-prometheus.py` (AWS Neuron); `docs/configuration/metricslist.md` (ROCm/device-metrics-exporter).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainguard.formats.runs.run import ENGINE, MEBI, MOST_DEVICES

# Ends of names; the last two are no series, and make the second where an exporter writes no total.
USED, TOTAL, FREE, RESERVED = "MemoryUsedBytes", "MemoryTotalBytes", "MemoryFreeBytes", "MemoryReservedBytes"

XID = "XID"
_HIGHEST = 2_147_483_000.0
_PETA = 1e15


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, what it measures, the factor to the series' unit, and the highest value in the metric's own."""

    name: str
    measure: str
    factor: float = 1.0
    highest: float = 100.0


# Of a series that only says which names a device has.
NO_METRIC = Metric("", "")


@dataclass(frozen=True, slots=True)
class Vendor:
    """Metrics of one exporter; without a series of the first ``asked_first`` the others are not asked for.

    ``numbers`` are the labels that may hold a device's number, ``shared`` is the label of programs that share a device:
    what they use adds up.
    """

    metrics: tuple[Metric, ...]
    numbers: tuple[str, ...]
    asked_first: int
    shared: str = ""


_DCGM = (
    Metric("DCGM_FI_DEV_GPU_UTIL", "GPUUtilization"),
    Metric("DCGM_FI_DEV_MEM_COPY_UTIL", "GPUMemoryUtilization"),
    Metric("DCGM_FI_DEV_FB_USED", USED, MEBI, _HIGHEST),
    Metric("DCGM_FI_DEV_FB_TOTAL", TOTAL, MEBI, _HIGHEST),
    Metric("DCGM_FI_DEV_FB_FREE", FREE, MEBI, _HIGHEST),
    Metric("DCGM_FI_DEV_FB_RESERVED", RESERVED, MEBI, _HIGHEST),
    Metric("DCGM_FI_DEV_POWER_USAGE", "PowerWatts", 1.0, 100_000.0),
    Metric("DCGM_FI_DEV_GPU_TEMP", "TemperatureCelsius", 1.0, 1_000.0),
    Metric("DCGM_FI_DEV_SM_CLOCK", "SMClockMHz", 1.0, 100_000.0),
    Metric("DCGM_FI_PROF_SM_ACTIVE", "SMActivityPercent", 100.0, 1.0),
    Metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", ENGINE, 100.0, 1.0),
    Metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "TensorActivityPercent", 100.0, 1.0),
    Metric("DCGM_FI_PROF_DRAM_ACTIVE", "DRAMActivityPercent", 100.0, 1.0),
    Metric("DCGM_FI_DEV_POWER_MGMT_LIMIT", "PowerLimitWatts", 1.0, 100_000.0),
    Metric("DCGM_FI_DEV_XID_ERRORS", XID, 1.0, 100_000.0),
)
_NEURON = (
    Metric("neuroncore_utilization_ratio", "GPUUtilization", 100.0, 1.0),
    *(
        Metric(f"neuroncore_memory_usage_{part}", USED, 1.0, _PETA)
        for part in ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")
    ),
)


def _amd(prefix: str) -> tuple[Metric, ...]:
    return (
        Metric(f"{prefix}gpu_gfx_activity", "GPUUtilization"),
        Metric(f"{prefix}gpu_umc_activity", "GPUMemoryUtilization"),
        Metric(f"{prefix}gpu_used_vram", USED, MEBI, _HIGHEST),
        Metric(f"{prefix}gpu_total_vram", TOTAL, MEBI, _HIGHEST),
        Metric(f"{prefix}gpu_package_power", "PowerWatts", 1.0, 60_000.0),
        Metric(f"{prefix}gpu_average_package_power", "PowerWatts", 1.0, 60_000.0),
        Metric(f"{prefix}gpu_junction_temperature", "TemperatureCelsius", 1.0, 1_000.0),
    )


VENDORS = (
    Vendor(_DCGM, ("gpu", "device"), len(_DCGM)),
    Vendor(_NEURON, ("neuroncore",), 1, shared="runtime_tag"),
    Vendor(_amd("amd_"), ("gpu_id",), 1),
    Vendor(_amd(""), ("gpu_id",), 1),
)

# What DCGM measures of an instance of a divided GPU (MIG); the rest of its series is of the whole GPU.
OF_PARTS = frozenset(
    {USED, TOTAL, FREE, RESERVED, ENGINE, "SMActivityPercent", "TensorActivityPercent", "DRAMActivityPercent"}
)

# Not measured of a divided GPU: what DCGM gives is 0, or that of nothing.
UTILIZATIONS = frozenset({"GPUUtilization", "GPUMemoryUtilization"})

_INSTANCE, _PART = "GPU_I_ID", re.compile(r"\d{1,3}")
_UUIDS = ("UUID", "uuid", "gpu_uuid", "GPU_UUID")
_NUMBER = re.compile(r"(?:nvidia)?(\d{1,4})")


def number_of(labels: Mapping[str, str], vendor: Vendor) -> int | None:
    """Return a device's number on its node; None where no label tells it."""
    for label in vendor.numbers:
        match = _NUMBER.fullmatch(labels.get(label, ""))
        if match is not None:
            return int(match[1]) if int(match[1]) < MOST_DEVICES else None
    return None


def uuid_of(labels: Mapping[str, str]) -> str:
    """Return what tells a GPU from all others; nothing where the exporter does not say it.

    A UUID of an instance (MIG) is none of the GPU.
    """
    found = next((labels[label] for label in _UUIDS if labels.get(label)), "")
    return "" if found.startswith("MIG-") else found


def instance_of(labels: Mapping[str, str]) -> str | None:
    """Return the number of the instance (MIG) that a series is of; nothing of a whole GPU, None where it is none."""
    found = labels.get(_INSTANCE, "")
    return found if not found or _PART.fullmatch(found) else None


def is_blank(value: float) -> bool:
    """Whether a value stands for none: those of DCGM for 32 and 64 bits and for reals, and AMD's highest ones."""
    return value in {65_535.0, 4_294_967_295.0} or 2_147_483_632.0 <= value <= 2_147_483_647.0 or value >= 2.0**47
