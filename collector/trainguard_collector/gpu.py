"""NVIDIA GPUs, by NVML: handles are fetched once, and each metric of each GPU fails alone."""

import importlib
from contextlib import suppress
from typing import Any, Optional

from trainguard_collector.gpm import Gpm, has_gpm
from trainguard_collector.lines import Sample
from trainguard_collector.metrics import LOST, NEVER, PASSING, Device, NotMeasuredError, Rates, Values
from trainguard_collector.xid import Xids

_LOST = 15
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
    """Fills the tables of a device's metrics."""

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
    """A MIG instance of a GPU."""

    def __init__(self, nvml: Any, parent: Any, handle: Any, name: str) -> None:
        self._nvml, self._parent, self._handle, self._name = nvml, parent, handle, name
        self._number: Optional[int] = None

    def add_to(self, device: Device) -> None:
        """Add its metrics to those of its GPU."""
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
