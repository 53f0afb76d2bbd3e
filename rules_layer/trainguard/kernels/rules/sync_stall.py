"""Synchronization holds the host up."""

import numpy as np

from trainguard.core.finding import Fact
from trainguard.kernels.host_work import caller_of
from trainguard.kernels.intervals import Spans, intersection
from trainguard.kernels.metrics import SYNC_REACH_NS
from trainguard.kernels.rules.finding import SHOWN, Evidence, Judged, JudgedGpu, KernelFinding, severity
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import MILLISECONDS, Saying, portion
from trainguard.kernels.rules.thresholds import Share
from trainguard.ledger.bucket import Bucket
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import LOW_GPUS


class SyncStall(RankRule):
    """Fires where the host waits for the GPU, and the GPU is idle in the wait or right after it."""

    title = "Synchronization"
    fires_when = (
        "the host waits for the GPU {waiting} of the time, and the GPU is idle in the wait or right after it for {idle}"
    )
    measure = Measure("share of the window in synchronization")
    explains = (LOW_GPUS,)
    claims = (Bucket.HOST,)
    says = (
        Saying(
            "sync_stall",
            "The host waits {waiting_share} of the time for the GPU, which is idle {idle_share} of the time in or "
            "within {after_wait:g} ms after these calls.",
            advice="Remove .item(), .cpu() and print of tensors from the step, copy with non_blocking=True.",
            clause="synchronization held the host up",
        ),
    )

    waiting: Share = 0.1
    idle: Share = 0.05
    idle_high: Share = 0.2

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where the host waits, and the GPU has nothing to do because of it."""
        metrics = judged.metrics
        waiting, idle = metrics.share(metrics.host_sync.total), metrics.share(metrics.sync_idle_ns)
        if waiting < self.waiting or idle < self.idle:
            return None
        return self.found(
            [
                portion("waiting_share", waiting, self.waiting),
                portion("idle_share", idle, self.idle),
                Fact(name="after_wait", value=SYNC_REACH_NS // 1_000_000, unit=MILLISECONDS),
            ],
            severity=severity(idle, self.idle, self.idle_high),
            evidence=_waits(judged),
            gain=judged.gain(metrics.sync_idle_ns),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return when the GPU is idle in a wait of the host, or right after."""
        return intersection(gpu.causes.host, gpu.judged.metrics.sync_reach)


def _waits(judged: Judged) -> list[Evidence]:
    launches, trace = judged.trace.launches, judged.trace
    waits = np.flatnonzero(judged.metrics.waiting_calls)
    evidence = []
    for place in waits[np.argsort((launches.start - launches.end)[waits], kind="stable")][:SHOWN].tolist():
        caller = caller_of(trace, place)
        what = trace.names[int(launches.name[place])] + (f" of {caller}" if caller else "")
        evidence.append(judged.stretch(what, int(launches.start[place]), int(launches.end[place])))
    return evidence
