"""A job as the metrics of its nodes, by PromQL."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainguard.formats.runs.json_api import JsonApi
from trainguard.formats.runs.prometheus.queries import (
    DEVICE_METRICS,
    FREE,
    HOST_QUERIES,
    MIG_LABEL,
    MOST_DEVICES,
    NO_NODES,
    NODE_LABELS,
    RESERVED,
    TOTAL,
    USED,
    DeviceMetric,
    HostQuery,
    TimeRange,
    range_query,
)
from trainguard.formats.runs.run import (
    MANAGED_MEASURES,
    ONLY_NODE,
    SeriesName,
    Snapshot,
    SourceRun,
    gpu_series,
    put_utilization,
)

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


@dataclass(slots=True)
class _Reading:
    run: SourceRun
    values: dict[str, dict[float, dict[SeriesName, float]]] = field(default_factory=lambda: defaultdict(dict))
    labels: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By node: the label that named it, and its value."""

    divided: set[tuple[str, str]] = field(default_factory=set)
    """Nodes and GPUs that have series of parts."""

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
    for metric in DEVICE_METRICS:
        _devices(api, metric, matchers, over, reading, node_labels)
    for node, by_time in reading.values.items():
        _put_utilization(reading, node)
        for values in by_time.values():
            _put_totals(values)
    for query in HOST_QUERIES:
        _hosts(api, query, over, reading)
    reading.run.snapshots = {
        node: [Snapshot(at, values) for at, values in sorted(by_time.items())]
        for node, by_time in sorted(reading.values.items())
    }
    return reading.run


def _devices(
    api: JsonApi,
    metric: DeviceMetric,
    matchers: str,
    over: TimeRange,
    reading: _Reading,
    node_labels: Sequence[str],
) -> None:
    run = reading.run
    for labels, samples in range_query(api, f"{metric.name}{{{matchers}}}", over):
        number = labels.get(metric.label, "")
        if not number.isdecimal() or int(number) >= MOST_DEVICES:
            run.refuse(NO_DEVICE)
            continue
        node, label = _node(labels, node_labels)
        gpu = f"gpu{int(number)}"
        if labels.get(MIG_LABEL):
            run.refuse(OF_A_PART)
            reading.divided.add((node, gpu))
            continue
        reading.labels.setdefault(node, label)
        series = gpu_series(gpu, metric.measure)
        for at, value in samples:
            if 0.0 <= value <= metric.highest:
                reading.put(node, at, series, value * metric.factor)
            else:
                run.refuse(NO_VALUE)


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


def _hosts(api: JsonApi, query: HostQuery, over: TimeRange, reading: _Reading) -> None:
    for label in sorted({name for name, _ in reading.labels.values() if name}):
        nodes = {value: node for node, (name, value) in reading.labels.items() if name == label}
        port = "(:[0-9]+)?" if label == "instance" else ""
        values = "|".join(_quoted(re.escape(value)) + port for value in nodes)
        name = label if _PLAIN_LABEL.fullmatch(label) else f'"{_quoted(label)}"'
        matcher = f'{name}=~"{values}"'
        time = f"{max(_RATE_STEPS * over.step, _SHORTEST_RATE_S):g}s"
        expression = query.expression % ((matcher, time) if query.core_label else (matcher,))
        for labels, samples in range_query(api, expression, over):
            node = nodes.get(_PORT.sub("", labels.get(label, "")))
            series = _host_series(query, labels)
            if node is None or series is None:
                continue
            for at, value in samples:
                if math.isfinite(value):
                    reading.put(node, at, series, min(max(value, 0.0), 100.0))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _host_series(query: HostQuery, labels: Mapping[str, str]) -> SeriesName | None:
    if query.core_label is None:
        return SeriesName("memory", "MemoryUsedPercent")
    core = labels.get(query.core_label, "")
    return SeriesName(query.type, f"cpu{core}", query.dimension) if _CORE.fullmatch(core) else None


def _node(labels: Mapping[str, str], node_labels: Sequence[str]) -> tuple[str, tuple[str, str]]:
    for label in node_labels:
        value = _PORT.sub("", labels.get(label, ""))
        if value and value not in NO_NODES:
            return value, (label, value)
    return ONLY_NODE, ("", "")
