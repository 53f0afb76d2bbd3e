"""A job as the metrics of its nodes, by PromQL: what is asked for, and which series it becomes."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainguard.core.errors import ProfileSourceError
from trainguard.formats.runs.run import (
    ENGINE,
    HOST_MEMORY,
    MANAGED_MEASURES,
    MEBI,
    MOST_DEVICES,
    ONLY_NODE,
    JsonApi,
    SeriesName,
    Snapshot,
    SourceRun,
    gpu_series,
    put_utilization,
)

USED, TOTAL, FREE, RESERVED = "MemoryUsedBytes", "MemoryTotalBytes", "MemoryFreeBytes", "MemoryReservedBytes"
"""Ends of names; the last two are no series, and make the third where dcgm-exporter writes no total, as by default."""

_HIGHEST = 2_147_483_000.0

DEVICE_METRICS = (
    ("DCGM_FI_DEV_GPU_UTIL", "gpu", "GPUUtilization", 1.0, 100.0),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "gpu", "GPUMemoryUtilization", 1.0, 100.0),
    ("DCGM_FI_DEV_FB_USED", "gpu", USED, MEBI, _HIGHEST),
    ("DCGM_FI_DEV_FB_TOTAL", "gpu", TOTAL, MEBI, _HIGHEST),
    ("DCGM_FI_DEV_FB_FREE", "gpu", FREE, MEBI, _HIGHEST),
    ("DCGM_FI_DEV_FB_RESERVED", "gpu", RESERVED, MEBI, _HIGHEST),
    ("DCGM_FI_DEV_POWER_USAGE", "gpu", "PowerWatts", 1.0, 100_000.0),
    ("DCGM_FI_DEV_GPU_TEMP", "gpu", "TemperatureCelsius", 1.0, 1_000.0),
    ("DCGM_FI_DEV_SM_CLOCK", "gpu", "SMClockMHz", 1.0, 100_000.0),
    ("DCGM_FI_PROF_SM_ACTIVE", "gpu", "SMActivityPercent", 100.0, 1.0),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gpu", ENGINE, 100.0, 1.0),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gpu", "TensorActivityPercent", 100.0, 1.0),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gpu", "DRAMActivityPercent", 100.0, 1.0),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "gpu", "PowerLimitWatts", 1.0, 100_000.0),
    ("DCGM_FI_DEV_XID_ERRORS", "gpu", "XID", 1.0, 100_000.0),
    ("neuroncore_utilization_ratio", "neuroncore", "GPUUtilization", 100.0, 1.0),
)
"""Name, label of the device, measure, factor, and the value above which DCGM has none."""


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


HOST_QUERIES = (
    ('100 - 100 * rate(node_cpu_seconds_total{mode="idle",%s}[%s])', "CPUUtilization"),
    ('100 * rate(node_cpu_seconds_total{mode="iowait",%s}[%s])', "I/OWaitPercentage"),
    ("100 - 100 * node_memory_MemAvailable_bytes{%s} / node_memory_MemTotal_bytes", ""),
)
"""Expressions over the nodes that have devices, and the dimension of a core's series; the last one is of the host.

They take matchers, and the time of a rate.
"""


MOST_POINTS = 10_000
"""Prometheus itself refuses more than 11,000 of a series."""

MOST_SAMPLES = 20_000_000
_PATH = "api/v1/query_range"
_MOST_SERIES_OF_CLOUDWATCH = 500


@dataclass(frozen=True, slots=True)
class TimeRange:
    start: float
    end: float
    step: float


Series = tuple[Mapping[str, str], list[tuple[float, float]]]
"""The labels of a series, and its samples: times in epoch seconds, and values."""


def range_query(api: JsonApi, expression: str, over: TimeRange) -> Iterator[Series]:
    """Ask for an expression over a time; a series comes once for each part of it. Raises as `JsonApi.get`."""
    begin, taken = over.start, 0
    while begin <= over.end:
        last = min(begin + (MOST_POINTS - 1) * over.step, over.end)
        query = {"query": expression, "start": f"{begin:.3f}", "end": f"{last:.3f}", "step": f"{over.step:g}"}
        for each in _series(api.place, api.get(_PATH, query)):
            taken += len(each[1])
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
    return names, samples


TOOL = "Prometheus"
NO_VALUE = "a value that stands for none, or is out of range"
OF_A_PART = "a series of a part of a GPU (MIG)"
NO_DEVICE = "a series without the number of its device"
OF_THE_WHOLE = "a utilization of a GPU that is divided (MIG)"
TWICE = "a value of a second series of the same GPU: node_label=NAME says which label names the nodes"
_RATE_STEPS = 4
"""A rate needs two samples within its time, also where one is missing."""

_SHORTEST_RATE_S = 60.0
_PORT = re.compile(r":\d+$")
_CORE = re.compile(r"\d{1,4}")
_PLAIN_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Reading:
    """What was read: ``labels`` are by node, ``divided`` are nodes and GPUs that have series of parts."""

    def __init__(self, run: SourceRun) -> None:
        self.run = run
        self.values: defaultdict[str, dict[float, dict[SeriesName, float]]] = defaultdict(dict)
        self.labels: dict[str, tuple[str, str]] = {}
        self.divided: set[tuple[str, str]] = set()

    def put(self, node: str, at: float, series: SeriesName, value: float) -> None:
        """Keep a value; another one of the same time and series is refused: it is unknown which is the GPU's."""
        held = self.values[node].setdefault(at, {})
        if held.setdefault(series, value) != value:
            self.run.refuse(TWICE)


def read_job(api: JsonApi, name: str, matchers: str, over: TimeRange, node_label: str = "") -> SourceRun:
    """Read the metrics of a job; raises as `range_query` does.

    ``matchers`` select the job's devices, for example ``pod=~"bert-.*"``; empty for all. ``node_label`` names the
    nodes; by default, and where a series lacks it, one of the known labels.
    """
    reading = _Reading(SourceRun(name, TOOL, asked_s=over.step))
    node_labels = (node_label, *NODE_LABELS) if node_label else NODE_LABELS
    for name_of, device_label, measure, factor, highest in DEVICE_METRICS:
        for labels, samples in range_query(api, f"{name_of}{{{matchers}}}", over):
            found = _device(labels, device_label, reading, node_labels)
            if found is not None:
                node, gpu = found
                for at, value in samples:
                    if 0.0 <= value <= highest:
                        reading.put(node, at, gpu_series(gpu, measure), value * factor)
                    else:
                        reading.run.refuse(NO_VALUE)
    for node, by_time in reading.values.items():
        _put_utilization(reading, node)
        for values in by_time.values():
            _put_totals(values)
    for expression, dimension in HOST_QUERIES:
        _hosts(api, expression, dimension, over, reading)
    reading.run.snapshots = {
        node: [Snapshot(at, values) for at, values in sorted(by_time.items())]
        for node, by_time in sorted(reading.values.items())
    }
    return reading.run


def _device(
    labels: Mapping[str, str], device_label: str, reading: _Reading, node_labels: Sequence[str]
) -> tuple[str, str] | None:
    """Return the node and the GPU of a series; None where it is of no whole GPU."""
    number = labels.get(device_label, "")
    if not number.isdecimal() or int(number) >= MOST_DEVICES:
        reading.run.refuse(NO_DEVICE)
        return None
    node, label = _node(labels, node_labels)
    gpu = f"gpu{int(number)}"
    if labels.get(MIG_LABEL):
        reading.run.refuse(OF_A_PART)
        reading.divided.add((node, gpu))
        return None
    reading.labels.setdefault(node, label)
    return node, gpu


def _put_utilization(reading: _Reading, node: str) -> None:
    """Let engine activity stand for missing utilization, and leave out that of divided GPUs."""
    moments = list(reading.values[node].values())
    divided = {gpu for of, gpu in reading.divided if of == node}
    replaced = put_utilization(moments, divided)
    for values in moments:
        for series in [each for each in values if each.name in divided and each.dimension in MANAGED_MEASURES]:
            del values[series]
            reading.run.refuse(OF_THE_WHOLE)
    if replaced:
        gpus = ", ".join(replaced)
        reading.run.notes.append(f"DCGM_FI_PROF_GR_ENGINE_ACTIVE stands for the utilization of {gpus} of {node}.")


def _put_totals(values: dict[SeriesName, float]) -> None:
    """Put the whole memory of GPUs in the place of its parts: dcgm-exporter writes no total by default."""
    for series in [each for each in values if each.name.endswith((f".{FREE}", f".{RESERVED}"))]:
        gpu, _, part = series.name.partition(".")
        amount = values.pop(series)
        used = values.get(SeriesName("gpu", f"{gpu}.{USED}"))
        if part == FREE and used is not None:
            reserved = values.get(SeriesName("gpu", f"{gpu}.{RESERVED}"), 0.0)
            values.setdefault(SeriesName("gpu", f"{gpu}.{TOTAL}"), used + amount + reserved)


def _hosts(api: JsonApi, query: str, dimension: str, over: TimeRange, reading: _Reading) -> None:
    for label in sorted({name for name, _ in reading.labels.values() if name}):
        nodes = {value: node for node, (name, value) in reading.labels.items() if name == label}
        port = "(:[0-9]+)?" if label == "instance" else ""
        values = "|".join(_quoted(re.escape(value)) + port for value in nodes)
        name = label if _PLAIN_LABEL.fullmatch(label) else f'"{_quoted(label)}"'
        matcher = f'{name}=~"{values}"'
        time = f"{max(_RATE_STEPS * over.step, _SHORTEST_RATE_S):g}s"
        expression = query % ((matcher, time) if dimension else (matcher,))
        for labels, samples in range_query(api, expression, over):
            node = nodes.get(_PORT.sub("", labels.get(label, "")))
            core = labels.get("cpu", "")
            if node is None or (dimension and not _CORE.fullmatch(core)):
                continue
            series = SeriesName("cpu", f"cpu{core}", dimension) if dimension else HOST_MEMORY
            for at, value in samples:
                if math.isfinite(value):
                    reading.put(node, at, series, min(max(value, 0.0), 100.0))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _node(labels: Mapping[str, str], node_labels: Sequence[str]) -> tuple[str, tuple[str, str]]:
    for label in node_labels:
        value = _PORT.sub("", labels.get(label, ""))
        if value and value not in NO_NODES:
            return value, (label, value)
    return ONLY_NODE, ("", "")
