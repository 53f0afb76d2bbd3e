"""What accelerators can do at most, without sparsity, by their makers; what is not in the table has no peaks."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from trainguard.core.text import one_line
from trainguard.kernels.columns import Gpu
from trainguard.kernels.device_entries import PeaksEntry
from trainguard.kernels.names.kernel_names import Precision

AS_OF = "2026-11-28"
_GIB = 1 << 30


def _row(source: str, memory: float, cache: float, link: float | None, **tflops: float) -> PeaksEntry:
    known = {Precision(name).value: value for name, value in tflops.items()}
    return PeaksEntry(
        gpu="",
        tflops=known,
        memory_gb_per_s=memory,
        cache_mb=cache,
        as_of=AS_OF,
        link_gb_per_s=link,
        source=source,
        confirmed=source in _READ,
    )


# The maker's own figures, each with the data sheet that they are of; those of H200 are with sparsity.
_TENSORRT = "NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py"

_MI300_PAGE = "AMD ROCm documentation, gpu-arch/mi300"
_MI250_PAGE = "AMD ROCm documentation, gpu-arch/mi250"
_TRAINIUM = "AWS Neuron documentation, neuron-hardware/trainium"
_TRAINIUM2 = "AWS Neuron documentation, neuron-hardware/trainium2"
_TRAINIUM3 = "AWS Neuron documentation, neuron-hardware/trainium3"
# Documents of the makers that give these figures; of other rows a data sheet is named that others quote.
_READ = frozenset({_TENSORRT, _MI300_PAGE, _MI250_PAGE, _TRAINIUM, _TRAINIUM2, _TRAINIUM3})

_HOPPER = {"fp64": 67.0, "fp32": 67.0, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4, "fp8": 1978.9, "int8": 1978.9}
_HOPPER_NVL = {"fp64": 60.0, "fp32": 60.0, "tf32": 417.5, "bf16": 835.5, "fp16": 835.5, "fp8": 1670.5, "int8": 1670.5}
_H100_PCIE = {"fp64": 51, "fp32": 51, "tf32": 378, "bf16": 756, "fp16": 756, "fp8": 1513, "int8": 1513}
_H20 = {"fp64": 1, "fp32": 44, "tf32": 74, "bf16": 147, "fp16": 147, "fp8": 293, "int8": 293}
_AMPERE = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0, "int8": 624.0}
_A30 = {"fp64": 10.3, "fp32": 10.3, "tf32": 82, "bf16": 165, "fp16": 165, "int8": 330}
_A40 = {"fp32": 37.4, "tf32": 74.8, "bf16": 149.7, "fp16": 149.7, "int8": 299.3}
_A10G = {"fp64": 0.5, "fp32": 35, "tf32": 35, "bf16": 70, "fp16": 70, "int8": 140}
_A10 = {"fp32": 31.2, "tf32": 62.5, "bf16": 125, "fp16": 125, "int8": 250}
_GB300 = {"fp64": 1.3, "fp32": 80, "tf32": 1250, "bf16": 2500, "fp16": 2500, "fp8": 5000, "fp4": 15000, "int8": 165}
_B300 = {"fp64": 1.25, "fp32": 75, "tf32": 1125, "bf16": 2250, "fp16": 2250, "fp8": 4500, "fp4": 13500}
_GB200 = {"fp64": 40, "fp32": 80, "tf32": 1250, "bf16": 2500, "fp16": 2500, "fp8": 5000, "fp4": 10000, "int8": 5000}
_B200 = {"fp64": 37, "fp32": 75, "tf32": 1125, "bf16": 2250, "fp16": 2250, "fp8": 4500, "fp4": 9000, "int8": 4500}
_PRO_6000 = {"fp32": 126, "tf32": 251.9, "bf16": 503.8, "fp16": 503.8, "fp8": 1007.6, "fp4": 2015.2, "int8": 1007.6}
_PRO_6000_MAX_Q = {"fp32": 110, "tf32": 219, "bf16": 438.9, "fp16": 438.9, "fp8": 877.8, "fp4": 1755.7, "int8": 877.8}
_PRO_6000_SERVER = {"fp32": 120, "tf32": 250, "bf16": 500, "fp16": 500, "fp8": 1000, "fp4": 2000, "int8": 1000}
_ADA_L40S = {"fp64": 1.4, "fp32": 91.6, "tf32": 183.0, "bf16": 362.0, "fp16": 362.0, "fp8": 733.0, "int8": 733.0}
_L40 = {"fp64": 1.4, "fp32": 90.5, "tf32": 90.5, "bf16": 181, "fp16": 181, "fp8": 362, "int8": 362}
_L20 = {"fp32": 59.8, "tf32": 60, "bf16": 119, "fp16": 119, "fp8": 238, "int8": 238}
_L4 = {"fp64": 0.5, "fp32": 30.3, "tf32": 60, "bf16": 121, "fp16": 121, "fp8": 242, "int8": 242}
_MI355X = {"fp64": 78.6, "fp32": 157.3, "bf16": 2516.6, "fp16": 2516.6, "fp8": 5033.2, "fp4": 10066.3, "int8": 5033.2}
_MI350X = {"fp64": 72.1, "fp32": 144.2, "bf16": 2306.9, "fp16": 2306.9, "fp8": 4613.7, "fp4": 9227.5, "int8": 4613.7}
_CDNA3 = {"fp64": 163.4, "fp32": 163.4, "tf32": 653.7, "bf16": 1307.4, "fp16": 1307.4, "fp8": 2614.9, "int8": 2614.9}
_MI300A = {"fp64": 122.6, "fp32": 122.6, "tf32": 490.3, "bf16": 980.6, "fp16": 980.6, "fp8": 1961.2, "int8": 1961.2}
_MI250X = {"fp64": 47.9, "fp32": 47.9, "bf16": 191.5, "fp16": 191.5, "int8": 191.5}
_MI250 = {"fp64": 45.3, "fp32": 45.3, "bf16": 181, "fp16": 181, "int8": 181}
_TRN1 = {"fp32": 47.5, "tf32": 190, "bf16": 190, "fp16": 190, "fp8": 190, "int8": 380}
_TRN2 = {"fp32": 181, "tf32": 667, "bf16": 667, "fp16": 667, "fp8": 1299}
_TRN3 = {"fp32": 183, "tf32": 671, "bf16": 671, "fp16": 671, "fp8": 2517, "fp4": 2517}
_BLACKWELL = "NVIDIA Blackwell Architecture Technical Brief"
_ULTRA = "NVIDIA GB300 NVL72 and HGX B300 data sheets"
_PRO = "NVIDIA RTX PRO 6000 Blackwell data sheets"
_TABLE: tuple[tuple[str, int, PeaksEntry], ...] = (
    # A pattern of the name, the least memory in GiB, and the peaks. The first line that fits is taken. Bridges of PCIe
    # and NVL boards join some GPUs of a node alone: these have no link to compare with.
    (r"\bGB300\b", 0, _row(_ULTRA, 8000, 126, 900, **_GB300)),
    (r"\bB300\b", 0, _row(_ULTRA, 8000, 126, 900, **_B300)),
    (r"\bGB200\b", 0, _row(_BLACKWELL, 8000, 126, 900, **_GB200)),
    (r"\bB200\b", 0, _row(_BLACKWELL, 8000, 126, 900, **_B200)),
    (r"\bRTX PRO 6000\b.*Max-Q", 0, _row(_PRO, 1792, 128, None, **_PRO_6000_MAX_Q)),
    (r"\bRTX PRO 6000\b.*Server", 0, _row(_PRO, 1597, 128, None, **_PRO_6000_SERVER)),
    (r"\bRTX PRO 6000\b", 0, _row(_PRO, 1792, 128, None, **_PRO_6000)),
    (r"\bGH200\b", 100, _row("NVIDIA GH200 data sheet", 4900, 60, 450, **_HOPPER)),
    (r"\bGH200\b", 0, _row("NVIDIA GH200 data sheet", 4000, 60, 450, **_HOPPER)),
    (r"\bH200 NVL\b", 0, _row(_TENSORRT, 4800, 50, None, **_HOPPER_NVL)),
    (r"\bH200\b", 0, _row(_TENSORRT, 4800, 50, 450, **_HOPPER)),
    (r"\bH20\b", 0, _row(_TENSORRT, 4000, 60, 450, **_H20)),
    (r"\bH100 NVL\b", 0, _row("NVIDIA H100 data sheet", 3900, 50, None, **_HOPPER_NVL)),
    (r"\bH100 PCIe\b", 0, _row(_TENSORRT, 2000, 50, None, **_H100_PCIE)),
    (r"\bH100\b", 0, _row(_TENSORRT, 3350, 50, 450, **_HOPPER)),
    (r"\bA100.*PCIe", 60, _row(_TENSORRT, 1935, 40, None, **_AMPERE)),
    (r"\bA100.*PCIe", 0, _row(_TENSORRT, 1555, 40, None, **_AMPERE)),
    (r"\bA100\b", 60, _row(_TENSORRT, 2039, 40, 300, **_AMPERE)),
    (r"\bA100\b", 0, _row(_TENSORRT, 1555, 40, 300, **_AMPERE)),
    (r"\bA40\b", 0, _row(_TENSORRT, 696, 6, None, **_A40)),
    (r"\bA30\b", 0, _row(_TENSORRT, 933, 24, None, **_A30)),
    (r"\bA10G\b", 0, _row(_TENSORRT, 600, 6, None, **_A10G)),
    (r"\bA10\b", 0, _row(_TENSORRT, 600, 6, None, **_A10)),
    (r"\bL40S\b", 0, _row(_TENSORRT, 864, 96, None, **_ADA_L40S)),
    (r"\bL40\b", 0, _row(_TENSORRT, 864, 96, None, **_L40)),
    (r"\bL20\b", 0, _row(_TENSORRT, 864, 96, None, **_L20)),
    (r"\bL4\b", 0, _row(_TENSORRT, 300, 48, None, **_L4)),
    (r"\bT4\b", 0, _row("NVIDIA T4 data sheet", 320, 4, None, fp64=0.25, fp32=8.1, fp16=65, int8=130)),
    (r"\bV100.*PCIE", 0, _row("NVIDIA V100 data sheet", 900, 6, None, fp64=7, fp32=14, fp16=112)),
    (r"\bV100\b", 0, _row("NVIDIA V100 data sheet", 900, 6, 150, fp64=7.8, fp32=15.7, fp16=125)),
    (r"\bP100.*PCIE", 0, _row("NVIDIA P100 data sheet", 732, 4, None, fp64=4.7, fp32=9.3, fp16=18.7)),
    (r"\bP100\b", 0, _row("NVIDIA P100 data sheet", 732, 4, 80, fp64=5.3, fp32=10.6, fp16=21.2)),
    (r"\bMI355X\b", 0, _row("AMD Instinct MI355X data sheet", 8000, 256, 537.6, **_MI355X)),
    (r"\bMI350X\b", 0, _row("AMD Instinct MI350X data sheet", 8000, 256, 537.6, **_MI350X)),
    (r"\bMI325X\b", 0, _row("AMD Instinct MI325X data sheet", 6000, 256, 448, **_CDNA3)),
    # Seven links of 16 lanes at 32 GT/s, in one direction: Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_xgmi.c.
    (r"\bMI300X\b", 0, _row(_MI300_PAGE, 5300, 256, 448, **_CDNA3)),
    (r"\bMI300A\b", 0, _row("AMD Instinct MI300A data sheet", 5300, 256, None, **_MI300A)),
    # A device of these is one of the two dies: half of the whole.
    (r"\bMI250X\b", 0, _row("AMD Instinct MI250X data sheet", 1638, 8, None, **_MI250X)),
    (r"\bMI250\b", 0, _row(_MI250_PAGE, 1638, 8, None, **_MI250)),
    (r"\bTrainium ?3\b|\btrn3\b", 0, _row(_TRAINIUM3, 4900, 256, None, **_TRN3)),
    (r"\bTrainium ?2\b|\btrn2\b", 0, _row(_TRAINIUM2, 2900, 224, None, **_TRN2)),
    (r"\bTrainium ?1?\b|\btrn1\b", 0, _row(_TRAINIUM, 820, 48, None, **_TRN1)),
)


def peaks_of(gpu: Gpu) -> PeaksEntry | None:
    for pattern, least_gib, found in _TABLE:
        if re.search(pattern, gpu.name, re.IGNORECASE) and gpu.memory >= least_gib * _GIB:
            return replace(found, gpu=one_line(gpu.name))
    return None


def peaks_entry(gpus: Sequence[Gpu]) -> PeaksEntry | None:
    """Return what the GPU of a trace can do; None where it is unknown, or where there are several sorts."""
    return peaks_of(gpus[0]) if len({gpu.name for gpu in gpus}) == 1 else None


def link_share(gpus: Sequence[Gpu], group_size: int | None, bus: float | None) -> float | None:
    """Return 10^9 bytes a second as a share of the links within a node; None for groups larger than the node's GPUs."""
    peaks = peaks_entry(gpus)
    if bus is None or peaks is None or peaks.link_gb_per_s is None or (group_size or 0) > len(gpus):
        return None
    return round(bus / peaks.link_gb_per_s, 4)
