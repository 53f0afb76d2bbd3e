"""AMD GPUs, by ``amdsmi`` where it is installed: it comes with ROCm and is no dependency."""

import importlib
import importlib.util
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Optional

from trainguard_collector.metrics import NEVER, PASSING, Device, Values

# Invalid argument, not supported, not implemented, no permission.
_NEVER = frozenset({1, 2, 3, 10})

_MEBI = 2.0**20
# Some versions give a power limit in watts, others in microwatts: no GPU takes 100 kW.
_MICROWATTS_FROM = 100_000.0


class UnavailableError(Exception):
    """The library gives "N/A" in the place of a value."""


def find_amd(faults: dict[str, str], library: Any = None, only: Sequence[str] = ()) -> list[Device]:
    """Return the AMD GPUs of the node; `faults` gets why there are none, where ``amdsmi`` is installed.

    ``only`` has numbers of GPUs; these alone count.
    """
    if library is None and importlib.util.find_spec("amdsmi") is None:
        return []
    try:
        smi = library or importlib.import_module("amdsmi")
        smi.amdsmi_init()
        found = enumerate(smi.amdsmi_get_processor_handles())
        handles = [handle for number, handle in found if not only or str(number) in only]
    except (Exception, SystemExit) as fault:
        faults["amdsmi"] = str(fault)[:200]
        return []
    devices = [Device(f"gpu{number}", faults, judge, knows_loss=False) for number in range(len(handles))]
    for handle, device in zip(handles, devices):
        device.about["hw.vendor"] = "AMD"
        with suppress(Exception):
            device.about["hw.id"] = str(smi.amdsmi_get_gpu_device_uuid(handle))
            device.about["hw.model"] = str(smi.amdsmi_get_gpu_asic_info(handle)["market_name"])
        _add_metrics(smi, handle, device)
    return devices


def judge(fault: Exception) -> str:
    """Return what an error of the library means; it has none for a GPU that is gone."""
    return NEVER if getattr(fault, "err_code", None) in _NEVER else PASSING


def _add_metrics(smi: Any, handle: Any, device: Device) -> None:
    def utilization(_: float) -> Values:
        activity = smi.amdsmi_get_gpu_activity(handle)
        yield "", "GPUUtilization", _number(activity, "gfx_activity")
        yield "", "GPUMemoryUtilization", _number(activity, "umc_activity")

    def memory(_: float) -> Values:
        vram = smi.amdsmi_get_gpu_vram_usage(handle)
        yield "MemoryUsedBytes", "", _MEBI * _number(vram, "vram_used")
        yield "MemoryTotalBytes", "", _MEBI * _number(vram, "vram_total")

    def power(_: float) -> Values:
        info = smi.amdsmi_get_power_info(handle)
        yield "PowerWatts", "", _number(info, "socket_power", "current_socket_power", "average_socket_power")

    def power_limit(_: float) -> Values:
        limit = _number(smi.amdsmi_get_power_info(handle), "power_limit")
        yield "PowerLimitWatts", "", limit / 1e6 if limit >= _MICROWATTS_FROM else limit

    def temperature(_: float) -> Values:
        kind = smi.AmdSmiTemperatureType.HOTSPOT
        value = smi.amdsmi_get_temp_metric(handle, kind, smi.AmdSmiTemperatureMetric.CURRENT)
        yield "TemperatureCelsius", "", _number({"": value}, "")

    def clock(_: float) -> Values:
        info = smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)
        yield "SMClockMHz", "", _number(info, "clk", "cur_clk")
        yield "SMClockMaximumMHz", "", _number(info, "max_clk")

    def pcie_link(_: float) -> Values:
        pcie = smi.amdsmi_get_pcie_info(handle)
        yield "PCIeLinkWidth", "", _number(pcie["pcie_metric"], "pcie_width")
        yield "PCIeLinkWidthMaximum", "", _number(pcie["pcie_static"], "max_pcie_width")

    def ecc(_: float) -> Values:
        errors = smi.amdsmi_get_gpu_total_ecc_count(handle)
        yield "ECCCorrectedErrors", "", _number(errors, "correctable_count")
        yield "ECCUncorrectedErrors", "", _number(errors, "uncorrectable_count")

    device.fast.update(Utilization=utilization, Memory=memory, Power=power)
    device.slow.update(PowerLimit=power_limit, Temperature=temperature, SMClock=clock, PCIeLink=pcie_link, ECC=ecc)


def _number(answer: Any, *names: str) -> float:
    """Return the first number of these fields; the library writes "N/A" or the largest integer for none."""
    for name in names:
        value: Optional[object] = answer.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 0xFFFFFFFF:
            return float(value)
    raise UnavailableError(f"{' and '.join(names) or 'the value'} not available")
