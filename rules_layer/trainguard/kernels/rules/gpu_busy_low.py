"""The GPU is busy for too little of the time."""

import numpy as np

from trainguard.core.finding import Fact, Severity
from trainguard.kernels.gpu_times import busy_shares
from trainguard.kernels.host_work import work_under
from trainguard.kernels.intervals import Spans
from trainguard.kernels.rules.finding import SHOWN, Evidence, Judged, JudgedGpu, KernelFinding, percent
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import Saying, portion, shown
from trainguard.kernels.rules.thresholds import Share
from trainguard.ledger.bucket import LOST_AT_WORK
from trainguard.rules.rule_result import FactSheet, Measure
from trainguard.rules.spec import LOW_GPUS

PARTS = 30


def _summary(sheet: FactSheet) -> str:
    gpus, least, said = int(sheet.number("gpus")), sheet.get("least_busy_share"), shown(sheet)
    who = "The GPU is" if gpus == 1 else f"The {gpus:,} GPUs are on average"
    each = ""
    if least is not None:
        each = f", GPU {(least.device or '').removeprefix('gpu')} {said['least_busy_share']}"
    return f"{who} busy {said['busy_share']} of the time{each}."


class GpuBusyLow(RankRule):
    """Fires where the GPU is idle for much of the window."""

    title = "GPU busy"
    fires_when = "the GPU is busy less than {enough} of the window; it matters more below {medium}"
    measure = Measure("busy share of the window")
    symptom = LOW_GPUS
    claims = LOST_AT_WORK
    says = (
        Saying(
            "gpu_busy_low",
            _summary,
            advice="Find what the GPU waits for in the other findings; then try a larger batch.",
            clause="the GPU was busy for too little of the time",
        ),
    )

    enough: Share = 0.7
    medium: Share = 0.5

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where the GPU is busy too little; of several GPUs the mean."""
        busy = judged.metrics.share(judged.metrics.busy_ns)
        if not judged.has_gpu or busy >= self.enough:
            return None
        return self.found(
            [
                portion("busy_share", busy, self.medium if busy < self.medium else self.enough),
                Fact(name="gpus", value=judged.metrics.counted),
                *_least_busy(judged),
            ],
            severity=Severity.MEDIUM if busy < self.medium else Severity.LOW,
            evidence=_worst_parts(judged),
            gain=judged.gain(judged.window.length - judged.metrics.busy_ns),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return when the GPU is idle, whatever the reason."""
        return gpu.causes.idle


def _least_busy(judged: Judged) -> list[Fact]:
    counted = [gpu for gpu in judged.metrics.gpus if gpu.counted]
    if len(counted) < 2:
        return []
    least = min(counted, key=lambda gpu: gpu.busy.total)
    return [portion("least_busy_share", judged.metrics.share(least.busy.total), device=f"gpu{least.number}")]


def _worst_parts(judged: Judged) -> list[Evidence]:
    parts = np.arange(PARTS + 1, dtype=np.int64)
    edges = judged.window.start + judged.window.length // PARTS * parts
    edges[-1] = judged.window.end
    lasted = np.diff(edges)
    if not lasted.all():
        return []
    shares = busy_shares(judged.metrics.gpus, edges)
    evidence = []
    for place in np.argsort(shares, kind="stable")[:SHOWN].tolist():
        start, end = int(edges[place]), int(edges[place + 1])
        host = work_under(judged.trace, start, end)
        said = f"GPU busy {percent(float(shares[place]))} here" + (f", host {host}" if host else "")
        evidence.append(judged.stretch(said, start, end))
    return evidence
