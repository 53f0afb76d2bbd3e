"""The system metrics of a W&B run as snapshots of its nodes."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from trainguard.formats.runs.run import (
    HOST_MEMORY,
    MEBI,
    ONLY_NODE,
    UTILIZATION,
    SeriesName,
    SnapshotCollector,
    SourceRun,
    gpu_series,
    whole_memory,
)

# Ends of names; the third is no series.
USED, TOTAL, FREE, SHARE = "MemoryUsedBytes", "MemoryTotalBytes", "MemoryFreeBytes", "MemoryUsedPercent"

# By the end of a name the measure, and the factor to its unit.
_GPU: Mapping[str, tuple[str, float]] = {
    "gpu": (UTILIZATION, 1.0),
    "memory": ("GPUMemoryUtilization", 1.0),
    "memoryReadWriteActivity": ("GPUMemoryUtilization", 1.0),
    "memoryAllocatedBytes": (USED, 1.0),
    "memoryAllocated": (SHARE, 1.0),
    "memoryUsed": (USED, MEBI),
    "memoryTotal": (TOTAL, MEBI),
    "memoryFree": (FREE, MEBI),
    "powerWatts": ("PowerWatts", 1.0),
    "enforcedPowerLimitWatts": ("PowerLimitWatts", 1.0),
    "temp": ("TemperatureCelsius", 1.0),
    "smClock": ("SMClockMHz", 1.0),
    "pcieTxBytes": ("PCIeTransmittedBytesPerSecond", 1.0),
    "pcieRxBytes": ("PCIeReceivedBytesPerSecond", 1.0),
    "nvlinkTxBytes": ("NVLinkTransmittedBytesPerSecond", 1.0),
    "nvlinkRxBytes": ("NVLinkReceivedBytesPerSecond", 1.0),
    "smActive": ("SMActivityPercent", 1.0),
    "smOccupancy": ("SMOccupancyPercent", 1.0),
    "pipeTensorActive": ("TensorActivityPercent", 1.0),
    "dramActive": ("DRAMActivityPercent", 1.0),
}

# W&B writes these in percent from NVML, and as shares of 1 from dcgm-exporter.
ACTIVITIES = tuple(f".{each}" for each, _ in _GPU.values() if each.endswith(("ActivityPercent", "OccupancyPercent")))

# The utilization of a TensorCore is its part of the highest possible work, and none of its time: it is not read.
_TPU: Mapping[str, tuple[str, float]] = {
    "dutyCycle": (UTILIZATION, 1.0),
    "hbmCapacityUsage": (USED, 1.0),
    "memoryUsageBytes": (USED, 1.0),
    "hbmCapacityTotal": (TOTAL, 1.0),
    "hbmMemoryUsage": (SHARE, 1.0),
    "memoryUsage": (SHARE, 1.0),
}

_TRAINIUM: Mapping[str, tuple[str, float]] = {
    "neuroncore_utilization": (UTILIZATION, 1.0),
    **{
        f"neuroncore_memory_usage.{part}": (USED, 1.0)
        for part in ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")
    },
}
_DEVICES = {"gpu": _GPU, "tpu": _TPU, "trn": _TRAINIUM}
# Bytes of all NeuronCores together.
MEMORY_OF_ALL = "trn.neuron_device_total_memory_usage"

# What counts as a GPU beside GPUs.
KINDS = {"tpu": "TPU", "trn": "NeuronCore"}

_NAME = re.compile(r"(?:system\.)?(?P<metric>[^/]*(?:/(?!l:)[^/]*)*?)(?:/l:(?P<node>.+))?", re.DOTALL)
_OF_DEVICE = re.compile(r"(?P<kind>gpu|tpu|trn)\.(?P<number>\d{1,3})\.(?P<what>[\w.]+)")
_OF_OTHERS = re.compile(r"(?P<kind>tpu|trn|ipu|hpu|npu|xpu|mlu|dcu)(?:\.(?P<number>\d{1,3}))?(?:\..*)?", re.DOTALL)
_SCRAPED = re.compile(r"openmetrics\.[^.]*\..*(?:dcgm|gpu|npu|hpu|tpu|neuroncore).*", re.DOTALL | re.IGNORECASE)
_OF_CORE = re.compile(r"cpu\.(\d{1,4})\.cpu_percent")
_COUNTERS = {"network.recv": "ReceiveBytesPerSecond", "network.sent": "TransmitBytesPerSecond"}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a metric is: its node, empty where it is not named, and its series and factor; None of what is not read.

    ``kind`` and ``device`` are those of an accelerator. One of the network counts up.
    """

    node: str
    series: SeriesName | None = None
    factor: float = 1.0
    kind: str = ""
    device: str = ""


def meaning_of(name: str) -> Meaning:
    match = _NAME.fullmatch(name)
    if match is None:
        return Meaning("")
    # In shared mode W&B puts the label of the writer behind that of the node.
    metric, node = match["metric"], (match["node"] or "").partition("/l:")[0]
    return _of_device(metric, node) or Meaning(node, _of_host(metric))


def _of_device(metric: str, node: str) -> Meaning | None:
    found = _OF_DEVICE.fullmatch(metric)
    if found and found["what"] in _DEVICES[found["kind"]]:
        measure, factor = _DEVICES[found["kind"]][found["what"]]
        series = gpu_series(f"gpu{int(found['number'])}", measure)
        return Meaning(node, series, factor, found["kind"], _device(found))
    if found := found or _OF_OTHERS.fullmatch(metric):
        return Meaning(node, kind=found["kind"], device=_device(found))
    return Meaning(node, kind="gpu", device=metric[:64]) if _SCRAPED.fullmatch(metric) else None


def _of_host(metric: str) -> SeriesName | None:
    if found := _OF_CORE.fullmatch(metric):
        return SeriesName("cpu", f"cpu{int(found[1])}", "CPUUtilization")
    if metric == "memory_percent":
        return HOST_MEMORY
    return SeriesName("network", _COUNTERS[metric], "Algorithm") if metric in _COUNTERS else None


def _device(found: re.Match[str]) -> str:
    return found["kind"] if found["number"] is None else f"{found['kind']}.{int(found['number'])}"


NO_NODE = (
    "The host's metrics (memory, network, cores) name no node, and {} have GPUs: they are left out, since it is not "
    "known whose they are."
)
# Smaller shares are too coarse to estimate the whole memory from, percent.
_LEAST_SHARE = 0.5

_MOST_REMEMBERED = 20_000

Values = dict[SeriesName, float]


class SystemMetrics:
    def __init__(self) -> None:
        self._collected = SnapshotCollector()
        self._known: dict[str, Meaning] = {}
        self._records: list[tuple[str, float, Values]] = []
        self._series: defaultdict[str, set[SeriesName]] = defaultdict(set)
        self._most_active: dict[str, float] = {}
        self._devices: defaultdict[str, set[str]] = defaultdict(set)
        self._judged: set[str] = set()

    def add(self, at: float, values: Mapping[str, float]) -> None:
        by_node: defaultdict[str, Values] = defaultdict(dict)
        of_neuron = set()
        for name, value in values.items():
            meaning = self._meaning(name)
            if meaning.kind:
                self._devices[meaning.kind].add(meaning.device)
            series = meaning.series
            if series is None:
                continue
            node, measured = meaning.node, self._measured(meaning, series, at, value)
            if measured is not None:
                added = meaning.kind == "trn" and series.dimension != UTILIZATION
                by_node[node][series] = measured + (by_node[node].get(series, 0.0) if added else 0.0)
            if series.dimension == UTILIZATION:
                self._judged.add(meaning.kind)
            if meaning.kind == "trn":
                of_neuron.add(node)
        for node, found in by_node.items():
            _put_memory(found)
            if node in of_neuron:
                self._put_unused(node, found)
            self._series[node] |= found.keys()
            self._records.append((node, at, found))

    def put(self, run: SourceRun, host: str) -> None:
        """Give a run its snapshots; ``host`` is the name of the node that the metrics do not name."""
        names = self._nodes(run, host)
        twice = self._twice(names)
        if twice:
            run.notes.append(
                f"{len(twice)} series of GPUs come twice, from W&B's own sampling and under the label of a node: W&B's "
                "own are judged."
            )
        for node, at, found in self._records:
            if (name := names[node]) is None:
                continue
            # All of a run at 1 % or less would be a GPU that does nothing: these are shares of 1.
            factor = 100.0 if self._most_active.get(node, 2.0) <= 1.0 else 1.0
            values = {
                series: factor * value if _is_activity(series) else value
                for series, value in found.items()
                if not (node and series in twice)
            }
            if values:
                self._collected.add(name, at, values)
        run.snapshots = self._collected.snapshots(host or ONLY_NODE)
        if any(name.removeprefix("system.").startswith(MEMORY_OF_ALL) for name in self._known):
            run.not_read[USED] = f"the memory in use of all NeuronCores together, {MEMORY_OF_ALL}"
        self._name_devices(run)

    def _meaning(self, name: str) -> Meaning:
        if name not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[name] = meaning_of(name)
        return self._known[name]

    def _measured(self, meaning: Meaning, series: SeriesName, at: float, value: float) -> float | None:
        if series.type == "network":
            return self._collected.rate(meaning.node, series, at, value)
        if _is_activity(series):
            self._most_active[meaning.node] = max(self._most_active.get(meaning.node, 0.0), value)
        return value * meaning.factor

    def _put_unused(self, node: str, found: Values) -> None:
        """Say that cores do nothing which another sample has: NeuronCores are listed while a program uses them."""
        for series in self._series[node]:
            if series.dimension == UTILIZATION:
                found.setdefault(series, 0.0)

    def _nodes(self, run: SourceRun, host: str) -> dict[str, str | None]:
        """Return the name of each node; of metrics without one the host's, whose GPUs may be under another name.

        dcgm-exporter's metrics have the label of a node, while those of the host that W&B runs on have none.
        """
        labels = sorted(node for node in self._series if node)
        names: dict[str, str | None] = {node: node for node in labels}
        names[""] = host or ONLY_NODE
        if "" not in self._series or not labels:
            return names
        same = next((label for label in labels if _short(label) == _short(host)), None)
        own, first = self._gpus(""), self._gpus(labels[0])
        if same is None and len(labels) == 1 and (not own or own == first):
            same = labels[0]
        if same is not None:
            names[""] = same
        elif not own:
            names[""] = None
            run.notes.append(NO_NODE.format(f"{len(labels)} nodes"))
        return names

    def _gpus(self, node: str) -> set[str]:
        return {series.name.partition(".")[0] for series in self._series[node] if series.type == "gpu"}

    def _twice(self, names: Mapping[str, str | None]) -> set[SeriesName]:
        return {
            series
            for node, name in names.items()
            if node and name == names[""]
            for series in self._series.get("", set()) & self._series[node]
        }

    def _name_devices(self, run: SourceRun) -> None:
        has_gpus = any(series.type == "gpu" for found in self._series.values() for series in found)
        for kind, devices in sorted(self._devices.items()):
            if kind in self._judged or (kind == "gpu" and has_gpus):
                if kind in KINDS:
                    run.notes.append(f"{KINDS[kind]}s count as GPUs: gpu0 is {kind}.0.")
            else:
                run.not_judged[KINDS.get(kind, kind.upper())] = devices


def _put_memory(found: Values) -> None:
    """Put the whole memory of GPUs that write two of its parts, and a share where that alone is known."""
    for gpu in {series.name.partition(".")[0] for series in found if series.type == "gpu"}:
        used, total, free, share = (gpu_series(gpu, measure) for measure in (USED, TOTAL, FREE, SHARE))
        percent, left = found.pop(share, None), found.pop(free, None)
        if used not in found:
            if percent is not None and 0.0 <= percent <= 100.0:
                found[share] = percent
            continue
        whole = None if percent is None else whole_memory(found[used], percent, _LEAST_SHARE)
        whole = found[used] + left if left is not None else whole
        if whole is not None:
            found.setdefault(total, whole)


def _is_activity(series: SeriesName) -> bool:
    return series.type == "gpu" and series.name.endswith(ACTIVITIES)


def _short(host: str) -> str:
    return host.partition(".")[0].lower()
