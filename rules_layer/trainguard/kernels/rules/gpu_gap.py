"""The GPU is idle at a stretch."""

import numpy as np

from trainguard.core.finding import Fact
from trainguard.kernels.intervals import Spans, intersection
from trainguard.kernels.rules.evidence import longest_gaps
from trainguard.kernels.rules.finding import Judged, JudgedGpu, KernelFinding, severity
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import MILLISECONDS, Saying
from trainguard.kernels.rules.thresholds import Nanoseconds, Share
from trainguard.kernels.words import times
from trainguard.ledger.bucket import LOST_AT_WORK
from trainguard.rules.rule_result import FactSheet, Measure
from trainguard.rules.spec import LOW_GPUS


def _summary(sheet: FactSheet) -> str:
    longest = f"up to {sheet.number('longest_gap'):,.1f} ms"
    return f"The GPU is idle at a stretch {times(int(sheet.number('gaps')))}, {longest}."


class GpuGap(RankRule):
    """Fires where no GPU of a rank does anything for long."""

    title = "Gaps of the GPU"
    fires_when = "the GPU is idle at a stretch for {long_ns}, or for over {of_step} of the median step"
    measure = Measure("longest gap", "ms")
    symptom = LOW_GPUS
    claims = LOST_AT_WORK
    says = (
        Saying(
            "gpu_gap",
            _summary,
            advice="Look at what the host does in these gaps: checkpoints, logging, evaluation, data loading.",
            clause="the GPU was idle at a stretch",
        ),
    )

    long_ns: Nanoseconds = 500_000_000
    of_step: Share = 0.1
    medium: Share = 0.1
    high: Share = 0.3

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where there are long gaps; the more of the window they are, the more it matters."""
        long = self._long_gaps(judged)
        if not judged.has_gpu or not len(long.start):
            return None
        return self.found(
            [
                Fact(
                    name="longest_gap",
                    value=round(int((long.end - long.start).max()) / 1e6, 3),
                    unit=MILLISECONDS,
                    threshold=round(self._limit_ns(judged) / 1e6, 3),
                ),
                Fact(name="gaps", value=len(long.start)),
            ],
            severity=severity(judged.metrics.share(long.total), self.medium, self.high),
            evidence=longest_gaps(judged, long),
            gain=judged.gain(long.total),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return the long gaps."""
        return intersection(gpu.causes.idle, self._long_gaps(gpu.judged))

    def _long_gaps(self, judged: Judged) -> Spans:
        found, limit = judged.gaps, self._limit_ns(judged)
        lasted = found.end - found.start
        over = (lasted >= self.long_ns) | (lasted > limit)
        return Spans(found.start[over], found.end[over])

    def _limit_ns(self, judged: Judged) -> float:
        steps = judged.window.steps
        of_step = self.of_step * float(np.median(steps.end - steps.start)) if len(steps) else self.long_ns
        return min(float(self.long_ns), of_step)
