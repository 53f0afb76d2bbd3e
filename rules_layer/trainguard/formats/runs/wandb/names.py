"""What the names of W&B's system metrics mean.

Source: wandb 0.31 (wandb/wandb), in `core/internal/monitor` the table of producers in `typed_system_metrics.md`,
`dcgm_exporter.go` and `trainium.go`; `xpu/src/tpu_libtpu.rs`, `gpu_amd.rs`; of versions before 2025
`wandb/sdk/internal/system/assets/ipu.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainguard.formats.runs.run import HOST_MEMORY, MEBI, UTILIZATION, SeriesName, gpu_series

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
