"""The host launches kernels too slowly."""

import numpy as np

from trainguard.core.finding import Fact
from trainguard.kernels.intervals import Spans
from trainguard.kernels.rules.evidence import longest_gaps
from trainguard.kernels.rules.finding import Judged, JudgedGpu, KernelFinding, severity
from trainguard.kernels.rules.gpu_busy_low import GpuBusyLow
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import MICROSECONDS, Saying, portion, shown
from trainguard.kernels.rules.thresholds import Nanoseconds, Share
from trainguard.ledger.bucket import Bucket
from trainguard.rules.rule_result import FactSheet, Measure
from trainguard.rules.spec import LOW_GPUS

SHOWN_WAIT = 0.01


def _summary(sheet: FactSheet) -> str:
    said = shown(sheet)
    beside = " beside the wait for data" if "waits_for_data_share" in said else ""
    return (
        f"The GPU waits for launches: kernels start {sheet.number('launch_delay'):.1f} us after their launch at the "
        f"median, {sheet.number('queued_launches'):.1f} launches wait on average, and the host causes "
        f"{said['host_share']} of the idle time{beside}."
    )


class LaunchBound(RankRule):
    """Fires where the GPU is often idle, mostly because the host launches too late, and no queue forms.

    A host that waits for data launches nothing: that time is the loader's, and counts nowhere here.
    """

    title = "Launches that come too late"
    fires_when = (
        "busy under {enough}, {host_share} of the idle time is the host's, and kernels start within {delay_ns} of "
        "their launch; the wait for data counts as neither busy nor idle"
    )
    measure = Measure("median delay from launch to start", "us")
    explains = (LOW_GPUS,)
    claims = (Bucket.HOST,)
    says = (
        Saying(
            "launch_bound",
            _summary,
            advice="Launch less: CUDA graphs, torch.compile, a fused or foreach optimizer, fewer Python operators.",
            clause="the host launched kernels too slowly",
        ),
    )

    enough: Share = GpuBusyLow.enough
    medium: Share = GpuBusyLow.medium
    host_share: Share = 0.5
    delay_ns: Nanoseconds = 10_000

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where the GPU waits for launches."""
        metrics = judged.metrics
        window_ns = judged.window.length - metrics.loader_idle_ns
        busy = metrics.busy_ns / window_ns if window_ns else 1.0
        idle = window_ns - metrics.busy_ns
        late = metrics.host_idle_ns / idle if idle else 0.0
        delays = metrics.delays.after_call
        if busy >= self.enough or late < self.host_share or not len(delays) or np.median(delays) >= self.delay_ns:
            return None
        waits = metrics.share(metrics.loader_idle_ns)
        queue = sum(stream.queue.mean(judged.window) for stream in metrics.streams)
        return self.found(
            [
                Fact(
                    name="launch_delay",
                    value=round(float(np.median(delays)) / 1e3, 3),
                    unit=MICROSECONDS,
                    threshold=self.delay_ns / 1e3,
                ),
                Fact(name="queued_launches", value=round(float(queue), 3)),
                portion("host_share", late, self.host_share),
                *([portion("waits_for_data_share", waits)] if waits >= SHOWN_WAIT else []),
            ],
            severity=severity(metrics.share(idle), 1 - self.enough, 1 - self.medium),
            evidence=longest_gaps(judged, judged.gaps),
            gain=judged.gain(metrics.host_idle_ns),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return when the GPU is idle because of the host."""
        return gpu.causes.host
