"""Kernels are too small and too many."""

from trainguard.core.finding import Fact, Severity
from trainguard.kernels.columns import Kind
from trainguard.kernels.intervals import Spans
from trainguard.kernels.rules.finding import Judged, JudgedGpu, KernelFinding
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import Saying, portion, shown
from trainguard.kernels.rules.thresholds import Number, Share
from trainguard.ledger.bucket import Bucket
from trainguard.rules.rule_result import FactSheet, Measure
from trainguard.rules.spec import LOW_GPUS


def _summary(sheet: FactSheet) -> str:
    each = "" if sheet.number("gpus") == 1 else " on each GPU"
    kernels = f"{sheet.number('kernels_per_step'):,.0f} kernels a step{each}"
    return f"{kernels}; {shown(sheet)['short_share']} of the launching calls take longer than their work."


class SmallKernelStorm(RankRule):
    """Fires where steps have hundreds of kernels, most of them shorter than the call that launches them."""

    title = "Small kernels"
    fires_when = (
        "there are {kernels_per_step} kernels a step, {short_share} of them shorter than their launching call, and the "
        "GPU is busy under {enough} of the time beside the wait for data"
    )
    measure = Measure("share of kernels shorter than their call")
    explains = (LOW_GPUS,)
    claims = (Bucket.HOST,)
    says = (
        Saying(
            "small_kernel_storm",
            _summary,
            advice="Fuse small kernels: torch.compile, foreach optimizers, CUDA graphs, channels_last.",
            clause="kernels were too small and too many",
        ),
    )

    kernels_per_step: Number = 300
    short_share: Share = 0.5
    enough: Share = 0.9

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where a GPU that is not always busy runs many kernels in short calls."""
        metrics = judged.metrics
        window_ns = judged.window.length - metrics.loader_idle_ns
        busy = metrics.busy_ns / window_ns if window_ns else 1.0
        runs = int((metrics.in_window & (judged.trace.gpu.kind <= Kind.COMMUNICATION)).sum())
        kernels = runs / judged.steps / metrics.counted
        short = metrics.delays.short_calls
        share = float(short.mean()) if len(short) else 0.0
        if kernels < self.kernels_per_step or share < self.short_share or busy >= self.enough:
            return None
        lines = sorted(judged.table.compute, key=lambda line: -line.short_count)
        return self.found(
            [
                portion("short_share", share, self.short_share),
                Fact(name="kernels_per_step", value=round(kernels, 1), threshold=self.kernels_per_step),
                Fact(name="gpus", value=metrics.counted),
            ],
            severity=Severity.MEDIUM,
            evidence=judged.lines(lines),
            gain=judged.gain(window_ns - metrics.busy_ns),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return when the GPU is idle because of the host."""
        return gpu.causes.host
