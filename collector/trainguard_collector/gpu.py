"""NVIDIA GPUs, by NVML, with the XID errors that the driver reports and, since Hopper, performance monitoring (GPM)."""

import importlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Optional

from trainguard_collector.metrics import (
    LOST,
    NEVER,
    PASSING,
    Device,
    NotMeasuredError,
    Rates,
    Read,
    Values,
    reading,
)

# A GPU that fails sends more than anyone reads.
_MOST_EVENTS = 64

_MOST_CODES = 16
_LOST = 15


def xids(nvml: Any, handle: Any) -> Read:
    """Return a reader of the newest XID, 0 before the first, and of how often each one came."""
    counts: Counter[int] = Counter()
    newest = 0

    @cache
    def events() -> Any:
        made = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, made)
        except Exception:
            with suppress(Exception):
                nvml.nvmlEventSetFree(made)
            raise
        return made

    def read(_: float) -> Values:
        nonlocal newest
        registered = events()
        for _ in range(_MOST_EVENTS):
            try:
                xid = int(nvml.nvmlEventSetWait_v2(registered, 0).eventData)
            except nvml.NVMLError as fault:
                # A set says so of any lost GPU; which one it is, its own metrics say.
                if fault.value in (nvml.NVML_ERROR_TIMEOUT, _LOST):
                    break
                raise
            newest = xid
            if xid in counts or len(counts) < _MOST_CODES:
                counts[xid] += 1
        yield "XID", "", float(newest)
        for xid, count in counts.items():
            yield f"XIDCount{xid}", "", float(count)

    return read


_MEBI = 2.0**20
_METRICS = {
    "SMActivityPercent": ("NVML_GPM_METRIC_SM_UTIL", 1.0),
    "SMOccupancyPercent": ("NVML_GPM_METRIC_SM_OCCUPANCY", 1.0),
    "TensorActivityPercent": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 1.0),
    "DRAMActivityPercent": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 1.0),
}
_TRAFFIC = {
    "PCIeTransmittedBytesPerSecond": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", _MEBI),
    "PCIeReceivedBytesPerSecond": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", _MEBI),
    "NVLinkTransmittedBytesPerSecond": ("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", _MEBI),
    "NVLinkReceivedBytesPerSecond": ("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", _MEBI),
}


def has_gpm(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    except Exception:
        return False


class Gpm:
    """The metrics of one GPU or MIG instance; ``take`` fills a sample of NVML's, ``lack`` gets what is absent.

    NVML API reference, "GPM Functions": percent, and MiB a second, of the time between two samples.
    """

    def __init__(
        self,
        nvml: Any,
        take: Callable[[Any], object],
        lack: Callable[[str, object], None],
        *,
        prefix: str = "",
        with_traffic: bool = True,
    ) -> None:
        self._nvml, self._take, self._lack, self._prefix = nvml, take, lack, prefix
        self._metrics = {**_METRICS, **_TRAFFIC} if with_traffic else dict(_METRICS)
        self._samples: list[Any] = []
        self._has_earlier = False
        self._works = True

    def measures(self, name: str) -> bool:
        """Whether a series comes from here, as far as is known: the first value comes with the second reading."""
        return self._works and name in self._metrics

    def read(self, _: float) -> Iterator[tuple[str, str, float]]:
        """Yield the means since the last reading; nothing the first time."""
        nvml, self._works = self._nvml, False
        while len(self._samples) < 2:
            self._samples.append(nvml.nvmlGpmSampleAlloc())
        earlier, now = self._samples
        self._take(now)
        has_earlier, self._has_earlier = self._has_earlier, True
        self._samples = [now, earlier]
        if has_earlier and self._metrics:
            yield from self._between(earlier, now)
        self._works = True

    def _between(self, earlier: Any, now: Any) -> Iterator[tuple[str, str, float]]:
        nvml, request = self._nvml, self._nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(self._metrics)
        request.sample1, request.sample2 = earlier, now
        for place, (constant, _) in enumerate(self._metrics.values()):
            request.metrics[place].metricId = getattr(nvml, constant)
        nvml.nvmlGpmMetricsGet(request)
        for place, (name, (_, factor)) in enumerate(list(self._metrics.items())):
            answer = request.metrics[place]
            value = answer.value * factor
            if answer.nvmlReturn:
                del self._metrics[name]
                if name in _METRICS:  # of traffic there are counters as well
                    self._lack(f"{self._prefix}{name}", nvml.NVMLError(answer.nvmlReturn))
            elif math.isfinite(value) and value >= 0.0:
                yield f"{self._prefix}{name}", "", value


# Invalid argument, not supported, no permission, function not found: a GPU that says so says so each time.
_NEVER = frozenset({2, 3, 4, 13})

_NO_FUNCTION = 13
_ALL_LINKS = 0xFFFFFFFF
_KIBI = 1024.0
_UNSIGNED_INT = 1

_PCIE = (
    ("PCIeTransmittedBytesPerSecond", "NVML_FI_DEV_PCIE_COUNT_TX_BYTES"),
    ("PCIeReceivedBytesPerSecond", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES"),
)
_NVLINK = (
    ("NVLinkTransmittedBytesPerSecond", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX"),
    ("NVLinkReceivedBytesPerSecond", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"),
)


def find_nvidia(faults: dict[str, str], library: Any = None, only: Sequence[str] = ()) -> list[Device]:
    """Return the NVIDIA GPUs of the node; `faults` gets which are lost, and which metrics they do not have.

    ``only`` has numbers and UUIDs of GPUs and MIG instances; these alone count, from ``gpu0`` on.
    """
    try:
        nvml = library or importlib.import_module("pynvml")
        nvml.nvmlInit()
        count = int(nvml.nvmlDeviceGetCount())
    except Exception as fault:
        faults["nvml"] = str(fault)[:200]
        return []
    devices: list[Device] = []
    missing: list[Exception] = []
    for number in range(count):
        device = Device(f"gpu{len(devices)}", faults, judge)
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            chosen = _chosen(nvml, handle, number, only)
            if chosen is None:
                continue
            device.about.update(_about(nvml, handle))
            _add_metrics(nvml, handle, device, chosen)
        except Exception as fault:
            if judge(fault) != LOST:
                faults[device.name] = f"no handle: {fault}"[:200]
                continue
            if only and str(number) not in only:
                missing.append(fault)
                continue
            device.lose(fault)
        devices.append(device)
    # A lost GPU has no UUID: it is one of those that were not found.
    wanted = sum(not each.startswith("MIG-") for each in only)
    for loss in missing[: max(wanted - len(devices), 0)]:
        device = Device(f"gpu{len(devices)}", faults, judge)
        device.lose(loss)
        devices.append(device)
    return devices


def _chosen(nvml: Any, handle: Any, number: int, only: Sequence[str]) -> "Optional[frozenset[str]]":
    """Return the MIG instances that are chosen of a GPU, none for all of it; None where it is not chosen at all."""
    if not only or str(number) in only or _uuid(nvml, handle) in only:
        return frozenset()
    found = {_uuid(nvml, instance) for _, instance in _instances(nvml, handle)}
    return frozenset(found.intersection(only)) or None


def _about(nvml: Any, handle: Any) -> dict[str, str]:
    about = {"hw.vendor": "NVIDIA"}
    with suppress(Exception):
        about["hw.id"] = _uuid(nvml, handle)
        about["hw.model"] = _text(nvml.nvmlDeviceGetName(handle))
    return about


def _uuid(nvml: Any, handle: Any) -> str:
    return _text(nvml.nvmlDeviceGetUUID(handle))


def _text(found: Any) -> str:
    return found.decode() if isinstance(found, bytes) else str(found)


def _instances(nvml: Any, handle: Any) -> "Iterator[tuple[int, Any]]":
    count = 0
    with suppress(Exception):
        count = int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    for number in range(count):
        with suppress(Exception):
            yield number, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)


def judge(fault: Exception) -> str:
    code = getattr(fault, "value", None)
    return LOST if code == _LOST else NEVER if code in _NEVER else PASSING


def _add_metrics(nvml: Any, handle: Any, device: Device, chosen: "frozenset[str]") -> None:  # noqa: C901 - a function a metric
    def is_mig() -> bool:
        try:
            return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
        except Exception:
            return False

    def utilization(_: float) -> Values:
        rates = nvml.nvmlDeviceGetUtilizationRates(handle)
        yield "", "GPUUtilization", float(rates.gpu)
        yield "", "GPUMemoryUtilization", float(rates.memory)

    def throttle_reasons() -> Any:
        try:
            return nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        except Exception as fault:  # drivers and bindings from before 2023 have the other name alone
            if not isinstance(fault, AttributeError) and getattr(fault, "value", None) != _NO_FUNCTION:
                raise
            return nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)

    def ecc(kind: str) -> Any:
        return nvml.nvmlDeviceGetTotalEccErrors(handle, getattr(nvml, kind), nvml.NVML_VOLATILE_ECC)

    def remapped_rows(_: float) -> Values:
        corrected, uncorrected, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
        yield "RemappedRows", "", float(corrected + uncorrected)
        yield "RemappedRowsPending", "", float(pending)
        yield "RemappedRowsFailed", "", float(failed)

    in_parts, gpm = is_mig(), None
    device.fast.update(
        Memory=_memory(nvml, handle, ""),
        Power=reading(("PowerWatts", "", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0)),
    )
    if in_parts:
        device.lack("Utilization", "not measured by NVML under MIG")
    else:
        device.fast["Utilization"] = utilization
    if has_gpm(nvml, handle):
        if in_parts:
            device.lack("GPM", "measured for each instance under MIG")
        else:
            gpm = Gpm(nvml, lambda sample: nvml.nvmlGpmSampleGet(handle, sample), device.lack)
            device.slow["GPM"] = gpm.read
    device.slow.update(
        PowerLimit=reading(("PowerLimitWatts", "", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000.0)),
        Temperature=reading(("TemperatureCelsius", "", lambda: nvml.nvmlDeviceGetTemperature(handle, 0))),
        SMClock=reading(
            ("SMClockMHz", "", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            ("SMClockMaximumMHz", "", lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
        ),
        ThrottleReasons=reading(("ThrottleReasons", "", throttle_reasons)),
        PCIeLink=reading(
            ("PCIeLinkWidth", "", lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
            ("PCIeLinkWidthMaximum", "", lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        ),
        PCIeGeneration=reading(
            ("PCIeLinkGeneration", "", lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
            ("PCIeLinkGenerationMaximum", "", lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        ),
        PCIe=_counted(nvml, handle, gpm, _PCIE, 1.0, 0),
        NVLink=_counted(nvml, handle, gpm, _NVLINK, _KIBI, _ALL_LINKS),
        ECC=reading(
            ("ECCCorrectedErrors", "", lambda: ecc("NVML_MEMORY_ERROR_TYPE_CORRECTED")),
            ("ECCUncorrectedErrors", "", lambda: ecc("NVML_MEMORY_ERROR_TYPE_UNCORRECTED")),
        ),
        RemappedRows=remapped_rows,
    )
    device.always["XID"] = xids(nvml, handle)
    for number, instance in _instances(nvml, handle) if in_parts else ():
        if not chosen or _uuid(nvml, instance) in chosen:
            _add_instance(nvml, handle, instance, f"mig{number}", device)


def _memory(nvml: Any, handle: Any, prefix: str) -> Read:
    def read(_: float) -> Values:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        yield f"{prefix}MemoryUsedBytes", "", float(memory.used)
        yield f"{prefix}MemoryTotalBytes", "", float(memory.total)

    return read


def _counted(
    nvml: Any, handle: Any, gpm: Optional[Gpm], series: "tuple[tuple[str, str], ...]", factor: float, scope: int
) -> Read:
    """Return a reader of rates from counters, unless GPM measures the same.

    The call that gives rates would hold the sampler for 20 ms each.
    """
    rates = Rates()

    def read(at: float) -> Values:
        if gpm is not None and gpm.measures(series[0][0]):
            return
        fields = [(getattr(nvml, field), scope) for _, field in series]
        for (name, _), answer in zip(series, nvml.nvmlDeviceGetFieldValues(handle, fields)):
            if answer.nvmlReturn:
                raise nvml.NVMLError(answer.nvmlReturn)
            if answer.valueType == _UNSIGNED_INT:
                raise NotMeasuredError("NVML counts in 32 bits, which is less than 10 s of traffic")
            rate = rates.rate(name, at, factor * answer.value.ullVal)
            if rate is not None:
                yield name, "", rate

    return read


def _add_instance(nvml: Any, parent: Any, handle: Any, name: str, device: Device) -> None:
    number = cache(lambda: int(nvml.nvmlDeviceGetGpuInstanceId(handle)))
    device.fast[name] = _memory(nvml, handle, f"{name}.")
    if has_gpm(nvml, parent):
        gpm = Gpm(
            nvml,
            lambda sample: nvml.nvmlGpmMigSampleGet(parent, number(), sample),
            device.lack,
            prefix=f"{name}.",
            with_traffic=False,
        )
        device.slow[f"{name}.GPM"] = gpm.read
