"""The GPU only copies memory for part of the time."""

from trainguard.kernels.columns import Kind
from trainguard.kernels.intervals import Spans
from trainguard.kernels.rules.evidence import by_name
from trainguard.kernels.rules.finding import Judged, JudgedGpu, KernelFinding, severity
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import Saying, portion
from trainguard.kernels.rules.thresholds import Share
from trainguard.rules.rule_result import Measure


class MemcpyBound(RankRule):
    """Fires where copies and sets of memory run beside nothing else."""

    title = "Copies"
    fires_when = "the GPU only copies or sets memory for {least} of the time"
    measure = Measure("share of the window with copies alone")
    says = (
        Saying(
            "memcpy_bound",
            "{copy_share} of the time the GPU only copies or sets memory.",
            advice="Keep data on the GPU, join small copies, pin host memory and copy with non_blocking=True.",
            clause="the GPU only copied memory for part of the time",
        ),
    )

    least: Share = 0.1
    high: Share = 0.25

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where copies alone take a part of the window."""
        share = judged.metrics.share(judged.metrics.exposed_memory_ns)
        if share < self.least:
            return None
        return self.found(
            [portion("copy_share", share, self.least)],
            severity=severity(share, self.least, self.high),
            evidence=by_name(judged, judged.metrics.in_window & (judged.trace.gpu.kind >= Kind.MEMCPY)),
            gain=judged.gain(judged.metrics.exposed_memory_ns),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return when the GPU only copies or sets memory."""
        return gpu.copies_alone
