"""Rules on how kernels compute: tensor cores, precision, filled multiprocessors."""

import re
from collections.abc import Sequence

import numpy as np

from trainguard.finding import Severity
from trainguard.kernels.columns import Ints
from trainguard.kernels.findings.finding import FAMILY, Judged, KernelFinding
from trainguard.kernels.findings.text import KernelKind, portion, said
from trainguard.kernels.kernel_names import Precision
from trainguard.kernels.kernel_table import KernelLine

VOLTA, AMPERE = (7, 0), (8, 0)
ELIGIBLE_LEAST, CORES_ENOUGH = 0.1, 0.5
FP32_MOST = 0.5
UNDERFILLED_MOST = 0.2
_AMD = re.compile(r"AMD|Instinct|Radeon", re.IGNORECASE)
_AMD_BF16 = re.compile(r"\bMI(?:[12]\d\d|3\d\d)[AX]?\b", re.IGNORECASE)
"""ROCm says 9.0 of GPUs with and without matrix cores, so they are known by their names: MI100 and later have them."""


def tensor_cores_idle(judged: Judged) -> KernelFinding | None:
    """Fire where a GPU has tensor cores, and less than half of the time that could be on them is."""
    table = judged.table
    if _capability(judged) < VOLTA or not table.compute_ns or table.eligible_ns < ELIGIBLE_LEAST * table.compute_ns:
        return None
    used = table.tensor_core_ns / table.eligible_ns
    if used >= CORES_ENOUGH:
        return None
    rest = _outside_tensor_cores(judged)
    idle = sum(line.total_ns for line in rest)
    return KernelFinding(
        id=FAMILY + "TensorCoresIdle",
        severity=Severity.MEDIUM if used == 0 else Severity.LOW,
        value=round(used, 4),
        threshold=CORES_ENOUGH,
        **said(KernelKind.TENSOR_CORES_IDLE, portion("tensor_core_share", used, CORES_ENOUGH)),
        evidence=judged.lines(rest),
        gain=judged.gain(min(idle / judged.metrics.counted, judged.metrics.compute_ns) / 2),
    )


def low_precision_unused(judged: Judged) -> KernelFinding | None:
    """Fire where a GPU computes in BF16 and TF32, and most of the time is in FP32."""
    table = judged.table
    if not _has_bf16(judged) or not table.compute_ns:
        return None
    in_fp32 = table.by_precision().get(Precision.FP32, 0)
    share = in_fp32 / table.compute_ns
    if share <= FP32_MOST:
        return None
    rest = _in_fp32(judged)
    return KernelFinding(
        id=FAMILY + "LowPrecisionUnused",
        severity=Severity.MEDIUM,
        value=round(share, 4),
        threshold=FP32_MOST,
        **said(KernelKind.LOW_PRECISION_UNUSED, portion("fp32_share", share, FP32_MOST)),
        evidence=judged.lines(rest),
        gain=judged.gain(min(in_fp32 / judged.metrics.counted, judged.metrics.compute_ns) / 2),
    )


def sm_underfilled(judged: Judged) -> KernelFinding | None:
    """Fire where on an NVIDIA GPU a fifth of the computing time is in kernels with under a block a multiprocessor."""
    table = judged.table
    if any(_AMD.search(gpu.name) for gpu in judged.trace.gpus):
        return None
    underfilled = sum(line.underfilled_ns for line in table.compute)
    share = underfilled / table.compute_ns if table.compute_ns else 0.0
    if share < UNDERFILLED_MOST:
        return None
    lines = sorted(table.compute, key=lambda line: -line.underfilled_ns)
    return KernelFinding(
        id=FAMILY + "SmUnderfilled",
        severity=Severity.LOW,
        value=round(share, 4),
        threshold=UNDERFILLED_MOST,
        **said(KernelKind.SM_UNDERFILLED, portion("underfilled_share", share, UNDERFILLED_MOST)),
        evidence=judged.lines(line for line in lines if line.underfilled_ns),
        gain=judged.gain(min(underfilled / judged.metrics.counted, judged.metrics.compute_ns) / 2),
    )


def outside_tensor_cores(judged: Judged) -> Ints:
    """Return the GPU's rows of kernels that could use tensor cores, and do not."""
    return _rows(_outside_tensor_cores(judged))


def in_fp32(judged: Judged) -> Ints:
    """Return the GPU's rows of kernels that compute in FP32."""
    return _rows(_in_fp32(judged))


def underfilled_rows(judged: Judged) -> Ints:
    """Return the GPU's rows of kernels that compute with less than one block per multiprocessor."""
    rows = _rows(judged.table.compute)
    return rows[judged.trace.gpu.blocks_per_sm[rows] < 1]


def _outside_tensor_cores(judged: Judged) -> list[KernelLine]:
    return [line for line in judged.table.compute if line.says.eligible and not line.says.tensor_core]


def _in_fp32(judged: Judged) -> list[KernelLine]:
    return [line for line in judged.table.compute if line.says.precision is Precision.FP32]


def _rows(lines: Sequence[KernelLine]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *(line.rows for line in lines)])


def _has_bf16(judged: Judged) -> bool:
    """Whether a GPU computes in BF16; of NVIDIA by its capability, of AMD by its name."""
    amd = [gpu for gpu in judged.trace.gpus if _AMD.search(gpu.name)]
    if amd:
        return any(_AMD_BF16.search(gpu.name) for gpu in amd)
    return _capability(judged) >= AMPERE


def _capability(judged: Judged) -> tuple[int, int]:
    return max((gpu.capability for gpu in judged.trace.gpus), default=(0, 0))
