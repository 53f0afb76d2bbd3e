"""A GPU's memory is nearly full."""

from trainguard.core.finding import Severity
from trainguard.kernels.rules.finding import Evidence, Judged, KernelFinding
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import Saying, percent, portion
from trainguard.kernels.rules.thresholds import Share
from trainguard.rules.rule_result import FactSheet, Measure


def _summary(sheet: FactSheet) -> str:
    share = sheet["reserved_share"]
    return f"{percent(share)} of the memory of GPU {(share.device or '').removeprefix('gpu')} was reserved."


class GpuMemoryFull(RankRule):
    """Fires where little of a GPU's memory was left."""

    title = "GPU memory"
    fires_when = "over {most} of a GPU's memory was reserved; needs profile_memory=True"
    measure = Measure("reserved share of the memory")
    is_steady = False
    says = (
        Saying(
            "gpu_memory_full",
            _summary,
            advice="Leave room before the job runs out of memory: activation checkpointing, a smaller batch.",
            clause="a GPU's memory was nearly full",
        ),
    )

    most: Share = 0.9

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire for the GPU with most of its memory reserved."""
        trace = judged.trace
        shares = {
            device: most / trace.gpus[device].memory
            for device, most in trace.reserved.items()
            if 0 <= device < len(trace.gpus) and trace.gpus[device].memory
        }
        worst = max(shares, key=lambda device: shares[device], default=None)
        if worst is None or shares[worst] <= self.most:
            return None
        return self.found(
            [portion("reserved_share", shares[worst], self.most, device=f"gpu{worst}")],
            severity=Severity.MEDIUM,
            evidence=[_most_reserved(judged, worst)],
            gain=judged.gain(0),
        )


def _most_reserved(judged: Judged, device: int) -> Evidence:
    """Return the peak of a GPU's memory with its time, where that is in the window."""
    at, window = judged.trace.reserved_at.get(device), judged.window
    what = f"GPU {device}, {judged.trace.reserved[device]:,} bytes reserved"
    if at is None or not window.start <= at <= window.end:
        return Evidence(what=what, duration_ns=0)
    return judged.stretch(what, at, at)
