"""NVIDIA GPUs, by NVML: handles are fetched once, and each metric of each GPU fails alone."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Optional

from trainguard_collector.lines import Sample

_LOST = 15
_NEVER = frozenset({2, 3, 4, 13})
"""Invalid argument, not supported, no permission, function not found: a GPU that says so says so each time."""

_PATIENCE = 20
"""After so many other errors in a row a metric is given up."""

_MOST_EVENTS = 64
"""So many XID events are taken at once; a GPU that fails sends more than anyone reads."""

_PCIE_COUNTERS = (
    ("PCIeTransmittedBytesPerSecond", "NVML_FI_DEV_PCIE_COUNT_TX_BYTES"),
    ("PCIeReceivedBytesPerSecond", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES"),
)

_Values = Iterator[tuple[str, str, float]]
"""Name after the GPU's, dimension and value; a managed series has the GPU's own name and a dimension."""

_Read = Callable[[], _Values]


class Gpus:
    """All GPUs of the node; `faults` says which of them are lost, and which metrics they do not have."""

    def __init__(self, library: Any = None) -> None:
        self.faults: dict[str, str] = {}
        self._gpus: list[_Gpu] = []
        try:
            nvml = library or importlib.import_module("pynvml")
            nvml.nvmlInit()
            count = int(nvml.nvmlDeviceGetCount())
        except Exception as fault:
            self.faults["nvml"] = str(fault)[:200]
            return
        for number in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                self._gpus.append(_Gpu(nvml, f"gpu{number}", handle, self.faults))
            except Exception as fault:
                self.faults[f"gpu{number}"] = f"no handle: {fault}"[:200]

    def __len__(self) -> int:
        return len(self._gpus)

    def read(self, at: float, *, with_slow: bool) -> list[Sample]:
        """Return the samples of all GPUs; ``at`` is of a clock that never goes back."""
        return [sample for gpu in self._gpus for sample in gpu.read(at, with_slow=with_slow)]


class _Gpu:
    def __init__(self, nvml: Any, name: str, handle: Any, faults: dict[str, str]) -> None:
        self._nvml, self._name, self._handle, self._faults = nvml, name, handle, faults
        self._is_lost = False
        self._at = 0.0
        self._counters: dict[str, tuple[float, float]] = {}
        self._errors: dict[str, int] = {}
        self._events: Any = None
        self._last_xid = 0.0
        self._fast: dict[str, _Read] = {"Memory": self._memory, "Power": self._power}
        if self._is_mig():
            faults[f"{name}.Utilization"] = "not measured by NVML under MIG"
            self._fast.update(self._instances())
        else:
            self._fast["Utilization"] = self._utilization
        self._slow: dict[str, _Read] = {
            "Temperature": self._temperature,
            "SMClock": self._clock,
            "ThrottleReasons": self._throttle_reasons,
            "PCIeLink": self._pcie_link,
            "PCIe": self._pcie,
            "ECC": self._ecc,
            "RemappedRows": self._remapped_rows,
            "XID": self._xid,
        }

    def read(self, at: float, *, with_slow: bool) -> list[Sample]:
        self._at = at
        samples: list[Sample] = []
        for table in (self._fast, self._slow) if with_slow else (self._fast,):
            for metric in list(table):
                if self._is_lost:
                    break
                samples += self._try(table, metric)
        if with_slow:
            samples.append(Sample("gpu", f"{self._name}.Lost", "", float(self._is_lost)))
        return samples

    def _try(self, table: dict[str, _Read], metric: str) -> list[Sample]:
        try:
            found = [
                Sample("gpu", f"{self._name}.{name}" if name else self._name, dimension, value)
                for name, dimension, value in table[metric]()
            ]
        except Exception as fault:
            self._note(table, metric, fault)
            return []
        self._errors.pop(metric, None)
        return found

    def _note(self, table: dict[str, _Read], metric: str, fault: Exception) -> None:
        code = getattr(fault, "value", None)
        self._errors[metric] = self._errors.get(metric, 0) + 1
        if code == _LOST:
            self._is_lost = True
            self._faults[self._name] = f"lost: {fault}"[:200]
        elif code in _NEVER or isinstance(fault, AttributeError) or self._errors[metric] >= _PATIENCE:
            table.pop(metric)
            self._faults[f"{self._name}.{metric}"] = str(fault)[:200]

    def _is_mig(self) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(self._handle)[0])
        except Exception:
            return False

    def _instances(self) -> dict[str, _Read]:
        found: dict[str, _Read] = {}
        with suppress(Exception):
            for number in range(int(self._nvml.nvmlDeviceGetMaxMigDeviceCount(self._handle))):
                with suppress(Exception):
                    handle = self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(self._handle, number)
                    found[f"mig{number}"] = _memory_of_instance(self._nvml, handle, f"mig{number}")
        return found

    def _utilization(self) -> _Values:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        yield "", "GPUUtilization", float(rates.gpu)
        yield "", "GPUMemoryUtilization", float(rates.memory)

    def _memory(self) -> _Values:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        yield "MemoryUsedBytes", "", float(memory.used)
        yield "MemoryTotalBytes", "", float(memory.total)

    def _power(self) -> _Values:
        yield "PowerWatts", "", self._nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000.0

    def _temperature(self) -> _Values:
        yield "TemperatureCelsius", "", float(self._nvml.nvmlDeviceGetTemperature(self._handle, 0))

    def _clock(self) -> _Values:
        kind = self._nvml.NVML_CLOCK_SM
        yield "SMClockMHz", "", float(self._nvml.nvmlDeviceGetClockInfo(self._handle, kind))
        yield "SMClockMaximumMHz", "", float(self._nvml.nvmlDeviceGetMaxClockInfo(self._handle, kind))

    def _throttle_reasons(self) -> _Values:
        nvml = self._nvml
        ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        mask = (ask or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(self._handle)
        yield "ThrottleReasons", "", float(mask)

    def _pcie_link(self) -> _Values:
        nvml, handle = self._nvml, self._handle
        yield "PCIeLinkWidth", "", float(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))
        yield "PCIeLinkWidthMaximum", "", float(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))

    def _pcie(self) -> _Values:
        """Yield rates from counters; the call that gives rates would hold the sampler for 20 ms each."""
        fields = [getattr(self._nvml, field) for _, field in _PCIE_COUNTERS]
        answers = self._nvml.nvmlDeviceGetFieldValues(self._handle, fields)
        for (name, _), answer in zip(_PCIE_COUNTERS, answers):
            if answer.nvmlReturn:
                raise self._nvml.NVMLError(answer.nvmlReturn)
            value = float(answer.value.ullVal)
            was_at, was = self._counters.get(name, (self._at, value))
            self._counters[name] = self._at, value
            if self._at > was_at and value >= was:
                yield name, "", (value - was) / (self._at - was_at)

    def _ecc(self) -> _Values:
        nvml = self._nvml
        for name, kind in (
            ("ECCCorrectedErrors", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ("ECCUncorrectedErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        ):
            yield name, "", float(nvml.nvmlDeviceGetTotalEccErrors(self._handle, kind, nvml.NVML_VOLATILE_ECC))

    def _remapped_rows(self) -> _Values:
        corrected, uncorrected, pending, failed = self._nvml.nvmlDeviceGetRemappedRows(self._handle)
        yield "RemappedRows", "", float(corrected + uncorrected)
        yield "RemappedRowsPending", "", float(pending)
        yield "RemappedRowsFailed", "", float(failed)

    def _xid(self) -> _Values:
        """Yield the newest XID since the sampler started; 0 before the first."""
        nvml = self._nvml
        if self._events is None:
            events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(self._handle, nvml.nvmlEventTypeXidCriticalError, events)
            self._events = events
        for _ in range(_MOST_EVENTS):
            newest = self._next_xid()
            if newest is None:
                break
            self._last_xid = newest
        yield "XID", "", self._last_xid

    def _next_xid(self) -> Optional[float]:
        nvml = self._nvml
        try:
            return float(nvml.nvmlEventSetWait_v2(self._events, 0).eventData)
        except nvml.NVMLError as fault:
            if fault.value == nvml.NVML_ERROR_TIMEOUT:
                return None
            raise


def _memory_of_instance(nvml: Any, handle: Any, name: str) -> _Read:
    def read() -> _Values:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        yield f"{name}.MemoryUsedBytes", "", float(memory.used)
        yield f"{name}.MemoryTotalBytes", "", float(memory.total)

    return read
