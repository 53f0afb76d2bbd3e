"""A recording as PyTorch writes it on ROCm, where the trace of a GPU says less than CUPTI's.

As in traces of an MI250 and an MI300: kernels have no operator and no blocks, copies neither sizes nor whether their
memory is pinned, kernels of collectives are called alike, and copies that wait are calls of their own.
"""

import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

from tests.verdicts.kernels.machine import Recording
from trainguard.kernels.columns import Trace
from trainguard.kernels.readers.kineto import read_trace

_KERNELS = (
    (re.compile(r"ncclDevKernel_\w+\(.*"), "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"),
    (re.compile(r"ampere_sgemm\w*"), "Cijk_Alik_Bljk_SB_MT128x128x16_MI32x32x2x1_SN_1LDSB0_GRVW4"),
    (re.compile(r"sm80_xmma_(\w+?)_implicit_gemm_f32\w*"), r"igemm_\1_gtcx3_nhwc_fp32_bx0_ex1_bt128x128x16"),
    (re.compile(r"(?:cutlass|ampere|nvjet|sm\d0_)\w*gemm\w*"), "Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN"),
    (re.compile(r"cudnn::ops::(nchwToNhwc|nhwcToNchw)\w*<.*"), "batched_transpose_32x32_half"),
    (re.compile(r"cub::"), "rocprim::"),
)  # fmt: skip
_PASSES = {"fprop": "fwd", "dgrad": "bwd", "wgrad": "wrw"}
_CALLS = {"hipMemcpyAsync": "hipMemcpyWithStream"}
_NOT_SAID = ("External id", "blocks per SM", "bytes")


def in_rocm(recording: Recording, folder: Path) -> Trace:
    """Return the trace of a rank, read."""
    waiting = {
        each["args"]["correlation"]
        for each in recording.events
        if each.get("cat") == "gpu_memcpy" and "Pageable" in each["name"]
    }
    events = [_row(each, waiting) for each in recording.events]
    text = replace(recording, events=events).in_pytorch()
    return read_trace(f"{folder.name}/rank{recording.rank}.json", BytesIO(text))


def _row(event: dict[str, Any], waiting: set[int]) -> dict[str, Any]:
    args, name, category = event.get("args", {}), event["name"], event.get("cat")
    if category == "cuda_runtime" and args.get("correlation") in waiting:
        return event | {"name": _CALLS.get(name, name)}
    if category not in ("kernel", "gpu_memcpy"):
        return event
    kept = {key: value for key, value in args.items() if key not in _NOT_SAID}
    if category == "gpu_memcpy":
        return event | {"name": re.sub("Pinned|Pageable", "Host", name), "args": kept}
    return event | {"name": _renamed(name), "args": kept | {"kind": "Dispatch Kernel"}}


def _renamed(name: str) -> str:
    for pattern, given in _KERNELS:
        name = pattern.sub(given, name)
    for ours, theirs in _PASSES.items():
        name = name.replace(f"igemm_{ours}", f"igemm_{theirs}")
    return name
