"""Most of the computation is in FP32."""

import re

from trainguard.core.finding import Severity
from trainguard.kernels.intervals import Spans
from trainguard.kernels.kernel_names import Precision
from trainguard.kernels.kernel_table import KernelLine
from trainguard.kernels.rules.evidence import rows_of
from trainguard.kernels.rules.finding import Judged, JudgedGpu, KernelFinding
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import Saying, portion
from trainguard.kernels.rules.thresholds import Share
from trainguard.rules.rule_result import Measure

AMPERE = (8, 0)
AMD = re.compile(r"AMD|Instinct|Radeon", re.IGNORECASE)
_AMD_BF16 = re.compile(r"\bMI(?:[12]\d\d|3\d\d)[AX]?\b", re.IGNORECASE)
"""ROCm says 9.0 of GPUs with and without matrix cores, so they are known by their names: MI100 and later have them."""


class LowPrecisionUnused(RankRule):
    """Fires where a GPU computes in BF16 and TF32, and most of the time is in FP32."""

    title = "Precision"
    fires_when = "over {most} of the computing time is in FP32, on a GPU that has BF16 and TF32"
    measure = Measure("share of computing time in FP32")
    # Kernels that compute do not go away: in a lower precision they still run.
    counts_for = 0.5
    says = (
        Saying(
            "low_precision_unused",
            "{fp32_share} of the time of kernels that compute is in FP32.",
            advice="Use BF16 autocast, and torch.set_float32_matmul_precision('high') for what stays in FP32.",
            clause="most of the computation was in FP32",
        ),
    )

    most: Share = 0.5

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where a lower precision is there, and most of the computation does not use it."""
        table = judged.table
        if not _has_bf16(judged) or not table.compute_ns:
            return None
        in_fp32 = table.by_precision().get(Precision.FP32, 0)
        share = in_fp32 / table.compute_ns
        if share <= self.most:
            return None
        return self.found(
            [portion("fp32_share", share, self.most)],
            severity=Severity.MEDIUM,
            evidence=judged.lines(_in_fp32(judged)),
            gain=judged.gain(min(in_fp32 / judged.metrics.counted, judged.metrics.compute_ns) * self.counts_for),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return when kernels run in FP32."""
        return gpu.runs(rows_of(_in_fp32(gpu.judged)))


def _in_fp32(judged: Judged) -> list[KernelLine]:
    return [line for line in judged.table.compute if line.says.precision is Precision.FP32]


def _has_bf16(judged: Judged) -> bool:
    """Whether a GPU computes in BF16; of NVIDIA by its capability, of AMD by its name."""
    amd = [gpu for gpu in judged.trace.gpus if AMD.search(gpu.name)]
    if amd:
        return any(_AMD_BF16.search(gpu.name) for gpu in amd)
    return judged.capability >= AMPERE
