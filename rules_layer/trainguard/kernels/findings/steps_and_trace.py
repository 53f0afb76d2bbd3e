"""Rules on single steps, on memory and queues, and on the trace itself: how far it can be judged."""

import numpy as np

from trainguard.finding import Severity
from trainguard.kernels.columns import Ints, Kind
from trainguard.kernels.findings.finding import FAMILY, FEW_STEPS, SHOWN, Evidence, Judged, KernelFinding, percent
from trainguard.kernels.intervals import clipped, merged
from trainguard.kernels.step_parts import step_parts

OUTLIER_STEPS, OUTLIER_SIGMAS, OUTLIER_SHARE = 10, 5, 0.1
ROBUST_SIGMA = 1.4826
MEMORY_FULL = 0.9
TRACE_QUALITY = FAMILY + "TraceQuality"
QUEUE_MOST = 0.05
EPOCH_LEAST_NS = 10**18
"""An earlier time, in 2001, is no time of the epoch: old traces write the epoch and have no base."""

UNLAUNCHED_MOST, OVERHEAD_MOST, STACKS_MOST = 0.05, 0.05, 0.5
DAMAGES = {
    "truncated_gzip": "the file ends within its gzip stream",
    "broken_gzip": "the gzip stream is broken",
    "cut_off": "the text ends within the events",
    "unreadable_events": "events that cannot be read",
    "unnamed_events": "events without a name",
    "unreadable_parts": "planes or names that cannot be read",
    "unreadable_metadata": "a head that cannot be read",
    "refused_tables": "views or virtual tables in the place of tables, refused",
    "refused_columns": "computed columns, refused",
    "bad_times": "events with a negative, missing or days-long time",
    "rounded_times": "times that are only exact to a quarter of a microsecond",
}


def step_outlier(judged: Judged) -> KernelFinding | None:
    """Fire where, of at least ten steps, one is 5 robust sigmas and a tenth over the median."""
    steps = judged.window.steps
    if len(steps) < OUTLIER_STEPS:
        return None
    lasted = steps.end - steps.start
    median = float(np.median(lasted))
    sigma = ROBUST_SIGMA * float(np.median(np.abs(lasted - median)))
    limit = max(median + OUTLIER_SIGMAS * sigma, (1 + OUTLIER_SHARE) * median)
    slow = np.flatnonzero(lasted > limit)
    if not len(slow):
        return None
    parts = step_parts(judged.metrics, steps.start, steps.end)
    worst = slow[np.argsort(-lasted[slow], kind="stable")]
    return KernelFinding(
        id=FAMILY + "TraceStepOutlier",
        severity=Severity.MEDIUM,
        value=round(int(lasted.max()) / 1e6, 3),
        threshold=round(limit / 1e6, 3),
        summary=f"{len(slow)} of {len(steps)} steps take over {limit / 1e6:,.1f} ms; median {median / 1e6:,.1f}.",
        evidence=[_slow_step(judged, parts, int(at)) for at in worst[:SHOWN]],
        gain=judged.gain(float((lasted[slow] - median).sum())),
        recommendation="Compare these steps with a usual one: checkpoints, logging, loader restarts, other ranks.",
    )


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
        summary=f"{percent(shares[worst])} of the memory of GPU {worst} was reserved.",
        evidence=[_most_reserved(judged, worst)],
        gain=judged.gain(0),
        recommendation="Leave room before the job runs out of memory: activation checkpointing, a smaller batch.",
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
        summary=f"{percent(share)} of the time 1,024 launches wait for the GPU.",
        evidence=[Evidence(what="queue of 1,024 launches", duration_ns=judged.metrics.full_queue_ns)],
        gain=judged.gain(0),
        recommendation="Nothing is wrong: the host is far ahead, so a synchronizing call costs little here.",
    )


def trace_quality(judged: Judged) -> KernelFinding | None:
    """Fire where something is missing or damaged, so that other rules see less than they should."""
    faults = [*missing(judged), *damaged(judged.trace.tally)]
    if not faults:
        return None
    return KernelFinding(
        id=TRACE_QUALITY,
        severity=Severity.LOW,
        value=float(len(faults)),
        threshold=0.0,
        summary=f"The trace shows less than it could: {'; '.join(faults)}.",
        evidence=[Evidence(what=fault, duration_ns=0) for fault in faults],
        gain=judged.gain(0),
        recommendation="Profile 3 to 10 steps after warm-up with record_shapes on and with_stack off, and call "
        "profiler.step() after each step.",
    )


def missing(judged: Judged) -> list[str]:
    """Return what the trace does not have, each as a phrase."""
    trace, metrics = judged.trace, judged.metrics
    found = []
    if not len(judged.window.steps):
        found.append("no steps")
    elif len(judged.window.steps) < FEW_STEPS:
        found.append(f"fewer than {FEW_STEPS} steps")
    if not len(trace.gpu):
        found.append("no work of a GPU")
    elif not judged.has_gpu:
        found.append("no work of a GPU in the steps")
    if trace.rank is None:
        found.append("no rank")
    if (trace.world_size or 1) > 1 and judged.window.start + trace.base_ns < EPOCH_LEAST_NS:
        found.append("no time base, so ranks cannot be aligned")
    found += _joined(judged)
    kernels = metrics.in_window & (trace.gpu.kind <= Kind.COMMUNICATION)
    unlaunched = float((judged.window.launch[kernels] < 0).mean()) if kernels.any() else 0.0
    if unlaunched > UNLAUNCHED_MOST:
        found.append(f"{percent(unlaunched)} of the kernels without their launch")
    spent = clipped(merged(trace.overhead.start, trace.overhead.end), judged.window.start, judged.window.end)
    if metrics.share(spent.total) > OVERHEAD_MOST:
        found.append(f"the profiler itself takes {percent(metrics.share(spent.total))} of the time")
    stacks = trace.tally.get("stack_bytes", 0) / max(trace.tally.get("text_bytes", 0), 1)
    if stacks > STACKS_MOST:
        found.append(f"{percent(stacks)} of the file are stacks of Python, which nothing here reads")
    return found


def _joined(judged: Judged) -> list[str]:
    """Return what the trace holds several of, or holds as a whole, each as a phrase."""
    tally, metrics = judged.trace.tally, judged.metrics
    processes, graphs = tally.get("processes"), tally.get("whole_graphs")
    found = [f"{metrics.counted:,} GPUs, judged by their mean"] if metrics.counted > 1 else []
    found += [f"GPU {gpu.number} with hardly any work, not in the mean" for gpu in metrics.gpus if not gpu.counted]
    if processes:
        found.append(f"{processes:,} processes, judged as one rank")
    if graphs:
        found.append(f"no kernels of {graphs:,} runs of CUDA graphs, traced as a whole")
    return found


def damaged(tally: dict[str, int]) -> list[str]:
    """Return what could not be read, each as a phrase with its number."""
    return [f"{words} ({tally[what]:,})" for what, words in DAMAGES.items() if tally.get(what)]
