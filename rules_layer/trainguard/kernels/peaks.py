"""What GPUs can do at most, as their makers' data sheets say it: dense arithmetic by precision, memory, its cache."""

import re
from dataclasses import dataclass

from trainguard.kernels.columns import Gpu
from trainguard.kernels.kernel_names import Precision

AS_OF = "2026-11-23"
"""The date of the table."""

_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """TFLOP/s (for integers 10^12 operations a second) by precision, and memory in 10^9 bytes a second.

    ``cache_mb`` is the last cache before memory, in 10^6 bytes.
    """

    tflops: dict[Precision, float]
    memory_gb_per_s: float
    cache_mb: float


def _peaks(memory: float, cache: float, **tflops: float) -> Peaks:
    known = {Precision(name): value for name, value in tflops.items()}
    return Peaks(tflops=known, memory_gb_per_s=memory, cache_mb=cache)


_HOPPER = {"fp64": 67.0, "fp32": 67.0, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4, "fp8": 1978.9, "int8": 1978.9}
_HOPPER_NVL = {"fp64": 60.0, "fp32": 60.0, "tf32": 417.5, "bf16": 835.5, "fp16": 835.5, "fp8": 1670.5, "int8": 1670.5}
_AMPERE = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0, "int8": 624.0}
_CDNA3 = {"fp64": 163.4, "fp32": 163.4, "tf32": 653.7, "bf16": 1307.4, "fp16": 1307.4, "fp8": 2614.9, "int8": 2614.9}
_ADA_L40S = {"fp64": 1.4, "fp32": 91.6, "tf32": 183.0, "bf16": 362.0, "fp16": 362.0, "fp8": 733.0, "int8": 733.0}
_TABLE: tuple[tuple[str, int, Peaks], ...] = (
    # A pattern of the name, the least memory in GiB, and the peaks. The first line that fits is taken.
    (r"\bB300\b", 0, _peaks(8000, 126, fp64=1.25, fp32=75, tf32=1125, bf16=2250, fp16=2250, fp8=4500)),
    (r"\bGB200\b", 0, _peaks(8000, 126, fp64=40, fp32=80, tf32=1250, bf16=2500, fp16=2500, fp8=5000, int8=5000)),
    (r"\bB200\b", 0, _peaks(8000, 126, fp64=37, fp32=75, tf32=1125, bf16=2250, fp16=2250, fp8=4500, int8=4500)),
    (r"\bH200 NVL\b", 0, _peaks(4800, 50, **_HOPPER_NVL)),
    (r"\bH200\b", 0, _peaks(4800, 50, **_HOPPER)),
    (r"\bH100 NVL\b", 0, _peaks(3900, 50, **_HOPPER_NVL)),
    (r"\bH100 PCIe\b", 0, _peaks(2000, 50, fp64=51, fp32=51, tf32=378, bf16=756, fp16=756, fp8=1513, int8=1513)),
    (r"\bH100\b", 0, _peaks(3350, 50, **_HOPPER)),
    (r"\bA100.*PCIe", 60, _peaks(1935, 40, **_AMPERE)),
    (r"\bA100\b", 60, _peaks(2039, 40, **_AMPERE)),
    (r"\bA100\b", 0, _peaks(1555, 40, **_AMPERE)),
    (r"\bA10G\b", 0, _peaks(600, 6, fp64=0.5, fp32=35, tf32=35, bf16=70, fp16=70, int8=140)),
    (r"\bL40S\b", 0, _peaks(864, 96, **_ADA_L40S)),
    (r"\bL40\b", 0, _peaks(864, 96, fp64=1.4, fp32=90.5, tf32=90.5, bf16=181, fp16=181, fp8=362, int8=362)),
    (r"\bL4\b", 0, _peaks(300, 48, fp64=0.5, fp32=30.3, tf32=60, bf16=121, fp16=121, fp8=242, int8=242)),
    (r"\bT4\b", 0, _peaks(320, 4, fp64=0.25, fp32=8.1, fp16=65, int8=130)),
    (r"\bV100.*PCIE", 0, _peaks(900, 6, fp64=7, fp32=14, fp16=112)),
    (r"\bV100\b", 0, _peaks(900, 6, fp64=7.8, fp32=15.7, fp16=125)),
    (r"\bP100.*PCIE", 0, _peaks(732, 4, fp64=4.7, fp32=9.3, fp16=18.7)),
    (r"\bP100\b", 0, _peaks(732, 4, fp64=5.3, fp32=10.6, fp16=21.2)),
    (r"\bMI325X\b", 0, _peaks(6000, 256, **_CDNA3)),
    (r"\bMI300X\b", 0, _peaks(5300, 256, **_CDNA3)),
    # A device of these is one of the two dies: half of the data sheet.
    (r"\bMI250X\b", 0, _peaks(1638, 8, fp64=47.9, fp32=47.9, bf16=191.5, fp16=191.5, int8=191.5)),
    (r"\bMI250\b", 0, _peaks(1638, 8, fp64=45.3, fp32=45.3, bf16=181, fp16=181, int8=181)),
)


def peaks_of(gpu: Gpu) -> Peaks | None:
    """Return what a GPU can do; None for one that the table does not have."""
    for pattern, least_gib, found in _TABLE:
        if re.search(pattern, gpu.name, re.IGNORECASE) and gpu.memory >= least_gib * _GIB:
            return found
    return None
