"""Which series are of one GPU, and which GPUs of one node.

A GPU is its UUID, where its exporter writes it, and a node its name. The name of an exporter is none of a node: a pod
that is restarted has another one, and its GPUs have the same UUIDs. GPUs that one exporter reports at the same time are
of one node.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from trainguard.formats.runs.prometheus.queries import Samples
from trainguard.formats.runs.run import ENGINE, MEBI, MOST_DEVICES, ONLY_NODE

# Ends of names; the last two are no series, and make the second where an exporter writes no total.
USED, TOTAL, FREE, RESERVED = "MemoryUsedBytes", "MemoryTotalBytes", "MemoryFreeBytes", "MemoryReservedBytes"

XID = "XID"
_HIGHEST = 2_147_483_000.0
_PETA = 1e15


@dataclass(frozen=True, slots=True)
class PrometheusMetric:
    """A metric, what it measures, the factor to the series' unit, and the highest value in the metric's own."""

    name: str
    measure: str
    factor: float = 1.0
    highest: float = 100.0


# Of a series that only says which names a device has.
NO_METRIC = PrometheusMetric("", "")


@dataclass(frozen=True, slots=True)
class Vendor:
    """Metrics of one exporter; without a series of the first ``asked_first`` the others are not asked for.

    ``numbers`` are the labels that may hold a device's number, ``shared`` is the label of programs that share a device:
    what they use adds up.
    """

    metrics: tuple[PrometheusMetric, ...]
    numbers: tuple[str, ...]
    asked_first: int
    shared: str = ""


_DCGM = (
    PrometheusMetric("DCGM_FI_DEV_GPU_UTIL", "GPUUtilization"),
    PrometheusMetric("DCGM_FI_DEV_MEM_COPY_UTIL", "GPUMemoryUtilization"),
    PrometheusMetric("DCGM_FI_DEV_FB_USED", USED, MEBI, _HIGHEST),
    PrometheusMetric("DCGM_FI_DEV_FB_TOTAL", TOTAL, MEBI, _HIGHEST),
    PrometheusMetric("DCGM_FI_DEV_FB_FREE", FREE, MEBI, _HIGHEST),
    PrometheusMetric("DCGM_FI_DEV_FB_RESERVED", RESERVED, MEBI, _HIGHEST),
    PrometheusMetric("DCGM_FI_DEV_POWER_USAGE", "PowerWatts", 1.0, 100_000.0),
    PrometheusMetric("DCGM_FI_DEV_GPU_TEMP", "TemperatureCelsius", 1.0, 1_000.0),
    PrometheusMetric("DCGM_FI_DEV_SM_CLOCK", "SMClockMHz", 1.0, 100_000.0),
    PrometheusMetric("DCGM_FI_PROF_SM_ACTIVE", "SMActivityPercent", 100.0, 1.0),
    PrometheusMetric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", ENGINE, 100.0, 1.0),
    PrometheusMetric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "TensorActivityPercent", 100.0, 1.0),
    PrometheusMetric("DCGM_FI_PROF_DRAM_ACTIVE", "DRAMActivityPercent", 100.0, 1.0),
    PrometheusMetric("DCGM_FI_DEV_POWER_MGMT_LIMIT", "PowerLimitWatts", 1.0, 100_000.0),
    PrometheusMetric("DCGM_FI_DEV_XID_ERRORS", XID, 1.0, 100_000.0),
)
_NEURON = (
    PrometheusMetric("neuroncore_utilization_ratio", "GPUUtilization", 100.0, 1.0),
    *(
        PrometheusMetric(f"neuroncore_memory_usage_{part}", USED, 1.0, _PETA)
        for part in ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")
    ),
)


def _amd(prefix: str) -> tuple[PrometheusMetric, ...]:
    return (
        PrometheusMetric(f"{prefix}gpu_gfx_activity", "GPUUtilization"),
        PrometheusMetric(f"{prefix}gpu_umc_activity", "GPUMemoryUtilization"),
        PrometheusMetric(f"{prefix}gpu_used_vram", USED, MEBI, _HIGHEST),
        PrometheusMetric(f"{prefix}gpu_total_vram", TOTAL, MEBI, _HIGHEST),
        PrometheusMetric(f"{prefix}gpu_package_power", "PowerWatts", 1.0, 60_000.0),
        PrometheusMetric(f"{prefix}gpu_average_package_power", "PowerWatts", 1.0, 60_000.0),
        PrometheusMetric(f"{prefix}gpu_junction_temperature", "TemperatureCelsius", 1.0, 1_000.0),
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


_OF_NODES = (
    "node",
    "kubernetes_node",
    "k8s_node_name",
    "nodename",
    "instance_id",
    "host_name",
    "host_id",
    "@resource.host.name",
    "@resource.k8s.node.name",
    "@resource.host.id",
    "host.name",
    "k8s.node.name",
    "host.id",
)
# Labels that may hold the name of an exporter's pod, or its address.
_OF_EXPORTERS = ("Hostname", "instance", "hostname")

# The first label that a series has; a port behind ``instance`` is left out. Those with dots are of OpenTelemetry.
NODE_LABELS = (*_OF_NODES, *_OF_EXPORTERS)

# Values by which a collector calls its own machine: they name no node.
NO_NODES = frozenset({"localhost", "127.0.0.1", "[::1]"})

PORT = re.compile(r":\d+$")
# Two GPUs are of one node where an exporter reports them together for this part of the shorter time.
_TOGETHER = 0.5


@dataclass(frozen=True, slots=True)
class Sampled:
    """A series of a device: ``instance`` is a part of a divided GPU, or empty."""

    metric: PrometheusMetric
    vendor: Vendor
    labels: Mapping[str, str]
    number: int
    uuid: str
    instance: str
    name: tuple[str, str]
    samples: Samples


def name_of(labels: Mapping[str, str], node_labels: Sequence[str]) -> tuple[str, str]:
    """Return the label that names a series' node, and the name; empty where none does."""
    for label in node_labels:
        value = PORT.sub("", labels.get(label, ""))
        if value and value not in NO_NODES:
            return label, value
    return "", ""


Span = tuple[float, float]


@dataclass(eq=False, slots=True)
class Device:
    """A GPU: the ``times`` in which each name of its node was seen, and the first number that it had."""

    uuid: str
    number: int
    series: list[Sampled] = field(default_factory=list)
    times: dict[tuple[str, str], Span] = field(default_factory=dict)
    node: str = ""

    def add(self, series: Sampled) -> None:
        self.series.append(series)
        first, last = series.samples[0][0], series.samples[-1][0]
        before = self.times.get(series.name, (first, last))
        self.times[series.name] = (min(before[0], first), max(before[1], last))

    @property
    def span(self) -> Span:
        return min(first for first, _ in self.times.values()), max(last for _, last in self.times.values())


# The names by which nodes are known, labels and values, by node.
NodeNames = dict[str, list[tuple[str, str]]]


def devices_of(all_series: Iterable[Sampled], node_label: str) -> tuple[list[Device], NodeNames, list[str]]:
    """Return the GPUs with their nodes, the names of these, and notes for people.

    ``node_label`` is what the user says that names nodes, or empty.
    """
    exporters = frozenset({"", *(label for label in _OF_EXPORTERS if label != node_label)})
    devices = _by_identity([each for each in all_series if each.samples], exporters)
    names, notes = _put_nodes(devices, exporters)
    found, more = _put_numbers(devices)
    return found, names, [*notes, *more]


def _by_identity(all_series: Sequence[Sampled], exporters: frozenset[str]) -> list[Device]:
    """Return devices: by UUID, and by the node's name where several nodes claim it; else by name and number."""
    claimed: defaultdict[str, list[str]] = defaultdict(list)
    for each in all_series:
        label, name = each.name
        if each.uuid and label not in exporters and name not in claimed[each.uuid]:
            claimed[each.uuid].append(name)
    devices: dict[tuple[str, ...], Device] = {}
    for each in all_series:
        label, name = each.name
        nodes = claimed[each.uuid] if each.uuid else []
        if each.uuid:
            key: tuple[str, ...] = (each.uuid, name if label not in exporters else nodes[0] if nodes else "")
        else:
            key = ("", name, str(each.number))
        devices.setdefault(key, Device(each.uuid, each.number)).add(each)
    return list(devices.values())


def _put_nodes(devices: Sequence[Device], exporters: frozenset[str]) -> tuple[NodeNames, list[str]]:
    """Name the node of each device; return the names by node, and notes on nodes that have several."""
    names: NodeNames = {}
    notes = []
    for group in _groups(devices, exporters):
        times = {name: span for device in group for name, span in device.times.items()}
        ordered = sorted(times, key=lambda name: (name[0] in exporters, not name[1], times[name][0], name))
        node = ordered[0][1] or ONLY_NODE
        for device in group:
            device.node = node
        known = [name for name in ordered if name[1]]
        names.setdefault(node, []).extend(known)
        values = list(dict.fromkeys(value for _, value in known))
        if len(values) > 1:
            notes.append(f"{' and '.join(values)} are one node, called {node}: its GPUs have the same UUIDs.")
    return names, notes


def _groups(devices: Sequence[Device], exporters: frozenset[str]) -> list[list[Device]]:
    groups = {id(device): {id(device): device} for device in devices}
    by_name: defaultdict[tuple[str, str], list[Device]] = defaultdict(list)
    for device in devices:
        for name in device.times:
            by_name[name].append(device)
    for name, named in by_name.items():
        for first, second in _pairs(name, named, is_node=name[0] not in exporters):
            one, other = groups[id(first)], groups[id(second)]
            if one is not other:
                one.update(other)
                groups.update(dict.fromkeys(other, one))
    return [list(group.values()) for group in {id(each): each for each in groups.values()}.values()]


def _pairs(name: tuple[str, str], named: list[Device], *, is_node: bool) -> Iterator[tuple[Device, Device]]:
    """Yield pairs of devices that are of one node: all of a node's name, else those that it reports together."""
    heads: list[Device] = []
    for device in sorted(named, key=lambda each: each.times[name]):
        head = next((each for each in heads if is_node or _are_together(each.times[name], device.times[name])), None)
        if head is None:
            heads.append(device)
        else:
            yield head, device


def _are_together(first: Span, second: Span) -> bool:
    both = min(first[1], second[1]) - max(first[0], second[0])
    return both >= _TOGETHER * min(first[1] - first[0], second[1] - second[0])


def _put_numbers(devices: Sequence[Device]) -> tuple[list[Device], list[str]]:
    """Give each GPU of a node a number of its own, unless one took the place of another; what has no UUID is joined."""
    taken: defaultdict[tuple[str, int], list[Device]] = defaultdict(list)
    notes = []
    kept = []
    for device in sorted(devices, key=lambda each: (each.node, each.number, not each.uuid, each.span)):
        others = taken[device.node, device.number]
        same = next((each for each in others if not (device.uuid and each.uuid)), None)
        if same is not None:
            for series in device.series:
                same.add(series)
            continue
        if any(_are_together(each.span, device.span) for each in others):
            free = (
                number for number in count() if not taken[device.node, number] and number not in _own(devices, device)
            )
            number = next(free)
            if number >= MOST_DEVICES:
                notes.append(f"GPU {device.uuid} of {device.node} is left out: the node has more than {MOST_DEVICES}.")
                continue
            notes.append(
                f"{device.node} has several GPUs with the number {device.number}: {device.uuid} is gpu{number}. "
                "node_label=NAME says which label names the nodes."
            )
            device.number = number
        elif others:
            notes.append(
                f"gpu{device.number} of {device.node} is {others[-1].uuid} at first, and {device.uuid} later: one took "
                "the place of the other."
            )
        taken[device.node, device.number].append(device)
        kept.append(device)
    return kept, notes


def _own(devices: Sequence[Device], device: Device) -> set[int]:
    return {each.number for each in devices if each.node == device.node}
