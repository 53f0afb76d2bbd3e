"""The queue of launches is full: nothing is wrong, and it is worth knowing."""

from trainguard.core.finding import Fact, Severity
from trainguard.kernels.rules.finding import Evidence, Judged, KernelFinding
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import Saying, portion
from trainguard.kernels.rules.thresholds import Number, Share
from trainguard.kernels.streams import FULL_QUEUE
from trainguard.ledger.bucket import Bucket
from trainguard.rules.rule_result import Measure


class QueueFull(RankRule):
    """Says that a stream's queue of launches is full."""

    title = "Full queues"
    fires_when = "never: it says that {launches} launches wait in a stream's queue for {most} of the time"
    measure = Measure("share of the window with a full queue")
    informs_only = True
    is_steady = False
    claims = (Bucket.HOST,)
    says = (
        Saying(
            "queue_full",
            "{full_queue_share} of the time {queued_launches:,} launches wait for the GPU.",
            advice="Nothing is wrong: the host is far ahead, so a synchronizing call costs little here.",
        ),
    )

    launches: Number = FULL_QUEUE
    most: Share = 0.05

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Say that the queue is full for a part of the window."""
        share = judged.metrics.share(judged.metrics.full_queue_ns)
        if share <= self.most:
            return None
        return self.found(
            [
                portion("full_queue_share", share, self.most),
                Fact(name="queued_launches", value=FULL_QUEUE),
            ],
            severity=Severity.LOW,
            evidence=[Evidence(what=f"queue of {FULL_QUEUE:,} launches", duration_ns=judged.metrics.full_queue_ns)],
            gain=judged.gain(0),
        )
