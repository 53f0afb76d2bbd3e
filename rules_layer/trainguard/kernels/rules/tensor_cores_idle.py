"""Tensor cores are not used."""

from trainguard.core.finding import Severity
from trainguard.kernels.intervals import Spans
from trainguard.kernels.kernel_table import KernelLine
from trainguard.kernels.rules.evidence import rows_of
from trainguard.kernels.rules.finding import Judged, JudgedGpu, KernelFinding
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import Saying, portion
from trainguard.kernels.rules.thresholds import Share
from trainguard.rules.rule_result import Measure

VOLTA = (7, 0)


class TensorCoresIdle(RankRule):
    """Fires where a GPU has tensor cores, and too little of the time that could be on them is."""

    title = "Tensor cores"
    fires_when = "under {enough} of the time of matrix, convolution and attention kernels is on tensor cores"
    measure = Measure("share of that time on tensor cores")
    # Kernels that compute do not go away: on tensor cores they still run.
    counts_for = 0.5
    says = (
        Saying(
            "tensor_cores_idle",
            "{tensor_core_share} of the time of matrix, convolution and attention kernels is on tensor cores.",
            advice="Train in BF16 or FP16 (torch.autocast), allow TF32, make dimensions multiples of 8.",
            clause="tensor cores were not used",
        ),
    )

    enough: Share = 0.5
    eligible: Share = 0.1

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where kernels that could use tensor cores are a part of the computation, and do not use them."""
        table = judged.table
        if judged.capability < VOLTA or not table.compute_ns or table.eligible_ns < self.eligible * table.compute_ns:
            return None
        used = table.tensor_core_ns / table.eligible_ns
        if used >= self.enough:
            return None
        rest = _outside_tensor_cores(judged)
        idle = sum(line.total_ns for line in rest)
        return self.found(
            [portion("tensor_core_share", used, self.enough)],
            severity=Severity.MEDIUM if used == 0 else Severity.LOW,
            evidence=judged.lines(rest),
            gain=judged.gain(min(idle / judged.metrics.counted, judged.metrics.compute_ns) * self.counts_for),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return when kernels run that could use tensor cores, and do not."""
        return gpu.runs(rows_of(_outside_tensor_cores(gpu.judged)))


def _outside_tensor_cores(judged: Judged) -> list[KernelLine]:
    return [line for line in judged.table.compute if line.says.eligible and not line.says.tensor_core]
