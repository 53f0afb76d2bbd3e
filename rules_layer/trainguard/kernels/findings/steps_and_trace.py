"""Rules on single steps, and on memory and queues."""

import numpy as np

from trainguard.finding import Fact, Severity
from trainguard.kernels.columns import Ints
from trainguard.kernels.findings.finding import FAMILY, SHOWN, Evidence, Judged, KernelFinding
from trainguard.kernels.findings.text import MILLISECONDS, KernelKind, portion, said
from trainguard.kernels.step_parts import step_parts

OUTLIER_STEPS, OUTLIER_SIGMAS, OUTLIER_SHARE = 10, 5, 0.1
ROBUST_SIGMA = 1.4826
MEMORY_FULL = 0.9
QUEUE_MOST = 0.05


def step_outlier(judged: Judged) -> KernelFinding | None:
    """Fire where, of at least ten steps, one is 5 robust sigmas and a tenth over the median."""
    steps = judged.window.steps
    if len(steps) < OUTLIER_STEPS:
        return None
    lasted = steps.end - steps.start
    limit = _limit(lasted)
    slow, median = slow_steps(judged)
    if not len(slow):
        return None
    parts = step_parts(judged.metrics, steps.start, steps.end)
    worst = slow[np.argsort(-lasted[slow], kind="stable")]
    return KernelFinding(
        id=FAMILY + "TraceStepOutlier",
        severity=Severity.MEDIUM,
        value=round(int(lasted.max()) / 1e6, 3),
        threshold=round(limit / 1e6, 3),
        **said(
            KernelKind.SLOW_STEPS,
            Fact(
                name="slowest_step",
                value=round(int(lasted.max()) / 1e6, 3),
                unit=MILLISECONDS,
                threshold=round(limit / 1e6, 3),
            ),
            Fact(name="median_step", value=round(median / 1e6, 3), unit=MILLISECONDS),
            Fact(name="slow_steps", value=len(slow)),
            Fact(name="steps", value=len(steps)),
        ),
        evidence=[_slow_step(judged, parts, int(at)) for at in worst[:SHOWN]],
        gain=judged.gain(float((lasted[slow] - median).sum())),
    )


def slow_steps(judged: Judged) -> tuple[Ints, float]:
    """Return the places of slow steps, at least one step given, and the median of all in nanoseconds."""
    lasted = judged.window.steps.end - judged.window.steps.start
    return np.flatnonzero(lasted > _limit(lasted)), float(np.median(lasted))


def _limit(lasted: Ints) -> float:
    median = float(np.median(lasted))
    sigma = ROBUST_SIGMA * float(np.median(np.abs(lasted - median)))
    return max(median + OUTLIER_SIGMAS * sigma, (1 + OUTLIER_SHARE) * median)


def _slow_step(judged: Judged, parts: dict[str, Ints], at: int) -> Evidence:
    """Return a step with the part that grew most over its median."""
    steps = judged.window.steps
    grown = {name: float(values[at] - np.median(values)) for name, values in parts.items()}
    most = max(grown, key=lambda name: grown[name])
    what = f"slow step, {most} {grown[most] / 1e6:+,.1f} ms over its median"
    return judged.stretch(what, int(steps.start[at]), int(steps.end[at]))


def gpu_memory_full(judged: Judged) -> KernelFinding | None:
    """Fire where over 90 % of a GPU's memory was reserved."""
    trace = judged.trace
    shares = {
        device: most / trace.gpus[device].memory
        for device, most in trace.reserved.items()
        if 0 <= device < len(trace.gpus) and trace.gpus[device].memory
    }
    worst = max(shares, key=lambda device: shares[device], default=None)
    if worst is None or shares[worst] <= MEMORY_FULL:
        return None
    return KernelFinding(
        id=FAMILY + "GpuMemoryFull",
        severity=Severity.MEDIUM,
        value=round(shares[worst], 4),
        threshold=MEMORY_FULL,
        **said(KernelKind.GPU_MEMORY_FULL, portion("reserved_share", shares[worst], MEMORY_FULL, device=f"gpu{worst}")),
        evidence=[_most_reserved(judged, worst)],
        gain=judged.gain(0),
    )


def _most_reserved(judged: Judged, device: int) -> Evidence:
    """Return the peak of a GPU's memory with its time, where that is in the window."""
    at, window = judged.trace.reserved_at.get(device), judged.window
    inside = at is not None and window.start <= at <= window.end
    what = f"GPU {device}, {judged.trace.reserved[device]:,} bytes reserved"
    if at is None or not inside:
        return Evidence(what=what, duration_ns=0)
    return judged.stretch(what, at, at)


def queue_full(judged: Judged) -> KernelFinding | None:
    """Fire where a stream's queue of 1,024 launches is full for 5 % of the time."""
    share = judged.metrics.share(judged.metrics.full_queue_ns)
    if share <= QUEUE_MOST:
        return None
    return KernelFinding(
        id=FAMILY + "QueueFull",
        severity=Severity.LOW,
        value=round(share, 4),
        threshold=QUEUE_MOST,
        **said(
            KernelKind.QUEUE_FULL,
            portion("full_queue_share", share, QUEUE_MOST),
            Fact(name="queued_launches", value=1_024),
        ),
        evidence=[Evidence(what="queue of 1,024 launches", duration_ns=judged.metrics.full_queue_ns)],
        gain=judged.gain(0),
    )
