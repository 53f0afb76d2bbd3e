"""NVIDIA GPUs, by NVML, with the XID errors that the driver reports and, since Hopper, performance monitoring (GPM)."""

import importlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Optional

from trainguard_collector.metrics import LOST, NEVER, PASSING, Device, NotMeasuredError, Rates, Sample, Values

_MOST_EVENTS = 64
"""A GPU that fails sends more than anyone reads."""

_MOST_CODES = 16
_LOST = 15


class Xids:
    """Counts the events since the sampler started."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._events: Any = None
        self._newest = 0
        self._counts: Counter[int] = Counter()

    def read(self, _: float) -> Values:
        """Yield the newest XID, 0 before the first, and how often each one came."""
        if self._events is None:
            self._events = self._register()
        for _ in range(_MOST_EVENTS):
            xid = self._next()
            if xid is None:
                break
            self._newest = xid
            if xid in self._counts or len(self._counts) < _MOST_CODES:
                self._counts[xid] += 1
        yield "XID", "", float(self._newest)
        for xid, count in self._counts.items():
            yield f"XIDCount{xid}", "", float(count)

    def _register(self) -> Any:
        nvml = self._nvml
        events = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(self._handle, nvml.nvmlEventTypeXidCriticalError, events)
        except Exception:
            with suppress(Exception):
                nvml.nvmlEventSetFree(events)
            raise
        return events

    def _next(self) -> Optional[int]:
        nvml = self._nvml
        try:
            return int(nvml.nvmlEventSetWait_v2(self._events, 0).eventData)
        except nvml.NVMLError as fault:
            # A set says so of any lost GPU; which one it is, its own metrics say.
            if fault.value in (nvml.NVML_ERROR_TIMEOUT, _LOST):
                return None
            raise


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
    """Whether a GPU has these metrics."""
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


_NEVER = frozenset({2, 3, 4, 13})
"""Invalid argument, not supported, no permission, function not found: a GPU that says so says so each time."""

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


class Gpus:
    """All NVIDIA GPUs of the node; `faults` says which of them are lost, and which metrics they do not have."""

    def __init__(self, library: Any = None, faults: Optional[dict[str, str]] = None) -> None:
        self.faults = {} if faults is None else faults
        self.devices: list[Device] = []
        try:
            nvml = library or importlib.import_module("pynvml")
            nvml.nvmlInit()
            count = int(nvml.nvmlDeviceGetCount())
        except Exception as fault:
            self.faults["nvml"] = str(fault)[:200]
            return
        for number in range(count):
            self._open(nvml, number)

    def _open(self, nvml: Any, number: int) -> None:
        device = Device(f"gpu{number}", self.faults, judge)
        try:
            _Nvidia(nvml, nvml.nvmlDeviceGetHandleByIndex(number), device)
        except Exception as fault:
            if judge(fault) != LOST:
                self.faults[device.name] = f"no handle: {fault}"[:200]
                return
            device.lose(fault)
        self.devices.append(device)

    def __len__(self) -> int:
        return len(self.devices)

    def read(self, at: float, *, with_slow: bool) -> list[Sample]:
        """Return the samples of all GPUs; ``at`` is of a clock that never goes back."""
        return [sample for device in self.devices for sample in device.read(at, with_slow=with_slow)]


def judge(fault: Exception) -> str:
    """Return what an error of NVML means."""
    code = getattr(fault, "value", None)
    return LOST if code == _LOST else NEVER if code in _NEVER else PASSING


class _Nvidia:
    def __init__(self, nvml: Any, handle: Any, device: Device) -> None:
        self._nvml, self._handle = nvml, handle
        self._rates = Rates()
        self._gpm: Optional[Gpm] = None
        device.fast.update(Memory=self._memory, Power=self._power)
        is_mig = self._is_mig()
        if is_mig:
            device.lack("Utilization", "not measured by NVML under MIG")
        else:
            device.fast["Utilization"] = self._utilization
        if has_gpm(nvml, handle):
            if is_mig:
                device.lack("GPM", "measured for each instance under MIG")
            else:
                self._gpm = Gpm(nvml, lambda sample: nvml.nvmlGpmSampleGet(handle, sample), device.lack)
                device.slow["GPM"] = self._gpm.read
        device.slow.update(
            PowerLimit=self._power_limit,
            Temperature=self._temperature,
            SMClock=self._clock,
            ThrottleReasons=self._throttle_reasons,
            PCIeLink=self._pcie_link,
            PCIeGeneration=self._pcie_generation,
            PCIe=self._pcie,
            NVLink=self._nvlink,
            ECC=self._ecc,
            RemappedRows=self._remapped_rows,
        )
        device.always["XID"] = Xids(nvml, handle).read
        if is_mig:
            self._add_instances(device)

    def _is_mig(self) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(self._handle)[0])
        except Exception:
            return False

    def _add_instances(self, device: Device) -> None:
        nvml, parent = self._nvml, self._handle
        with suppress(Exception):
            for number in range(int(nvml.nvmlDeviceGetMaxMigDeviceCount(parent))):
                with suppress(Exception):
                    instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, number)
                    _Instance(nvml, parent, instance, f"mig{number}").add_to(device)

    def _utilization(self, _: float) -> Values:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        yield "", "GPUUtilization", float(rates.gpu)
        yield "", "GPUMemoryUtilization", float(rates.memory)

    def _memory(self, _: float) -> Values:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        yield "MemoryUsedBytes", "", float(memory.used)
        yield "MemoryTotalBytes", "", float(memory.total)

    def _power(self, _: float) -> Values:
        yield "PowerWatts", "", self._nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000.0

    def _power_limit(self, _: float) -> Values:
        yield "PowerLimitWatts", "", self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1000.0

    def _temperature(self, _: float) -> Values:
        yield "TemperatureCelsius", "", float(self._nvml.nvmlDeviceGetTemperature(self._handle, 0))

    def _clock(self, _: float) -> Values:
        kind = self._nvml.NVML_CLOCK_SM
        yield "SMClockMHz", "", float(self._nvml.nvmlDeviceGetClockInfo(self._handle, kind))
        yield "SMClockMaximumMHz", "", float(self._nvml.nvmlDeviceGetMaxClockInfo(self._handle, kind))

    def _throttle_reasons(self, _: float) -> Values:
        nvml = self._nvml
        try:
            mask = nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
        except Exception as fault:  # drivers and bindings from before 2023 have the other name alone
            if not isinstance(fault, AttributeError) and getattr(fault, "value", None) != _NO_FUNCTION:
                raise
            mask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        yield "ThrottleReasons", "", float(mask)

    def _pcie_link(self, _: float) -> Values:
        nvml, handle = self._nvml, self._handle
        yield "PCIeLinkWidth", "", float(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))
        yield "PCIeLinkWidthMaximum", "", float(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))

    def _pcie_generation(self, _: float) -> Values:
        nvml, handle = self._nvml, self._handle
        yield "PCIeLinkGeneration", "", float(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle))
        yield "PCIeLinkGenerationMaximum", "", float(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))

    def _pcie(self, at: float) -> Values:
        """Yield rates from counters; the call that gives rates would hold the sampler for 20 ms each."""
        yield from self._counted(at, _PCIE, 1.0, 0)

    def _nvlink(self, at: float) -> Values:
        yield from self._counted(at, _NVLINK, _KIBI, _ALL_LINKS)

    def _counted(self, at: float, series: tuple[tuple[str, str], ...], factor: float, scope: int) -> Values:
        """Yield the rates of NVML's counters, unless GPM measures the same."""
        if self._gpm is not None and self._gpm.measures(series[0][0]):
            return
        fields = [(getattr(self._nvml, field), scope) for _, field in series]
        answers = self._nvml.nvmlDeviceGetFieldValues(self._handle, fields)
        for (name, _), answer in zip(series, answers):
            if answer.nvmlReturn:
                raise self._nvml.NVMLError(answer.nvmlReturn)
            if answer.valueType == _UNSIGNED_INT:
                raise NotMeasuredError("NVML counts in 32 bits, which is less than 10 s of traffic")
            rate = self._rates.rate(name, at, factor * answer.value.ullVal)
            if rate is not None:
                yield name, "", rate

    def _ecc(self, _: float) -> Values:
        nvml = self._nvml
        for name, kind in (
            ("ECCCorrectedErrors", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ("ECCUncorrectedErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        ):
            yield name, "", float(nvml.nvmlDeviceGetTotalEccErrors(self._handle, kind, nvml.NVML_VOLATILE_ECC))

    def _remapped_rows(self, _: float) -> Values:
        corrected, uncorrected, pending, failed = self._nvml.nvmlDeviceGetRemappedRows(self._handle)
        yield "RemappedRows", "", float(corrected + uncorrected)
        yield "RemappedRowsPending", "", float(pending)
        yield "RemappedRowsFailed", "", float(failed)


class _Instance:
    def __init__(self, nvml: Any, parent: Any, handle: Any, name: str) -> None:
        self._nvml, self._parent, self._handle, self._name = nvml, parent, handle, name
        self._number: Optional[int] = None

    def add_to(self, device: Device) -> None:
        device.fast[self._name] = self._memory
        if has_gpm(self._nvml, self._parent):
            gpm = Gpm(self._nvml, self._take, device.lack, prefix=f"{self._name}.", with_traffic=False)
            device.slow[f"{self._name}.GPM"] = gpm.read

    def _take(self, sample: Any) -> None:
        if self._number is None:
            self._number = int(self._nvml.nvmlDeviceGetGpuInstanceId(self._handle))
        self._nvml.nvmlGpmMigSampleGet(self._parent, self._number, sample)

    def _memory(self, _: float) -> Values:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        yield f"{self._name}.MemoryUsedBytes", "", float(memory.used)
        yield f"{self._name}.MemoryTotalBytes", "", float(memory.total)
