"""Kernels compute on the slow units of the GPU, or do not fill it."""

import re

from trainguard.core.finding import Severity
from trainguard.kernels.entries import Gain, KernelFinding
from trainguard.kernels.names.families import RowFamily
from trainguard.kernels.names.kernel_names import Precision
from trainguard.kernels.rules.finding import JudgedRank, rows_of, time_of
from trainguard.kernels.rules.rule import RankRule, Share, portion
from trainguard.kernels.rules.text import Saying
from trainguard.kernels.times.gpu_times import TraceGpuTime
from trainguard.kernels.times.intervals import Spans
from trainguard.kernels.work import KernelLine
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import Measure

VOLTA = (7, 0)


class _ComputeRule(RankRule):
    """A rule over kernels that compute. These do not go away: in a better form they still run."""

    counts_for = 0.5

    def gain_of(self, judged: JudgedRank, total_ns: int) -> Gain:
        """Return what can be won of kernels that take so much time on all GPUs together."""
        return judged.gain(min(total_ns / judged.counted, judged.compute_ns) * self.counts_for)


class TensorCoresIdle(_ComputeRule):
    title = "Tensor cores"
    change = ChangeCode.LOWER_PRECISION
    fires_when = "under {enough} of the time of matrix, convolution and attention kernels is on tensor cores"
    measure = Measure("share of that time on tensor cores")
    summary = "{tensor_core_share} of the time of matrix, convolution and attention kernels is on tensor cores."
    advice = "Train in BF16 or FP16 (torch.autocast), allow TF32, make dimensions multiples of 8."
    clause = "tensor cores were not used"

    enough: Share = 0.5
    eligible: Share = 0.1

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        computing_ns = judged.computing_ns
        if judged.capability < VOLTA or not computing_ns or judged.eligible_ns < self.eligible * computing_ns:
            return None
        used = judged.tensor_core_ns / judged.eligible_ns
        if used >= self.enough:
            return None
        rest = _outside_tensor_cores(judged)
        return self.found(
            [portion("tensor_core_share", used, self.enough)],
            severity=Severity.MEDIUM if used == 0 else Severity.LOW,
            evidence=judged.lines(rest),
            gain=self.gain_of(judged, time_of(rest)),
        )

    def stretches(self, judged: JudgedRank, gpu: TraceGpuTime) -> Spans:
        return judged.when(rows_of(_outside_tensor_cores(judged)), gpu)


def _outside_tensor_cores(judged: JudgedRank) -> list[KernelLine]:
    return [line for line in judged.compute if line.eligible and not line.tensor_core]


AMPERE = (8, 0)
AMD = re.compile(r"AMD|Instinct|Radeon", re.IGNORECASE)
# ROCm says 9.0 of GPUs with and without matrix cores, so they are known by their names: MI100 and later have them.
_AMD_BF16 = re.compile(r"\bMI(?:[12]\d\d|3\d\d)[AX]?\b", re.IGNORECASE)


class LowPrecisionUnused(_ComputeRule):
    """Fires where much of the computation is in FP32 or FP64; optimizers do not count, as weights need FP32."""

    title = "Precision"
    change = ChangeCode.LOWER_PRECISION
    fires_when = (
        "beside optimizers over {most} of the computing time is in FP32, over {least} in FP64, or over {least} in "
        "products, convolutions and attention of FP32 or FP64, on a GPU that has BF16"
    )
    measure = Measure("share of computing time in FP32")
    says = (
        Saying(
            "low_precision_unused",
            "{fp32_share} of the time of kernels that compute is in FP32.",
            "Use BF16 autocast, and torch.set_float32_matmul_precision('high') for what stays in FP32.",
            "most of the computation was in FP32",
        ),
        Saying(
            "double_precision",
            "{fp64_share} of the time of kernels that compute is in FP64.",
            "Find the tensor of torch.float64 that spreads, often an array of NumPy, and convert it with .float().",
            "part of the computation was in FP64",
        ),
        Saying(
            "products_in_full_precision",
            "{full_precision_share} of the time of kernels that compute is in matrix products, convolutions and "
            "attention of FP32 or FP64.",
            "Put these modules under BF16 autocast, or allow TF32 with torch.set_float32_matmul_precision('high').",
            "products were in FP32",
        ),
    )

    most: Share = 0.5
    least: Share = 0.1

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        wide = self._wide(judged)
        if wide is None:
            return None
        kind, fact, most, lines = wide
        return self.found(
            [portion(fact, time_of(lines) / judged.computing_ns, most)],
            kind=kind,
            severity=Severity.MEDIUM,
            evidence=judged.lines(lines),
            gain=self.gain_of(judged, time_of(lines)),
        )

    def stretches(self, judged: JudgedRank, gpu: TraceGpuTime) -> Spans:
        wide = self._wide(judged)
        return judged.when(rows_of([] if wide is None else wide[-1]), gpu)

    def _wide(self, judged: JudgedRank) -> tuple[str, str, float, list[KernelLine]] | None:
        """Return a kind of finding with its fact, its threshold and the kernels in a wider type than they need."""
        if not _has_bf16(judged) or not judged.computing_ns:
            return None
        lines = [line for line in judged.compute if line.family != RowFamily.OPTIMIZER]
        single = [line for line in lines if line.precision == Precision.FP32]
        double = [line for line in lines if line.precision == Precision.FP64]
        products = [line for line in (*single, *double) if line.eligible]
        kinds = (
            ("low_precision_unused", "fp32_share", self.most, single),
            ("double_precision", "fp64_share", self.least, double),
            ("products_in_full_precision", "full_precision_share", self.least, products),
        )
        return next((kind for kind in kinds if time_of(kind[3]) > kind[2] * judged.computing_ns), None)


def _has_bf16(judged: JudgedRank) -> bool:
    """Whether a GPU computes in BF16; of NVIDIA by its capability, of AMD by its name."""
    amd = [gpu for gpu in judged.trace.gpus if AMD.search(gpu.name)]
    if amd:
        return any(_AMD_BF16.search(gpu.name) for gpu in amd)
    return judged.capability >= AMPERE


class SmUnderfilled(_ComputeRule):
    title = "Underfilled multiprocessors"
    change = ChangeCode.RAISE_BATCH_SIZE
    fires_when = "{least} of the computing time is in kernels with less than one block a multiprocessor"
    measure = Measure("share of computing time in such kernels")
    summary = "{underfilled_share} of the computing time is in kernels with less than one block per multiprocessor."
    advice = "Give each kernel more work: a larger batch, fused operators."
    clause = "kernels did not fill the GPU"

    least: Share = 0.2

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        if any(AMD.search(gpu.name) for gpu in judged.trace.gpus):
            return None
        underfilled = sum(line.underfilled_ns for line in judged.compute)
        share = underfilled / judged.computing_ns if judged.computing_ns else 0.0
        if share < self.least:
            return None
        lines = sorted(judged.compute, key=lambda line: -line.underfilled_ns)
        return self.found(
            [portion("underfilled_share", share, self.least)],
            severity=Severity.LOW,
            evidence=judged.lines(line for line in lines if line.underfilled_ns),
            gain=self.gain_of(judged, underfilled),
        )

    def stretches(self, judged: JudgedRank, gpu: TraceGpuTime) -> Spans:
        rows = rows_of(judged.compute)
        return judged.when(rows[judged.trace.gpu.blocks_per_sm[rows] < 1], gpu)
