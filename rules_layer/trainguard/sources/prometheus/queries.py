"""Which metrics are asked for, and which series they become: of dcgm-exporter, neuron-monitor and node exporter."""

from dataclasses import dataclass
from typing import Literal

MEBI = 2.0**20

DevicePart = Literal["value", "rest"]


@dataclass(frozen=True, slots=True)
class DeviceMetric:
    """A metric of a GPU or a NeuronCore.

    ``dimension`` names a managed series, ``rest`` the end of the name of a further one (docs/formats.md). A value is
    multiplied by ``factor``; one above ``highest`` is none: DCGM writes so where it has no value.
    """

    name: str
    label: str
    dimension: str = ""
    rest: str = ""
    factor: float = 1.0
    highest: float = 2_147_483_000.0


USED, TOTAL, FREE, RESERVED = "MemoryUsedBytes", "MemoryTotalBytes", "MemoryFreeBytes", "MemoryReservedBytes"
"""Ends of names; the last two are no series, and make the third where dcgm-exporter writes no total, as by default."""

DEVICE_METRICS = (
    DeviceMetric("DCGM_FI_DEV_GPU_UTIL", "gpu", dimension="GPUUtilization", highest=100.0),
    DeviceMetric("DCGM_FI_DEV_MEM_COPY_UTIL", "gpu", dimension="GPUMemoryUtilization", highest=100.0),
    DeviceMetric("DCGM_FI_DEV_FB_USED", "gpu", rest=USED, factor=MEBI),
    DeviceMetric("DCGM_FI_DEV_FB_TOTAL", "gpu", rest=TOTAL, factor=MEBI),
    DeviceMetric("DCGM_FI_DEV_FB_FREE", "gpu", rest=FREE, factor=MEBI),
    DeviceMetric("DCGM_FI_DEV_FB_RESERVED", "gpu", rest=RESERVED, factor=MEBI),
    DeviceMetric("DCGM_FI_DEV_POWER_USAGE", "gpu", rest="PowerWatts", highest=100_000.0),
    DeviceMetric("DCGM_FI_DEV_GPU_TEMP", "gpu", rest="TemperatureCelsius", highest=1_000.0),
    DeviceMetric("DCGM_FI_DEV_SM_CLOCK", "gpu", rest="SMClockMHz", highest=100_000.0),
    DeviceMetric("DCGM_FI_PROF_SM_ACTIVE", "gpu", rest="SMActivityPercent", factor=100.0, highest=1.0),
    DeviceMetric("DCGM_FI_DEV_XID_ERRORS", "gpu", rest="XID", highest=100_000.0),
    DeviceMetric("neuroncore_utilization_ratio", "neuroncore", dimension="GPUUtilization", factor=100.0, highest=1.0),
)
MOST_DEVICES = 64
"""Of a node, counted from 0."""

NODE_LABELS = ("node", "kubernetes_node", "Hostname", "instance_id", "nodename", "instance")
"""What names a node, the first that a series has; a port behind ``instance`` is left out."""

MIG_LABEL = "GPU_I_ID"
"""Series that have it are of a part of a GPU, for which DCGM gives no utilization."""


@dataclass(frozen=True, slots=True)
class HostQuery:
    """An expression over the nodes that have devices; braces stand for its matchers, and for the time of a rate."""

    expression: str
    type: str
    dimension: str
    core_label: str | None


HOST_QUERIES = (
    HostQuery('100 - 100 * rate(node_cpu_seconds_total{mode="idle",%s}[%s])', "cpu", "CPUUtilization", "cpu"),
    HostQuery('100 * rate(node_cpu_seconds_total{mode="iowait",%s}[%s])', "cpu", "I/OWaitPercentage", "cpu"),
    HostQuery("100 - 100 * node_memory_MemAvailable_bytes{%s} / node_memory_MemTotal_bytes", "memory", "", None),
)
