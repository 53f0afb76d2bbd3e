"""Rules on the GPU's time: is it idle, and because of what on the host."""

import numpy as np

from trainguard.finding import Fact, Severity
from trainguard.kernels.columns import Kind
from trainguard.kernels.findings.finding import FAMILY, SHOWN, Evidence, Judged, KernelFinding, percent, severity
from trainguard.kernels.findings.host_work import caller_of, work_under
from trainguard.kernels.findings.text import MICROSECONDS, MILLISECONDS, KernelKind, portion, said
from trainguard.kernels.gpu_times import busy_shares
from trainguard.kernels.intervals import Spans, gaps

BUSY_LEAST, BUSY_ENOUGH = 0.5, 0.7
PARTS = 30
"""Of the window; the least busy ones are evidence."""

LONG_GAP_NS, GAP_OF_STEP = 500_000_000, 0.1
LOADER_MOST, LOADER_HIGH = 0.05, 0.2
SHOWN_WAIT = 0.01
"""A shorter wait for data is not worth a word."""

HOST_WAIT_LEAST, DELAY_MOST_NS = 0.5, 10_000
STORM_KERNELS, STORM_SHORT, STORM_BUSY = 300, 0.5, 0.9
SYNC_MOST, SYNC_IDLE_MOST = 0.1, 0.05


def gpu_busy_low(judged: Judged) -> KernelFinding | None:
    """Fire where the GPU is busy less than 70 % of the window; below 50 % it matters more."""
    busy = judged.metrics.share(judged.metrics.busy_ns)
    if not judged.has_gpu or busy >= BUSY_ENOUGH:
        return None
    idle = judged.window.length - judged.metrics.busy_ns
    return KernelFinding(
        id=FAMILY + "GpuBusyLow",
        severity=Severity.MEDIUM if busy < BUSY_LEAST else Severity.LOW,
        value=round(busy, 4),
        threshold=BUSY_LEAST if busy < BUSY_LEAST else BUSY_ENOUGH,
        **said(
            KernelKind.GPU_BUSY_LOW,
            portion("busy_share", busy, BUSY_LEAST if busy < BUSY_LEAST else BUSY_ENOUGH),
            Fact(name="gpus", value=judged.metrics.counted),
            *_least_busy(judged),
        ),
        evidence=_worst_parts(judged),
        gain=judged.gain(idle),
    )


def gpu_gap(judged: Judged) -> KernelFinding | None:
    """Fire where the GPU is idle at a stretch for 500 ms, or for more than a tenth of the median step."""
    long = long_gaps(judged)
    if not judged.has_gpu or not len(long.start):
        return None
    longest, limit = int((long.end - long.start).max()), _gap_limit(judged)
    return KernelFinding(
        id=FAMILY + "GpuGap",
        severity=severity(judged.metrics.share(long.total), 0.1, 0.3),
        value=round(longest / 1e6, 3),
        threshold=round(limit / 1e6, 3),
        **said(
            KernelKind.GPU_GAP,
            Fact(
                name="longest_gap",
                value=round(longest / 1e6, 3),
                unit=MILLISECONDS,
                threshold=round(limit / 1e6, 3),
            ),
            Fact(name="gaps", value=len(long.start)),
        ),
        evidence=_longest_gaps(judged, long),
        gain=judged.gain(long.total),
    )


def long_gaps(judged: Judged) -> Spans:
    """Return the stretches in which no GPU is busy that last 500 ms, or more than a tenth of the median step."""
    found = _gaps(judged)
    lasted, limit = found.end - found.start, _gap_limit(judged)
    over = (lasted >= LONG_GAP_NS) | (lasted > limit)
    return Spans(found.start[over], found.end[over])


def _gap_limit(judged: Judged) -> float:
    steps = judged.window.steps
    tenth = GAP_OF_STEP * float(np.median(steps.end - steps.start)) if len(steps) else LONG_GAP_NS
    return min(float(LONG_GAP_NS), tenth)


def loader_bound(judged: Judged) -> KernelFinding | None:
    """Fire where a step waits more than 5 % of its time for the data loader, with nothing on the GPU."""
    waiting = judged.metrics.loader_alone()
    share = judged.metrics.share(waiting.total)
    if share <= LOADER_MOST:
        return None
    return KernelFinding(
        id=FAMILY + "LoaderBound",
        severity=severity(share, LOADER_MOST, LOADER_HIGH),
        value=round(share, 4),
        threshold=LOADER_MOST,
        **said(KernelKind.LOADER_BOUND, portion("loader_share", share, LOADER_MOST)),
        evidence=_longest(judged, "data loader, GPU idle", waiting),
        gain=judged.gain(waiting.total),
    )


def launch_bound(judged: Judged) -> KernelFinding | None:
    """Fire where the GPU is often idle, mostly because the host launches too late, and no queue forms.

    A host that waits for data launches nothing: that time is the loader's, and counts nowhere here.
    """
    metrics = judged.metrics
    window_ns = judged.window.length - metrics.loader_idle_ns
    busy = metrics.busy_ns / window_ns if window_ns else 1.0
    idle = window_ns - metrics.busy_ns
    late = metrics.host_idle_ns / idle if idle else 0.0
    delays = metrics.delays.after_call
    if busy >= BUSY_ENOUGH or late < HOST_WAIT_LEAST or not len(delays) or np.median(delays) >= DELAY_MOST_NS:
        return None
    waits = metrics.share(metrics.loader_idle_ns)
    beside = [portion("waits_for_data_share", waits)] if waits >= SHOWN_WAIT else []
    queue = sum(stream.queue.mean(judged.window) for stream in metrics.streams)
    return KernelFinding(
        id=FAMILY + "LaunchBound",
        severity=severity(metrics.share(idle), 1 - BUSY_ENOUGH, 1 - BUSY_LEAST),
        value=round(float(np.median(delays)) / 1e3, 3),
        threshold=DELAY_MOST_NS / 1e3,
        **said(
            KernelKind.LAUNCH_BOUND,
            Fact(
                name="launch_delay",
                value=round(float(np.median(delays)) / 1e3, 3),
                unit=MICROSECONDS,
                threshold=DELAY_MOST_NS / 1e3,
            ),
            Fact(name="queued_launches", value=round(float(queue), 3)),
            portion("host_share", late, HOST_WAIT_LEAST),
            *beside,
        ),
        evidence=_longest_gaps(judged, _gaps(judged)),
        gain=judged.gain(metrics.host_idle_ns),
    )


def small_kernel_storm(judged: Judged) -> KernelFinding | None:
    """Fire where steps have hundreds of kernels, most of them shorter than the call that launches them."""
    metrics = judged.metrics
    window_ns = judged.window.length - metrics.loader_idle_ns
    busy = metrics.busy_ns / window_ns if window_ns else 1.0
    runs = int((metrics.in_window & (judged.trace.gpu.kind <= Kind.COMMUNICATION)).sum())
    kernels = runs / judged.steps / metrics.counted
    short = metrics.delays.short_calls
    share = float(short.mean()) if len(short) else 0.0
    if kernels < STORM_KERNELS or share < STORM_SHORT or busy >= STORM_BUSY:
        return None
    lines = sorted(judged.table.compute, key=lambda line: -line.short_count)
    return KernelFinding(
        id=FAMILY + "SmallKernelStorm",
        severity=Severity.MEDIUM,
        value=round(share, 4),
        threshold=STORM_SHORT,
        **said(
            KernelKind.SMALL_KERNEL_STORM,
            portion("short_share", share, STORM_SHORT),
            Fact(name="kernels_per_step", value=round(kernels, 1), threshold=STORM_KERNELS),
            Fact(name="gpus", value=metrics.counted),
        ),
        evidence=judged.lines(lines),
        gain=judged.gain(window_ns - metrics.busy_ns),
    )


def sync_stall(judged: Judged) -> KernelFinding | None:
    """Fire where the host waits for the GPU, and the GPU is idle meanwhile or right after."""
    metrics = judged.metrics
    waiting, idle = metrics.share(metrics.host_sync.total), metrics.share(metrics.sync_idle_ns)
    if waiting < SYNC_MOST or idle < SYNC_IDLE_MOST:
        return None
    return KernelFinding(
        id=FAMILY + "SyncStall",
        severity=severity(idle, SYNC_IDLE_MOST, 0.2),
        value=round(waiting, 4),
        threshold=SYNC_MOST,
        **said(
            KernelKind.SYNC_STALL,
            portion("waiting_share", waiting, SYNC_MOST),
            portion("idle_share", idle, SYNC_IDLE_MOST),
            Fact(name="after_wait", value=1, unit=MILLISECONDS),
        ),
        evidence=_waits(judged),
        gain=judged.gain(metrics.sync_idle_ns),
    )


def _least_busy(judged: Judged) -> list[Fact]:
    """Return which GPU is least busy, where there are several."""
    counted = [gpu for gpu in judged.metrics.gpus if gpu.counted]
    if len(counted) < 2:
        return []
    least = min(counted, key=lambda gpu: gpu.busy.total)
    return [portion("least_busy_share", judged.metrics.share(least.busy.total), device=f"gpu{least.number}")]


def _worst_parts(judged: Judged) -> list[Evidence]:
    """Return the parts of the window in which the GPU is least busy, with what the host does."""
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


def _gaps(judged: Judged) -> Spans:
    return gaps(judged.metrics.busy, judged.window.start, judged.window.end)


def _longest_gaps(judged: Judged, found: Spans) -> list[Evidence]:
    evidence = []
    for start, end in _ordered(found):
        host = work_under(judged.trace, start, end)
        said = f"GPU idle, host {host}" if host else "GPU idle, host in nothing that was recorded"
        evidence.append(judged.stretch(said, start, end))
    return evidence


def _waits(judged: Judged) -> list[Evidence]:
    """Return the longest calls that wait for the GPU, with the operators that made them."""
    launches, trace = judged.trace.launches, judged.trace
    waits = np.flatnonzero(judged.metrics.waiting_calls)
    evidence = []
    for place in waits[np.argsort((launches.start - launches.end)[waits], kind="stable")][:SHOWN].tolist():
        caller = caller_of(trace, place)
        what = trace.names[int(launches.name[place])] + (f" of {caller}" if caller else "")
        evidence.append(judged.stretch(what, int(launches.start[place]), int(launches.end[place])))
    return evidence


def _longest(judged: Judged, what: str, found: Spans) -> list[Evidence]:
    return [judged.stretch(what, start, end) for start, end in _ordered(found)]


def _ordered(found: Spans) -> list[tuple[int, int]]:
    order = np.argsort(found.start - found.end, kind="stable")[:SHOWN]
    return [(int(found.start[place]), int(found.end[place])) for place in order]
