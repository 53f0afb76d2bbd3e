"""Communication is not hidden behind computation."""

from trainguard.kernels.collectives import collectives_of
from trainguard.kernels.intervals import Spans
from trainguard.kernels.rules.finding import SHOWN, Evidence, Judged, JudgedGpu, KernelFinding, percent, severity
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import Saying, portion
from trainguard.kernels.rules.thresholds import Share
from trainguard.ledger.bucket import Bucket
from trainguard.rules.rule_result import Measure


class ExposedCommunication(RankRule):
    """Fires where the GPU communicates, all of it without computing, or half of it.

    The value is the exposed share of the time; where that alone is allowed, the overlapping share of communication.
    """

    title = "Exposed communication"
    fires_when = (
        "communication without computation takes {exposed} of the time, or under {overlap} of communication that takes "
        "{communicating} of the time overlaps with computation"
    )
    measure = Measure("exposed share of the window")
    claims = (Bucket.COMMUNICATION,)
    says = (
        Saying(
            "exposed_communication",
            "{exposed_share} of the time the GPU communicates and does not compute; {overlap_share} of the "
            "communication overlaps with computation.",
            advice="Overlap it: bucket size, prefetch, gradient accumulation; or send less: hierarchical or "
            "compressed collectives. A kernel that waits for a late rank looks the same: compare the ranks.",
            clause="communication was not hidden behind computation",
        ),
    )

    exposed: Share = 0.1
    exposed_high: Share = 0.25
    communicating: Share = 0.1
    overlap: Share = 0.5

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where much of the time is communication alone, or too little of it overlaps."""
        metrics = judged.metrics
        share = metrics.share(metrics.exposed_communication_ns)
        communicating = metrics.share(metrics.communication_ns)
        overlap = metrics.overlap_ns / metrics.communication_ns if metrics.communication_ns else 1.0
        much = share >= self.exposed
        if not much and not (communicating >= self.communicating and overlap < self.overlap):
            return None
        return self.found(
            [portion("exposed_share", share, self.exposed), portion("overlap_share", overlap, self.overlap)],
            measured="exposed_share" if much else "overlap_share",
            severity=severity(share, self.exposed, self.exposed_high),
            evidence=_collectives(judged),
            gain=judged.gain(metrics.exposed_communication_ns),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return when the GPU only communicates."""
        return gpu.communication_alone


def _collectives(judged: Judged) -> list[Evidence]:
    found = []
    for each in collectives_of(judged.metrics)[:SHOWN]:
        parts = [each.name, each.group, f"{each.group_size} ranks" if each.group_size else ""]
        parts.append(f"{percent(each.overlap_ns / each.total_ns)} overlaps" if each.total_ns else "")
        if each.bus_gb_per_s is not None:
            parts.append(f"{each.bus_gb_per_s:.2f} GB/s on the bus")
        what = ", ".join(part for part in parts if part)
        found.append(Evidence(what=what, duration_ns=each.total_ns, count=each.count))
    return found
