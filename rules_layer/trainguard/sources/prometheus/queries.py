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

ENGINE = "EngineActivityPercent"
"""The end of a name that is no series: it stands for the utilization of a GPU that has none."""

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
    DeviceMetric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gpu", rest=ENGINE, factor=100.0, highest=1.0),
    DeviceMetric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gpu", rest="TensorActivityPercent", factor=100.0, highest=1.0),
    DeviceMetric("DCGM_FI_PROF_DRAM_ACTIVE", "gpu", rest="DRAMActivityPercent", factor=100.0, highest=1.0),
    DeviceMetric("DCGM_FI_DEV_POWER_MGMT_LIMIT", "gpu", rest="PowerLimitWatts", highest=100_000.0),
    DeviceMetric("DCGM_FI_DEV_XID_ERRORS", "gpu", rest="XID", highest=100_000.0),
    DeviceMetric("neuroncore_utilization_ratio", "neuroncore", dimension="GPUUtilization", factor=100.0, highest=1.0),
)
MOST_DEVICES = 64
"""Of a node, counted from 0."""

NODE_LABELS = (
    "node",
    "kubernetes_node",
    "Hostname",
    "instance_id",
    "nodename",
    "instance",
    "host_name",
    "k8s_node_name",
    "host_id",
    "hostname",
    "@resource.host.name",
    "@resource.k8s.node.name",
    "@resource.host.id",
    "host.name",
    "k8s.node.name",
    "host.id",
)
"""What names a node, the first that a series has; a port behind ``instance`` is left out.

Behind it are the resource attributes of OpenTelemetry, as collectors and CloudWatch write them.
"""

NO_NODES = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Values by which a collector calls its own machine: they name no node."""

MIG_LABEL = "GPU_I_ID"
"""Series that have it are of a part of a GPU, for which DCGM gives no utilization; that of the whole is then none."""


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
