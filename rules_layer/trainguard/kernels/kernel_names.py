"""What a kernel's name says of its precision, and of whether it uses tensor cores."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class Precision(StrEnum):
    """The type that a kernel computes in."""

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
    (Precision.TF32, _any("tf32f32", "_tf32_", "s1688.*tf32", "tf32")),
    # An elementwise BF16 kernel names float, too, in its functor: BF16 and FP16 come before FP32.
    (Precision.BF16, _any("bf16", "bfloat16", "DF16b", r"Cijk_.*_BBS")),
    (
        Precision.FP16,
        _any("f16f16", "fp16", "h884", "h1688", "h16816", "hgemm", r"\bhalf\b", "__half", "c10::half", r"Cijk_.*_HHS"),
    ),
    (Precision.INT8, _any("i8816", "imma", "igemm", "s8s8", "int8", r"Cijk_.*_I8")),
)
_IMPLICIT_TF32 = _any(r"tensorop_s1688(gemm|fprop|dgrad|wgrad)")
_LATER = (
    (Precision.FP64, _any("dgemm", r"\bdouble\b", "d884")),
    (Precision.FP32, _any("sgemm", "scudnn", "ffma", "simt", r"\bfloat\b", r"\bfloat[24]\b", r"Cijk_.*_SB")),
    (Precision.INTEGER, _any(r"\blong\b", r"\bint\b", r"\bunsigned char\b", r"\bbool\b")),
)
_TENSOR_CORE = _any(
    "s884", "h884", "1688", "16816", "i8816", "hmma", "tensorop_", "xmma_gemm", "sm90_xmma", "nvjet", "gmma", "fmha",
    "flash_fwd", "flash_bwd", "MI16x16", "MI32x32", "xdl", "mfma",
)  # fmt: skip
_ELIGIBLE = _any(
    "gemm", "conv", "cudnn.*(dgrad|wgrad|fprop)", "attention", "flash", "fmha", "nvjet", "Cijk_", "scudnn", "winograd",
    "dgrad", "wgrad", "fprop",
)  # fmt: skip
_COMMUNICATION = re.compile(r"nccl|rccl|hccl|oneccl|msccl", re.IGNORECASE)
_NOT_ELIGIBLE = _any("nchwToNhwc", "nhwcToNchw", "computeOffsets", "elementwise", "convert_", "copy")
_BY_TYPE = (
    ("bfloat16", Precision.BF16),
    ("half", Precision.FP16),
    ("float8", Precision.FP8),
    ("double", Precision.FP64),
    ("float", Precision.FP32),
)


@lru_cache(maxsize=4_096)
def communicates(name: str) -> bool:
    """Whether a kernel is of a library for collectives."""
    return _COMMUNICATION.search(name) is not None


@lru_cache(maxsize=16_384)
def classify(name: str, operand: str = "") -> KernelName:
    """Return what a kernel's name says; ``operand`` is the first floating type of its operator, if that is known."""
    eligible = bool(_ELIGIBLE.search(name)) and not _NOT_ELIGIBLE.search(name)
    core = bool(_TENSOR_CORE.search(name))
    precision = _from_name(name)
    if precision is Precision.UNKNOWN and operand:
        lowered = operand.lower()
        precision = next((found for word, found in _BY_TYPE if word in lowered), Precision.UNKNOWN)
    return KernelName(precision, core, eligible or core)


def _from_name(name: str) -> Precision:
    for precision, pattern in _PATTERNS:
        if pattern.search(name):
            return precision
    if _IMPLICIT_TF32.search(name):
        return Precision.TF32
    for precision, pattern in _LATER:
        if pattern.search(name):
            return precision
    return Precision.UNKNOWN
