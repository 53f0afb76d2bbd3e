"""A job as the metrics of its nodes, by PromQL: what is asked for, and which series it becomes."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from trainguard.core.errors import PortUnavailableError, ProfileSourceError
from trainguard.formats.runs.prometheus.devices import (
    FREE,
    NO_METRIC,
    NODE_LABELS,
    OF_PARTS,
    PORT,
    RESERVED,
    TOTAL,
    USED,
    UTILIZATIONS,
    VENDORS,
    XID,
    Device,
    NodeNames,
    Sampled,
    devices_of,
    instance_of,
    is_blank,
    name_of,
    number_of,
    uuid_of,
)
from trainguard.formats.runs.prometheus.queries import QueryRange, Samples, Series, range_query
from trainguard.formats.runs.run import (
    HOST_MEMORY,
    JsonApi,
    SeriesName,
    Snapshot,
    SourceRun,
    gpu_series,
    put_utilization,
)

_SHOWN = 5
_ACCELERATORS = "(?i).*(dcgm|gpu|neuron|tpu|habana|xpu|npu|accelerator).*"


def nothing_found(api: JsonApi, matchers: str, over: QueryRange) -> str:
    """Say what was asked for and has no series, and what is there instead; asks at three times of the job."""
    first = [vendor.metrics[0].name for vendor in VENDORS]
    asked = ", ".join(f"{vendor.metrics[0].name} and {len(vendor.metrics) - 1} more" for vendor in VENDORS)
    of = f"with the matchers {matchers}" if matchers else "without matchers"
    said = (
        f"has no series of GPUs or NeuronCores from {over.start:.0f} to {over.end:.0f}, {of}: it was asked for {asked}"
    )
    few = QueryRange(over.start, over.end, max((over.end - over.start) / 2.0, 1.0))
    rest = f",{matchers}" if matchers else ""
    names = _tried(api, f'count by (__name__) ({{__name__=~"{_ACCELERATORS}"{rest}}})', few)
    others = sorted({labels["__name__"] for labels, _ in names or () if labels.get("__name__")})
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        return f"{said}; there are {', '.join(others[:_SHOWN])}{more}, which are not read"
    if not matchers:
        return said
    for name in first:
        found = _tried(api, f"topk(1, {name})", few)
        if found is None:
            return said
        if found:
            labels = ", ".join(f'{key}="{value}"' for key, value in sorted(found[0][0].items()) if key != "__name__")
            return f"{said}; without them there is {name}, for example with {labels:.600}"
    return f"{said}; {', '.join(first)} have no series without them either"


def _tried(api: JsonApi, expression: str, over: QueryRange) -> list[Series] | None:
    """Return series; None where the service refuses: a hint is worth no error of its own."""
    try:
        return [each for each in range_query(api, expression, over) if each[1]]
    except (ProfileSourceError, PortUnavailableError):
        return None


# Expressions over the nodes that have devices, and the dimension of a core's series; the last one is of the host.
#
# They take matchers, and the time of a rate.
HOST_QUERIES = (
    ('100 - 100 * rate(node_cpu_seconds_total{mode="idle",%s}[%s])', "CPUUtilization"),
    ('100 * rate(node_cpu_seconds_total{mode="iowait",%s}[%s])', "I/OWaitPercentage"),
    ("100 - 100 * node_memory_MemAvailable_bytes{%s} / node_memory_MemTotal_bytes", ""),
)

TOOL = "Prometheus"
OUT_OF_RANGE = "a value out of the range of its metric"
NO_DEVICE = "a series without the number of its device"
TWICE = "a value of a second series of the same GPU: node_label=NAME says which label names the nodes"

# Labels by which replicas of Prometheus that scrape the same exporters differ; Thanos and its operator add them.
_REPLICAS = frozenset({"prometheus_replica", "replica", "__replica__", "receive_replica", "prometheus"})

_EARLIER_POINTS = 200
# A rate needs two samples within its time, also where one is missing.
_RATE_STEPS = 4

_SHORTEST_RATE_S = 60.0
_CORE = re.compile(r"\d{1,4}")
_PLAIN_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Values of a node by time, epoch seconds, and series.
Moments = dict[float, dict[SeriesName, float]]


@dataclass(slots=True)
class _Reading:
    """What was read; ``blanks`` counts values that stand for none by metric, ``merged`` those that came twice."""

    run: SourceRun
    values: defaultdict[str, Moments] = field(default_factory=lambda: defaultdict(lambda: defaultdict(dict)))
    blanks: Counter[str] = field(default_factory=Counter)
    merged: Counter[str] = field(default_factory=Counter)


def read_job(
    api: JsonApi, name: str, matchers: str, over: QueryRange, node_label: str = "", since: float | None = None
) -> SourceRun:
    """Read the metrics of a job; raises as `range_query` does.

    ``matchers`` select the job's devices, for example ``pod=~"bert-.*"``; empty for all. ``node_label`` names the
    nodes; by default, and where a series lacks it, one of the known labels. Of a job that began at ``since``, epoch
    seconds, and is read in parts, each part calls its nodes as those before did.
    """
    reading = _Reading(SourceRun(name, TOOL, asked_s=over.step))
    node_labels = (node_label, *NODE_LABELS) if node_label else NODE_LABELS
    known = [*_sampled(api, matchers, over, node_labels, reading)]
    if since is not None and since < over.start:
        known += _earlier(api, matchers, QueryRange(since, over.start, over.step), node_labels, known)
    devices, names, notes = devices_of(known, node_label)
    for device in devices:
        _put(device, reading)
    divided = {
        (each.node, f"gpu{each.number}") for each in devices if any(instance_of(one.labels) for one in each.series)
    }
    for node, by_time in reading.values.items():
        _put_utilization(reading, node, {gpu for of, gpu in divided if of == node})
        for values in by_time.values():
            _put_totals(values)
    for expression, dimension in HOST_QUERIES:
        _hosts(api, expression, dimension, over, names, reading)
    reading.run.notes += [*notes, *_notes(reading)]
    reading.run.snapshots = {
        node: [Snapshot(at, values) for at, values in sorted(by_time.items()) if values]
        for node, by_time in sorted(reading.values.items())
    }
    return reading.run


def _sampled(
    api: JsonApi, matchers: str, over: QueryRange, node_labels: Sequence[str], reading: _Reading
) -> Iterator[Sampled]:
    for vendor in VENDORS:
        for place, metric in enumerate(vendor.metrics):
            known = [
                (labels, samples)
                for labels, samples in range_query(api, f"{metric.name}{{{matchers}}}", over)
                if samples
            ]
            if not known and place < vendor.asked_first < len(vendor.metrics):
                break
            for labels, samples in known:
                number, instance = number_of(labels, vendor), instance_of(labels)
                if number is None or instance is None:
                    reading.run.refuse(NO_DEVICE)
                    continue
                is_of_part = bool(instance) and metric.measure in OF_PARTS
                if instance and metric.measure in UTILIZATIONS:
                    continue
                uuid, named = uuid_of(labels), name_of(labels, node_labels)
                yield Sampled(metric, vendor, labels, number, uuid, instance if is_of_part else "", named, samples)


def _earlier(
    api: JsonApi, matchers: str, over: QueryRange, node_labels: Sequence[str], known: Sequence[Sampled]
) -> Iterator[Sampled]:
    """Yield who had which name earlier, without its values."""
    few = QueryRange(over.start, over.end, max((over.end - over.start) / _EARLIER_POINTS, over.step))
    for vendor in dict.fromkeys(each.vendor for each in known):
        first = next(each.metric for each in known if each.vendor is vendor)
        for labels, samples in range_query(api, f"{first.name}{{{matchers}}}", few):
            number = number_of(labels, vendor)
            if samples and number is not None:
                name = name_of(labels, node_labels)
                yield Sampled(NO_METRIC, vendor, labels, number, uuid_of(labels), "", name, samples)


def _put(device: Device, reading: _Reading) -> None:
    by_measure: defaultdict[tuple[str, str], list[Sampled]] = defaultdict(list)
    for series in device.series:
        if series.metric is NO_METRIC:
            continue
        by_measure[series.metric.measure, series.instance].append(series)
    node = reading.values[device.node]
    for (measure, instance), all_series in by_measure.items():
        gpu = f"gpu{device.number}"
        name = SeriesName("gpu", f"{gpu}.mig{instance}.{measure}") if instance else gpu_series(gpu, measure)
        for at, value in _merged(all_series, device, reading):
            node[at][name] = value


def _merged(all_series: Sequence[Sampled], device: Device, reading: _Reading) -> Iterable[tuple[float, float]]:
    """Return the values of one quantity of a GPU; those of programs, and of parts of memory, add up."""
    programs: defaultdict[tuple[str, str], list[Sampled]] = defaultdict(list)
    for series in all_series:
        programs[series.metric.name, series.labels.get(series.vendor.shared, "")].append(series)
    found = [_one(each, device, reading) for each in programs.values()]
    if len(found) == 1:
        return found[0].items()
    vendor, measure = all_series[0].vendor, all_series[0].metric.measure
    together: defaultdict[float, list[float]] = defaultdict(list)
    for values in found:
        for at, value in values.items():
            together[at].append(value)
    if not vendor.shared:
        return ((at, values[0]) for at, values in together.items())
    most = 100.0 if measure in UTILIZATIONS else math.inf
    return ((at, min(sum(values), most)) for at, values in together.items())


def _one(all_series: Sequence[Sampled], device: Device, reading: _Reading) -> dict[float, float]:
    """Return the values of one metric of a GPU by time; of several at a time the mean, of XIDs the highest."""
    if len(all_series) == 1:
        return dict(_usable(all_series[0], reading))
    values: defaultdict[float, list[float]] = defaultdict(list)
    for series in all_series:
        for at, value in _usable(series, reading):
            values[at].append(value)
    differing = sum(min(each) != max(each) for each in values.values())
    if differing:
        labels = _differing_labels(all_series)
        if device.uuid or labels <= _REPLICAS:
            reading.merged[", ".join(sorted(labels))] += differing
        else:
            reading.run.refuse(TWICE, differing)
    mean = max if all_series[0].metric.measure == XID else fmean
    return {at: mean(each) for at, each in values.items()}


def _usable(series: Sampled, reading: _Reading) -> Samples:
    metric, usable = series.metric, []
    for at, value in series.samples:
        if 0.0 <= value <= metric.highest:
            usable.append((at, value * metric.factor))
        elif is_blank(value):
            reading.blanks[metric.name] += 1
        else:
            reading.run.refuse(OUT_OF_RANGE)
    return usable


def _differing_labels(all_series: Sequence[Sampled]) -> set[str]:
    names = {label for series in all_series for label in series.labels}
    return {label for label in names if len({series.labels.get(label) for series in all_series}) > 1}


def _notes(reading: _Reading) -> Iterator[str]:
    for labels, count in sorted(reading.merged.items()):
        why = f", which differ in {labels}" if labels else ""
        yield f"Of {count:,} values that came from several series of the same GPU{why}, the mean is judged."
    for metric, count in sorted(reading.blanks.items()):
        yield f"{metric} has {count:,} values that stand for none: the GPU, or its driver, does not measure it then."


def _put_utilization(reading: _Reading, node: str, divided: set[str]) -> None:
    """Let engine activity stand for missing utilization, and leave out that of divided GPUs."""
    moments = list(reading.values[node].values())
    replaced = put_utilization(moments, divided)
    left_out = set()
    for values in moments:
        for series in [each for each in values if each.name in divided and each.dimension in UTILIZATIONS]:
            del values[series]
            left_out.add(series.name)
    if left_out:
        gpus = _in_order(left_out)
        reading.run.notes.append(f"The utilization of {gpus} of {node} is not read: it is divided (MIG).")
    if replaced:
        gpus = _in_order(replaced)
        reading.run.notes.append(f"DCGM_FI_PROF_GR_ENGINE_ACTIVE stands for the utilization of {gpus} of {node}.")


def _in_order(gpus: Iterable[str]) -> str:
    return ", ".join(sorted(gpus, key=lambda gpu: (len(gpu), gpu)))


def _put_totals(values: dict[SeriesName, float]) -> None:
    """Put the whole memory in the place of its parts: dcgm-exporter writes no total by default."""
    parts = {each: values.pop(each) for each in list(values) if each.name.endswith((f".{FREE}", f".{RESERVED}"))}
    for series, amount in parts.items():
        device, _, part = series.name.rpartition(".")
        used = values.get(SeriesName("gpu", f"{device}.{USED}"))
        if part == FREE and used is not None:
            reserved = parts.get(SeriesName("gpu", f"{device}.{RESERVED}"), 0.0)
            values.setdefault(SeriesName("gpu", f"{device}.{TOTAL}"), used + amount + reserved)


def _hosts(api: JsonApi, query: str, dimension: str, over: QueryRange, nodes: NodeNames, reading: _Reading) -> None:
    named: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for node, names in nodes.items():
        for label, value in names if reading.values.get(node) else ():
            named[label].setdefault(value, node)
    for label, of_label in sorted(named.items()):
        port = "(:[0-9]+)?" if label == "instance" else ""
        values = "|".join(_quoted(re.escape(value)) + port for value in of_label)
        name = label if _PLAIN_LABEL.fullmatch(label) else f'"{_quoted(label)}"'
        matcher = f'{name}=~"{values}"'
        time = f"{max(_RATE_STEPS * over.step, _SHORTEST_RATE_S):g}s"
        expression = query % ((matcher, time) if dimension else (matcher,))
        for labels, samples in range_query(api, expression, over):
            host = of_label.get(PORT.sub("", labels.get(label, "")))
            core = labels.get("cpu", "")
            if host is None or (dimension and not _CORE.fullmatch(core)):
                continue
            series = SeriesName("cpu", f"cpu{core}", dimension) if dimension else HOST_MEMORY
            moments = reading.values[host]
            for at, percent in samples:
                moments[at].setdefault(series, min(max(percent, 0.0), 100.0))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
