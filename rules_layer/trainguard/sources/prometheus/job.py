"""A job as the metrics of its nodes, by PromQL: its GPUs or NeuronCores, and the cores and memory of the same nodes."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainguard.sources.json_api import JsonApi
from trainguard.sources.prometheus.queries import (
    DEVICE_METRICS,
    FREE,
    HOST_QUERIES,
    MIG_LABEL,
    MOST_DEVICES,
    NODE_LABELS,
    RESERVED,
    TOTAL,
    USED,
    DeviceMetric,
    HostQuery,
)
from trainguard.sources.prometheus.range_query import TimeRange, range_query
from trainguard.sources.run import SeriesName, Snapshot, SourceRun

TOOL = "Prometheus"
NO_VALUE = "a value that stands for none, or is out of range"
OF_A_PART = "a series of a part of a GPU (MIG)"
NO_DEVICE = "a series without the number of its device"
_RATE_STEPS = 4
"""A rate needs two samples within its time, also where one is missing."""

_SHORTEST_RATE_S = 60.0
_PORT = re.compile(r":\d+$")
_CORE = re.compile(r"\d{1,4}")


@dataclass(slots=True)
class _Reading:
    run: SourceRun
    values: dict[str, dict[float, dict[SeriesName, float]]] = field(default_factory=lambda: defaultdict(dict))
    labels: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By node: the label that named it, and its value."""

    def put(self, node: str, at: float, series: SeriesName, value: float) -> None:
        self.values[node].setdefault(at, {})[series] = value


def read_job(api: JsonApi, name: str, matchers: str, over: TimeRange) -> SourceRun:
    """Read the metrics of a job.

    Parameters
    ----------
    api : JsonApi
    name : str
        What the job is called.
    matchers : str
        Label matchers that select the job's devices, for example ``pod=~"bert-.*"``; empty for all devices.
    over : TimeRange

    Raises
    ------
    ProfileSourceError, PortUnavailableError
        As `range_query` does.
    """
    reading = _Reading(SourceRun(name, TOOL))
    for metric in DEVICE_METRICS:
        _devices(api, metric, matchers, over, reading)
    for by_time in reading.values.values():
        for values in by_time.values():
            _put_totals(values)
    for query in HOST_QUERIES:
        _hosts(api, query, over, reading)
    reading.run.snapshots = {
        node: [Snapshot(at, values) for at, values in sorted(by_time.items())]
        for node, by_time in sorted(reading.values.items())
    }
    return reading.run


def _devices(api: JsonApi, metric: DeviceMetric, matchers: str, over: TimeRange, reading: _Reading) -> None:
    run = reading.run
    for labels, samples in range_query(api, f"{metric.name}{{{matchers}}}", over):
        if labels.get(MIG_LABEL):
            run.refuse(OF_A_PART)
            continue
        number = labels.get(metric.label, "")
        if not number.isdecimal() or int(number) >= MOST_DEVICES:
            run.refuse(NO_DEVICE)
            continue
        node, label = _node(labels)
        reading.labels.setdefault(node, label)
        gpu = f"gpu{int(number)}"
        series = SeriesName("gpu", gpu if metric.dimension else f"{gpu}.{metric.rest}", metric.dimension)
        for at, value in samples:
            if 0.0 <= value <= metric.highest:
                reading.put(node, at, series, value * metric.factor)
            else:
                run.refuse(NO_VALUE)


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
        matcher = f'{label}=~"{values}"'
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
    """Return a text for between the quotes of PromQL."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _host_series(query: HostQuery, labels: Mapping[str, str]) -> SeriesName | None:
    if query.core_label is None:
        return SeriesName("memory", "MemoryUsedPercent")
    core = labels.get(query.core_label, "")
    return SeriesName(query.type, f"cpu{core}", query.dimension) if _CORE.fullmatch(core) else None


def _node(labels: Mapping[str, str]) -> tuple[str, tuple[str, str]]:
    """Return a node's name, and the label with the value that names it."""
    for label in NODE_LABELS:
        if value := _PORT.sub("", labels.get(label, "")):
            return value, (label, value)
    return "node-1", ("", "")
