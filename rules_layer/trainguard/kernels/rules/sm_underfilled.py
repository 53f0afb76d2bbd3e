"""Kernels do not fill the GPU."""

from trainguard.core.finding import Severity
from trainguard.kernels.intervals import Spans
from trainguard.kernels.rules.evidence import rows_of
from trainguard.kernels.rules.finding import Judged, JudgedGpu, KernelFinding
from trainguard.kernels.rules.low_precision_unused import AMD
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import Saying, portion
from trainguard.kernels.rules.thresholds import Share
from trainguard.rules.rule_result import Measure


class SmUnderfilled(RankRule):
    """Fires where an NVIDIA GPU computes in kernels with under a block a multiprocessor."""

    title = "Underfilled multiprocessors"
    fires_when = "{least} of the computing time is in kernels with less than one block a multiprocessor"
    measure = Measure("share of computing time in such kernels")
    # Kernels that compute do not go away: in larger ones they still run.
    counts_for = 0.5
    says = (
        Saying(
            "sm_underfilled",
            "{underfilled_share} of the computing time is in kernels with less than one block per multiprocessor.",
            advice="Give each kernel more work: a larger batch, fused operators.",
            clause="kernels did not fill the GPU",
        ),
    )

    least: Share = 0.2

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where such kernels are a part of the computation."""
        table = judged.table
        if any(AMD.search(gpu.name) for gpu in judged.trace.gpus):
            return None
        underfilled = sum(line.underfilled_ns for line in table.compute)
        share = underfilled / table.compute_ns if table.compute_ns else 0.0
        if share < self.least:
            return None
        lines = sorted(table.compute, key=lambda line: -line.underfilled_ns)
        return self.found(
            [portion("underfilled_share", share, self.least)],
            severity=Severity.LOW,
            evidence=judged.lines(line for line in lines if line.underfilled_ns),
            gain=judged.gain(min(underfilled / judged.metrics.counted, judged.metrics.compute_ns) * self.counts_for),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return when such kernels run."""
        rows = rows_of(gpu.judged.table.compute)
        return gpu.runs(rows[gpu.judged.trace.gpu.blocks_per_sm[rows] < 1])
