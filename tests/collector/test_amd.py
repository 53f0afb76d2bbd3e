"""AMD GPUs by ``amdsmi``: series have the names of NVIDIA's, and what the library does not have has no line."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from trainguard_collector.amd import find_amd
from trainguard_collector.metrics import Device


class AmdSmiLibraryError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.err_code = code


def library(**answers: Callable[..., Any]) -> Any:
    """Return a stand-in for ``amdsmi`` with two GPUs."""
    kinds = SimpleNamespace(HOTSPOT=2)
    usual: dict[str, Any] = {
        "amdsmi_init": lambda: None,
        "amdsmi_get_processor_handles": lambda: [0, 1],
        "amdsmi_get_gpu_activity": lambda gpu: {"gfx_activity": 90 + gpu, "umc_activity": 40, "mm_activity": "N/A"},
        "amdsmi_get_gpu_vram_usage": lambda _: {"vram_total": 196_288, "vram_used": 1_024},
        "amdsmi_get_power_info": lambda _: {"current_socket_power": "N/A", "average_socket_power": 612},
        "amdsmi_get_temp_metric": lambda *_: 66,
        "amdsmi_get_clock_info": lambda *_: {"clk": 2_000, "max_clk": 2_100},
        "amdsmi_get_pcie_info": lambda _: {"pcie_metric": {"pcie_width": 16}, "pcie_static": {"max_pcie_width": 16}},
        "amdsmi_get_gpu_total_ecc_count": lambda _: {"correctable_count": 3, "uncorrectable_count": 1},
        "AmdSmiTemperatureType": kinds,
        "AmdSmiTemperatureMetric": SimpleNamespace(CURRENT=0),
        "AmdSmiClkType": SimpleNamespace(GFX=0),
    }
    return SimpleNamespace(**{**usual, **answers})


def _power(limit: int, _: int) -> dict[str, int]:
    return {"socket_power": 1, "power_limit": limit}


def read(devices: list[Device]) -> dict[tuple[str, str], float]:
    samples = [sample for device in devices for sample in device.read(1.0, with_slow=True)]
    return {(sample.name, sample.dimension): sample.value for sample in samples}


def test_amd_gpus_have_the_usual_series_names_and_units() -> None:
    found = read(find_amd({}, library()))
    assert found["gpu1", "GPUUtilization"] == 91.0
    assert found["gpu0", "GPUMemoryUtilization"] == 40.0
    assert found["gpu0.MemoryUsedBytes", ""] == 2.0**30
    assert found["gpu0.PowerWatts", ""] == 612.0
    assert found["gpu0.TemperatureCelsius", ""] == 66.0
    assert (found["gpu0.SMClockMHz", ""], found["gpu0.SMClockMaximumMHz", ""]) == (2_000.0, 2_100.0)
    assert found["gpu0.ECCUncorrectedErrors", ""] == 1.0
    assert found["gpu0.PCIeLinkWidth", ""] == 16.0
    assert ("gpu0.Lost", "") not in found, "the library has no error for a GPU that is gone"


def test_power_limit_is_in_watts_for_any_driver_version() -> None:
    for limit in (750, 750_000_000):
        limited = partial(_power, limit)
        smi = library(amdsmi_get_power_info=limited)
        assert read(find_amd({}, smi))["gpu0.PowerLimitWatts", ""] == 750.0


def test_missing_amd_metrics_have_no_line_and_others_do() -> None:
    def refuse(gpu: int) -> Any:
        raise AmdSmiLibraryError(2)

    faults: dict[str, str] = {}
    smi = library(
        amdsmi_get_gpu_vram_usage=refuse,
        amdsmi_get_gpu_activity=lambda _: {"gfx_activity": 12, "umc_activity": 0xFFFFFFFF},
    )
    found = read(find_amd(faults, smi))
    assert found["gpu0", "GPUUtilization"] == 12.0
    assert ("gpu0", "GPUMemoryUtilization") not in found
    assert ("gpu0.MemoryUsedBytes", "") not in found
    assert faults["gpu0.Memory"] == "error 2"


def test_missing_amd_driver_gives_no_gpus_and_a_reason() -> None:
    def fail() -> None:
        raise AmdSmiLibraryError(34)

    faults: dict[str, str] = {}
    assert find_amd(faults, library(amdsmi_init=fail)) == []
    assert faults == {"amdsmi": "error 34"}


def test_given_no_library_when_looked_for_then_nothing_is_said() -> None:
    faults: dict[str, str] = {}
    assert (find_amd(faults), faults) == ([], {})
