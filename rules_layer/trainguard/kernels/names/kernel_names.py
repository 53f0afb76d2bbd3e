"""A kernel's precision, and its use of tensor cores, by its name."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from trainguard.kernels.names.families import MATRIX, Core, RowFamily, any_of, sort_of


class Precision(StrEnum):
    FP4 = "fp4"
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
    family: RowFamily


_PATTERNS = (
    (Precision.FP4, any_of("nvfp4", "mxfp4", "e2m1", "(?<![a-z0-9])fp4", r"f4f4|a4w4", "float4_e2m1")),
    (
        Precision.FP8,
        any_of("mxe4m3", "mxfp8", "e4m3", "e5m2", "float8", "fp8", "qmma", "a8w8(?!.*int8)", "f8f8", "f8f6f4", "bf8"),
    ),
    (Precision.TF32, any_of("tf32", "tfloat32", "xf32")),
    # An elementwise BF16 kernel names float, too, in its functor: BF16 and FP16 come before FP32.
    (Precision.BF16, any_of("bf16", "bfloat16", "DF16b", "bhalf")),
    (
        Precision.FP16,
        any_of(
            r"(?<![a-z0-9])f16(?![0-9])", "f16f16", "f16f32", "fp16", "h884", "h1688", "h16816", "hgemm", r"\bhalf\b",
            "half_t", "__half", "c10::half", "c104half",
        ),
    ),
    # MIOpen's igemm_fwd_gtcx3 is an implicit gemm of any type.
    (
        Precision.INT8,
        any_of("i8816", r"(?<![a-z])imma", r"igemm(?!_(?:fwd|bwd|wrw|upd)_)", "s8s8", "int8"),
    ),
    (Precision.TF32, any_of(r"(?<!cutlass_75_)tensorop_s1688(gemm|fprop|dgrad|wgrad)")),
    (Precision.FP64, any_of("(?<![a-z])[dz]gemm", "d884", "fp64", "f64f64")),
    (
        Precision.FP32,
        any_of("(?<![a-z])g?[sc]gemm", "scudnn", "ffma", "simt", "fp32", "f32f32", r"(?<![a-z0-9])f32(?![0-9])"),
    ),
)  # fmt: skip
_16_BIT = any_of("bf16", "bfloat16", r"\bhalf\b", "half_t", "fp16")
# Products that unpack narrow weights and compute in the activations' 16 bits.
_WEIGHTS = any_of("marlin", "awq", "gptq", r"bf16x\w*fp[48]", r"fp16x\w*fp[48]", "wna16", "w4a16", "w8a16", "machete")

_TENSILE = re.compile(r"Cijk_A[a-z]+_B[a-z]+_(4xi8|I8|F8|B8|F4|S_?MX|SX|[HBSDX])")
# The first letters of a Tensile problem are the type of its inputs.
_TENSILE_TYPES = {
    "4xi8": Precision.INT8, "I8": Precision.INT8, "F8": Precision.FP8, "B8": Precision.FP8, "F4": Precision.FP4,
    "S_MX": Precision.TF32, "SMX": Precision.TF32, "SX": Precision.TF32, "X": Precision.TF32, "H": Precision.FP16,
    "B": Precision.BF16, "S": Precision.FP32, "D": Precision.FP64,
}  # fmt: skip

_NVJET = re.compile(r"nvjet_(?:sm\d+_)?([a-z])")
# The first letter of cuBLAS' nvjet is the type of its left matrix.
_NVJET_TYPES = {
    "h": Precision.FP16, "t": Precision.BF16, "s": Precision.TF32, "q": Precision.FP8, "r": Precision.FP8,
    "o": Precision.FP4, "d": Precision.FP64,
}  # fmt: skip

# The type that a kernel's innermost function takes, which is that of its elements.
_LAMBDA = re.compile(r"\{lambda\([^(){}]*?\b(double|float)\b")

# A copy that knows only the size of an element, whose other types are those of its indexes.
_OPAQUE = "OpaqueType<"

_FLOATING = re.compile(r"\b(double|float)[24]?\b")
_INTEGER = any_of(r"\blong\b", r"\bint\b", r"\bunsigned char\b", r"\bbool\b")
_TYPES = {"double": Precision.FP64, "float": Precision.FP32}
_TENSOR_CORE = any_of(
    "s884", "h884", "1688", "16816", "i8816", "hmma", "tensorop_", "xmma_(gemm|fprop|dgrad|wgrad)", "sm90_xmma",
    "nvjet", "gmma", "wmma", "fmha", "flash_?(?:fwd|bwd|attn|attention)", "tcgen05", "utcmma", "_tc_", "mma_sync",
)  # fmt: skip
# Of AMD, which compute in FP32, too; CUTLASS' attention of FP32, in three products of TF32; NVIDIA's FP64.
_MATRIX_CORE = any_of("MI16x16", "MI32x32", "xdl", "mfma", "gtcx", r"d884|dmma|fmha_cutlass[FB]_f32_\w+_sm(?:8|9)")

_CORE = frozenset({Precision.FP4, Precision.FP8, Precision.TF32, Precision.INT8, Precision.BF16, Precision.FP16})
_CORE_NEVER = frozenset({Precision.FP32, Precision.FP64})
_BY_TYPE = (
    ("bfloat16", Precision.BF16),
    ("half", Precision.FP16),
    ("float4", Precision.FP4),
    ("float8", Precision.FP8),
    ("double", Precision.FP64),
    ("float", Precision.FP32),
)


@lru_cache(maxsize=16_384)
def classify(name: str, operand: str = "") -> KernelName:
    """Return what a kernel's name says; ``operand`` is the first floating type of its operator, if that is known."""
    family, core = sort_of(name)
    precision = _precision(name, operand, family)
    on_cores = family in MATRIX and _on_tensor_cores(name, precision, core)
    could = family in MATRIX and core is not Core.NEVER and precision is not Precision.UNKNOWN
    return KernelName(precision, on_cores, could or on_cores, family)


def _on_tensor_cores(name: str, precision: Precision, core: Core) -> bool:
    if core is Core.NEVER:
        return False
    if core is Core.ALWAYS or precision in _CORE or _MATRIX_CORE.search(name):
        return True
    return precision not in _CORE_NEVER and _TENSOR_CORE.search(name) is not None


def _precision(name: str, operand: str, family: RowFamily) -> Precision:
    if (made := _TENSILE.search(name)) is not None:
        return _TENSILE_TYPES[made[1]]
    if (made := _NVJET.search(name)) is not None and made[1] in _NVJET_TYPES:
        return _NVJET_TYPES[made[1]]
    precision = _from_name(name)
    if family is RowFamily.GEMM and precision in _CORE and _WEIGHTS.search(name) and (found := _16_BIT.search(name)):
        return Precision.BF16 if found[0].lower().startswith("bf") else Precision.FP16
    if precision is Precision.UNKNOWN and operand:
        lowered = operand.lower()
        return next((found for word, found in _BY_TYPE if word in lowered), Precision.UNKNOWN)
    return precision


def _from_name(name: str) -> Precision:
    named = next((precision for precision, pattern in _PATTERNS if pattern.search(name)), None)
    if named is not None:
        return named
    inner = _LAMBDA.findall(name)
    if inner:
        return _TYPES[inner[-1]]
    if _OPAQUE in name:
        return Precision.UNKNOWN
    floating = _FLOATING.search(name)
    if floating:
        return _TYPES[floating[1]]
    return Precision.INTEGER if _INTEGER.search(name) else Precision.UNKNOWN
