"""A kernel's precision, and its use of tensor cores, by its name."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class Precision(StrEnum):
    FP8 = "fp8"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"
    FP64 = "fp64"
    FP32 = "fp32"
    INTEGER = "integer"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class KernelName:
    """What is known of a kernel; ``eligible`` kernels could use tensor cores."""

    precision: Precision
    tensor_core: bool
    eligible: bool


def _any(*words: str) -> re.Pattern[str]:
    return re.compile("|".join(words), re.IGNORECASE)


_PATTERNS = (
    (Precision.FP8, _any("mxe4m3", "mxe2m1", "mxfp4", "nvfp4", "e4m3", "e5m2", "float8", "fp8", "qmma")),
    (Precision.TF32, _any("tf32", "tfloat32")),
    # An elementwise BF16 kernel names float, too, in its functor: BF16 and FP16 come before FP32.
    (Precision.BF16, _any("bf16", "bfloat16", "DF16b", r"Cijk_.*_BBS")),
    (
        Precision.FP16,
        _any(
            r"(?<![a-z0-9])f16(?![0-9])", "f16f16", "f16f32", "fp16", "h884", "h1688", "h16816", "hgemm", r"\bhalf\b",
            "half_t", "__half", "c10::half", "c104half", r"Cijk_.*_HHS",
        ),
    ),
    # MIOpen's igemm_fwd_gtcx3 is an implicit gemm of any type.
    (
        Precision.INT8,
        _any("i8816", r"(?<![a-z])imma", r"igemm(?!_(?:fwd|bwd|wrw|upd)_)", "s8s8", "int8", r"Cijk_.*_I8"),
    ),
)  # fmt: skip
_IMPLICIT_TF32 = _any(r"(?<!cutlass_75_)tensorop_s1688(gemm|fprop|dgrad|wgrad)")
_NAMED = (
    (Precision.FP64, _any("dgemm", "d884", "fp64", "f64f64")),
    (Precision.FP32, _any("sgemm", "scudnn", "ffma", "simt", "fp32", "f32f32", r"Cijk_.*_SB")),
)
_LAMBDA = re.compile(r"\{lambda\([^(){}]*?\b(double|float)\b")
"""The type that a kernel's innermost function takes, which is that of its elements."""

_FLOATING = re.compile(r"\b(double|float)[24]?\b")
_INTEGER = _any(r"\blong\b", r"\bint\b", r"\bunsigned char\b", r"\bbool\b")
_TYPES = {"double": Precision.FP64, "float": Precision.FP32}
_TENSOR_CORE = _any(
    "s884", "h884", "1688", "16816", "i8816", "hmma", "tensorop_", "xmma_(gemm|fprop|dgrad|wgrad)", "sm90_xmma",
    "nvjet", "gmma", "wmma", "fmha", "flash_fwd", "flash_bwd",
)  # fmt: skip
_MATRIX_CORE = _any("MI16x16", "MI32x32", "xdl", "mfma", "gtcx")
"""Of AMD, which compute in FP32, too."""

_ELIGIBLE = _any(
    "(?<!fb)gemm", "conv", "cudnn.*(dgrad|wgrad|fprop)", "attention", "flash", "fmha", "sdpa", "nvjet", "Cijk_",
    "scudnn", "winograd", "dgrad", "wgrad", "fprop",
)  # fmt: skip
_COMMUNICATION = _any(
    "nccl|rccl|hccl|oneccl|msccl", "nvshmem", r"deep_ep::(?:\w+::)*\w*(?:dispatch|combine)", "cross_device_reduce",
    "(?:one|two)_?shot_?all_?reduce", "all_?reduce_?(?:one|two)_?shot", "multimem_", "trtllm_allreduce",
    "allreduce_fusion_kernel", "quick_?all_?reduce", "rocshmem", "mscclpp",
)  # fmt: skip
_NOT_ELIGIBLE = _any(
    "nchwToNhwc", "nhwcToNchw", "computeOffsets", "elementwise", "convert_", "copy", "quantiz", "qparam", "rowwise_to_",
)  # fmt: skip
_CORE_ALWAYS = frozenset({Precision.FP8, Precision.TF32, Precision.INT8})
_CORE_WHERE_ELIGIBLE = frozenset({Precision.BF16, Precision.FP16})
_CORE_NEVER = frozenset({Precision.FP32, Precision.FP64})
_BY_TYPE = (
    ("bfloat16", Precision.BF16),
    ("half", Precision.FP16),
    ("float8", Precision.FP8),
    ("double", Precision.FP64),
    ("float", Precision.FP32),
)


@lru_cache(maxsize=4_096)
def communicates(name: str) -> bool:
    return _COMMUNICATION.search(name) is not None


@lru_cache(maxsize=16_384)
def classify(name: str, operand: str = "") -> KernelName:
    """Return what a kernel's name says; ``operand`` is the first floating type of its operator, if that is known."""
    works = not _NOT_ELIGIBLE.search(name)
    eligible = works and bool(_ELIGIBLE.search(name))
    precision = _from_name(name)
    if precision is Precision.UNKNOWN and operand:
        lowered = operand.lower()
        precision = next((found for word, found in _BY_TYPE if word in lowered), Precision.UNKNOWN)
        if precision is Precision.FP32 and "nvjet" in name:
            precision = Precision.TF32
    core = works and _on_tensor_cores(name, precision, eligible)
    return KernelName(precision, core, eligible or core)


def _on_tensor_cores(name: str, precision: Precision, eligible: bool) -> bool:
    if precision in _CORE_ALWAYS or (eligible and precision in _CORE_WHERE_ELIGIBLE):
        return True
    named = precision not in _CORE_NEVER and _TENSOR_CORE.search(name) is not None
    return named or _MATRIX_CORE.search(name) is not None


def _from_name(name: str) -> Precision:
    for precision, pattern in _PATTERNS:
        if pattern.search(name):
            return precision
    if _IMPLICIT_TF32.search(name):
        return Precision.TF32
    for precision, pattern in _NAMED:
        if pattern.search(name):
            return precision
    inner = _LAMBDA.findall(name)
    if inner:
        return _TYPES[inner[-1]]
    floating = _FLOATING.search(name)
    if floating:
        return _TYPES[floating[1]]
    return Precision.INTEGER if _INTEGER.search(name) else Precision.UNKNOWN
