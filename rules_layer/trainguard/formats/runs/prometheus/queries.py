"""Which metrics are asked for, and which series they become."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainguard.core.errors import ProfileSourceError
from trainguard.formats.runs.json_api import JsonApi
from trainguard.formats.runs.run import ENGINE, MEBI


@dataclass(frozen=True, slots=True)
class DeviceMetric:
    """A metric of a GPU or a NeuronCore; DCGM writes values above ``highest`` where it has none."""

    name: str
    label: str
    measure: str
    factor: float = 1.0
    highest: float = 2_147_483_000.0


USED, TOTAL, FREE, RESERVED = "MemoryUsedBytes", "MemoryTotalBytes", "MemoryFreeBytes", "MemoryReservedBytes"
"""Ends of names; the last two are no series, and make the third where dcgm-exporter writes no total, as by default."""

DEVICE_METRICS = (
    DeviceMetric("DCGM_FI_DEV_GPU_UTIL", "gpu", measure="GPUUtilization", highest=100.0),
    DeviceMetric("DCGM_FI_DEV_MEM_COPY_UTIL", "gpu", measure="GPUMemoryUtilization", highest=100.0),
    DeviceMetric("DCGM_FI_DEV_FB_USED", "gpu", measure=USED, factor=MEBI),
    DeviceMetric("DCGM_FI_DEV_FB_TOTAL", "gpu", measure=TOTAL, factor=MEBI),
    DeviceMetric("DCGM_FI_DEV_FB_FREE", "gpu", measure=FREE, factor=MEBI),
    DeviceMetric("DCGM_FI_DEV_FB_RESERVED", "gpu", measure=RESERVED, factor=MEBI),
    DeviceMetric("DCGM_FI_DEV_POWER_USAGE", "gpu", measure="PowerWatts", highest=100_000.0),
    DeviceMetric("DCGM_FI_DEV_GPU_TEMP", "gpu", measure="TemperatureCelsius", highest=1_000.0),
    DeviceMetric("DCGM_FI_DEV_SM_CLOCK", "gpu", measure="SMClockMHz", highest=100_000.0),
    DeviceMetric("DCGM_FI_PROF_SM_ACTIVE", "gpu", measure="SMActivityPercent", factor=100.0, highest=1.0),
    DeviceMetric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gpu", measure=ENGINE, factor=100.0, highest=1.0),
    DeviceMetric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gpu", measure="TensorActivityPercent", factor=100.0, highest=1.0),
    DeviceMetric("DCGM_FI_PROF_DRAM_ACTIVE", "gpu", measure="DRAMActivityPercent", factor=100.0, highest=1.0),
    DeviceMetric("DCGM_FI_DEV_POWER_MGMT_LIMIT", "gpu", measure="PowerLimitWatts", highest=100_000.0),
    DeviceMetric("DCGM_FI_DEV_XID_ERRORS", "gpu", measure="XID", highest=100_000.0),
    DeviceMetric("neuroncore_utilization_ratio", "neuroncore", measure="GPUUtilization", factor=100.0, highest=1.0),
)
MOST_DEVICES = 64

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
"""The first label that a series has; a port behind ``instance`` is left out. The last ones are of OpenTelemetry."""

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


MOST_POINTS = 10_000
"""Prometheus itself refuses more than 11,000 of a series."""

MOST_SAMPLES = 20_000_000
_PATH = "api/v1/query_range"
_MOST_SERIES_OF_CLOUDWATCH = 500


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From ``start`` to ``end``, epoch seconds, each ``step`` seconds."""

    start: float
    end: float
    step: float


class Series(NamedTuple):
    """The labels of a series, and its samples: times in epoch seconds, and values."""

    labels: Mapping[str, str]
    samples: list[tuple[float, float]]


def range_query(api: JsonApi, expression: str, over: TimeRange) -> Iterator[Series]:
    """Ask for an expression over a time; a series comes once for each part of it. Raises as `JsonApi.get`."""
    begin, taken = over.start, 0
    while begin <= over.end:
        last = min(begin + (MOST_POINTS - 1) * over.step, over.end)
        query = {"query": expression, "start": f"{begin:.3f}", "end": f"{last:.3f}", "step": f"{over.step:g}"}
        for each in _series(api.place, api.get(_PATH, query)):
            taken += len(each.samples)
            if taken > MOST_SAMPLES:
                raise ProfileSourceError(api.place, f"more than {MOST_SAMPLES:,} samples, expected one job")
            yield each
        begin = last + over.step


def _series(place: str, answer: Any) -> list[Series]:
    if not isinstance(answer, dict) or answer.get("status") != "success":
        message = answer.get("error", answer.get("status")) if isinstance(answer, dict) else type(answer).__name__
        raise ProfileSourceError(place, f"the answer is {message!r:.200}, expected success")
    data = answer.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list):
        raise ProfileSourceError(place, "the answer has no result, expected a matrix")
    if len(result) == _MOST_SERIES_OF_CLOUDWATCH and ".amazonaws.com" in place:
        raise ProfileSourceError(place, "500 series, the most that CloudWatch gives: add matchers for one job")
    return [_one(place, each) for each in result]


def _one(place: str, entry: Any) -> Series:
    if not isinstance(entry, dict) or not isinstance(entry.get("values"), list):
        raise ProfileSourceError(place, "a series has no values, expected a matrix")
    labels = entry.get("metric")
    names = {str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {}
    samples = []
    for pair in entry["values"]:
        try:
            at, value = float(pair[0]), float(pair[1])
        except (TypeError, ValueError, LookupError) as fault:
            raise ProfileSourceError(place, f"a sample is {pair!r:.80}, expected a time and a number") from fault
        if math.isfinite(at) and math.isfinite(value):
            samples.append((at, value))
    return Series(names, samples)
