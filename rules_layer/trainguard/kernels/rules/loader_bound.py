"""Steps wait for the data loader."""

from trainguard.kernels.intervals import Spans
from trainguard.kernels.rules.evidence import longest
from trainguard.kernels.rules.finding import Judged, JudgedGpu, KernelFinding, severity
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import Saying, portion
from trainguard.kernels.rules.thresholds import Share
from trainguard.ledger.bucket import Bucket
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import DATA_WAITS, LOW_GPUS


class LoaderBound(RankRule):
    """Fires where the host waits for a batch with nothing on the GPU."""

    title = "Waiting for the data loader"
    fires_when = "steps wait over {most} of their time for the data loader"
    measure = Measure("share of steps in the data loader")
    symptom = DATA_WAITS
    explains = (LOW_GPUS,)
    claims = (Bucket.DATA,)
    says = (
        Saying(
            "loader_bound",
            "Steps wait {loader_share} of their time for the data loader.",
            advice="Raise the DataLoader's num_workers and prefetch_factor, set pin_memory=True, decode less.",
            clause="steps waited for the data loader",
        ),
    )

    most: Share = 0.05
    high: Share = 0.2

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where the wait is more than a part of the window."""
        waiting = judged.metrics.loader_alone()
        share = judged.metrics.share(waiting.total)
        if share <= self.most:
            return None
        return self.found(
            [portion("loader_share", share, self.most)],
            severity=severity(share, self.most, self.high),
            evidence=longest(judged, "data loader, GPU idle", waiting),
            gain=judged.gain(waiting.total),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return when the GPU is idle because of the loader."""
        return gpu.causes.loader
