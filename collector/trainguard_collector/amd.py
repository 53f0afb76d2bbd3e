"""AMD GPUs, by ``amdsmi`` where it is installed: it comes with ROCm and is no dependency."""

import importlib
import importlib.util
from typing import Any, Optional

from trainguard_collector.metrics import NEVER, PASSING, Device, Values

_NEVER = frozenset({1, 2, 3, 10})
"""Invalid argument, not supported, not implemented, no permission."""

_MEBI = 2.0**20
_MICROWATTS_FROM = 100_000.0
"""Some versions give a power limit in watts, others in microwatts: no GPU takes 100 kW."""


class UnavailableError(Exception):
    """The library gives "N/A" in the place of a value."""


def find_amd(faults: dict[str, str], library: Any = None) -> list[Device]:
    """Return the AMD GPUs of the node; `faults` gets why there are none, where ``amdsmi`` is installed."""
    if library is None and importlib.util.find_spec("amdsmi") is None:
        return []
    try:
        smi = library or importlib.import_module("amdsmi")
        smi.amdsmi_init()
        handles = list(smi.amdsmi_get_processor_handles())
    except (Exception, SystemExit) as fault:
        faults["amdsmi"] = str(fault)[:200]
        return []
    devices = [Device(f"gpu{number}", faults, judge, knows_loss=False) for number in range(len(handles))]
    for handle, device in zip(handles, devices):
        _Amd(smi, handle).add_to(device)
    return devices


def judge(fault: Exception) -> str:
    """Return what an error of the library means; it has none for a GPU that is gone."""
    return NEVER if getattr(fault, "err_code", None) in _NEVER else PASSING


class _Amd:
    def __init__(self, smi: Any, handle: Any) -> None:
        self._smi, self._handle = smi, handle

    def add_to(self, device: Device) -> None:
        device.fast.update(Utilization=self._utilization, Memory=self._memory, Power=self._power)
        device.slow.update(
            PowerLimit=self._power_limit,
            Temperature=self._temperature,
            SMClock=self._clock,
            PCIeLink=self._pcie_link,
            ECC=self._ecc,
        )

    def _utilization(self, _: float) -> Values:
        activity = self._smi.amdsmi_get_gpu_activity(self._handle)
        yield "", "GPUUtilization", _number(activity, "gfx_activity")
        yield "", "GPUMemoryUtilization", _number(activity, "umc_activity")

    def _memory(self, _: float) -> Values:
        memory = self._smi.amdsmi_get_gpu_vram_usage(self._handle)
        yield "MemoryUsedBytes", "", _MEBI * _number(memory, "vram_used")
        yield "MemoryTotalBytes", "", _MEBI * _number(memory, "vram_total")

    def _power(self, _: float) -> Values:
        power = self._smi.amdsmi_get_power_info(self._handle)
        yield "PowerWatts", "", _number(power, "socket_power", "current_socket_power", "average_socket_power")

    def _power_limit(self, _: float) -> Values:
        limit = _number(self._smi.amdsmi_get_power_info(self._handle), "power_limit")
        yield "PowerLimitWatts", "", limit / 1e6 if limit >= _MICROWATTS_FROM else limit

    def _temperature(self, _: float) -> Values:
        smi = self._smi
        kinds = smi.AmdSmiTemperatureType
        value = smi.amdsmi_get_temp_metric(self._handle, kinds.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT)
        yield "TemperatureCelsius", "", _number({"": value}, "")

    def _clock(self, _: float) -> Values:
        clock = self._smi.amdsmi_get_clock_info(self._handle, self._smi.AmdSmiClkType.GFX)
        yield "SMClockMHz", "", _number(clock, "clk", "cur_clk")
        yield "SMClockMaximumMHz", "", _number(clock, "max_clk")

    def _pcie_link(self, _: float) -> Values:
        pcie = self._smi.amdsmi_get_pcie_info(self._handle)
        yield "PCIeLinkWidth", "", _number(pcie["pcie_metric"], "pcie_width")
        yield "PCIeLinkWidthMaximum", "", _number(pcie["pcie_static"], "max_pcie_width")

    def _ecc(self, _: float) -> Values:
        errors = self._smi.amdsmi_get_gpu_total_ecc_count(self._handle)
        yield "ECCCorrectedErrors", "", _number(errors, "correctable_count")
        yield "ECCUncorrectedErrors", "", _number(errors, "uncorrectable_count")


def _number(answer: Any, *names: str) -> float:
    """Return the first number of these fields; the library writes "N/A" or the largest integer for none."""
    for name in names:
        value: Optional[object] = answer.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 0xFFFFFFFF:
            return float(value)
    raise UnavailableError(f"{' and '.join(names) or 'the value'} not available")
