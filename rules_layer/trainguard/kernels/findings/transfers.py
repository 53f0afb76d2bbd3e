"""Rules on what moves data: between ranks, and between host and GPU."""

import re

import numpy as np

from trainguard.finding import Severity
from trainguard.kernels.collectives import collectives_of
from trainguard.kernels.columns import Bools, Ints, Kind
from trainguard.kernels.findings.finding import FAMILY, SHOWN, Evidence, Judged, KernelFinding, percent, severity
from trainguard.kernels.findings.text import KernelKind, portion, said
from trainguard.kernels.memory_operations import kind_of

EXPOSED_MOST, EXPOSED_HIGH = 0.1, 0.25
COMMUNICATION_LEAST, OVERLAP_LEAST = 0.1, 0.5
_ASYNCHRONOUS = re.compile(r"(cuda|hip|cu)Memcpy\w*Async")
MEMORY_MOST = 0.1
PAGEABLE_MOST = 0.01


def exposed_communication(judged: Judged) -> KernelFinding | None:
    """Fire where the GPU communicates a tenth of the time, either all of it without computing, or half of it.

    The value is the exposed share of the time; where that alone is allowed, the overlapping share of communication.
    """
    metrics = judged.metrics
    share = metrics.share(metrics.exposed_communication_ns)
    communicating = metrics.share(metrics.communication_ns)
    overlap = metrics.overlap_ns / metrics.communication_ns if metrics.communication_ns else 1.0
    much = share >= EXPOSED_MOST
    if not much and not (communicating >= COMMUNICATION_LEAST and overlap < OVERLAP_LEAST):
        return None
    return KernelFinding(
        id=FAMILY + "ExposedCommunication",
        severity=severity(share, EXPOSED_MOST, EXPOSED_HIGH),
        value=round(share if much else overlap, 4),
        threshold=EXPOSED_MOST if much else OVERLAP_LEAST,
        **said(
            KernelKind.EXPOSED_COMMUNICATION,
            portion("exposed_share", share, EXPOSED_MOST),
            portion("overlap_share", overlap, OVERLAP_LEAST),
        ),
        evidence=_collectives(judged),
        gain=judged.gain(metrics.exposed_communication_ns),
    )


def memcpy_bound(judged: Judged) -> KernelFinding | None:
    """Fire where the GPU only copies or sets memory for a tenth of the time."""
    share = judged.metrics.share(judged.metrics.exposed_memory_ns)
    if share < MEMORY_MOST:
        return None
    return KernelFinding(
        id=FAMILY + "MemcpyBound",
        severity=severity(share, MEMORY_MOST, 0.25),
        value=round(share, 4),
        threshold=MEMORY_MOST,
        **said(KernelKind.MEMCPY_BOUND, portion("copy_share", share, MEMORY_MOST)),
        evidence=_by_name(judged, judged.metrics.in_window & (judged.trace.gpu.kind >= Kind.MEMCPY)),
        gain=judged.gain(judged.metrics.exposed_memory_ns),
    )


def pageable_copy(judged: Judged) -> KernelFinding | None:
    """Fire where asynchronous copies from or to pageable host memory take 1 % of the time.

    CUDA copies such memory through a buffer of its own, so that the call waits; a call that is meant to wait is another
    matter.
    """
    rows = judged.trace.gpu.rows
    mask = np.zeros(len(rows), dtype=np.bool_)
    mask[pageable_rows(judged)] = True
    lasted = int((rows.end[mask] - rows.start[mask]).sum())
    lasted = lasted // judged.metrics.counted
    share = judged.metrics.share(lasted)
    if share < PAGEABLE_MOST:
        return None
    return KernelFinding(
        id=FAMILY + "PageableCopy",
        severity=Severity.LOW if share < MEMORY_MOST else Severity.MEDIUM,
        value=round(share, 4),
        threshold=PAGEABLE_MOST,
        **said(KernelKind.PAGEABLE_COPY, portion("pageable_share", share, PAGEABLE_MOST)),
        evidence=_by_name(judged, mask),
        gain=judged.gain(lasted),
    )


def pageable_rows(judged: Judged) -> Ints:
    """Return the GPU's rows of asynchronous copies from or to pageable host memory."""
    trace, rows = judged.trace, judged.trace.gpu.rows
    pageable = [place for place, name in enumerate(trace.names) if kind_of(name)[1] == "Pageable"]
    asynchronous = [place for place, name in enumerate(trace.names) if _ASYNCHRONOUS.search(name)]
    mask = judged.metrics.in_window & (trace.gpu.kind == Kind.MEMCPY) & np.isin(rows.name, pageable)
    copies = np.flatnonzero(mask & (judged.window.launch >= 0))
    calls = trace.launches.name[judged.window.launch[copies]]
    return copies[np.isin(calls, asynchronous)]


def _collectives(judged: Judged) -> list[Evidence]:
    """Return the collectives with most time, with what is known of them."""
    found = []
    for each in collectives_of(judged.metrics)[:SHOWN]:
        parts = [each.name, each.group, f"{each.group_size} ranks" if each.group_size else ""]
        parts.append(f"{percent(each.overlap_ns / each.total_ns)} overlaps" if each.total_ns else "")
        if each.bus_gb_per_s is not None:
            parts.append(f"{each.bus_gb_per_s:.2f} GB/s on the bus")
        what = ", ".join(part for part in parts if part)
        found.append(Evidence(what=what, duration_ns=each.total_ns, count=each.count))
    return found


def _by_name(judged: Judged, mask: Bools) -> list[Evidence]:
    gpu = judged.trace.gpu
    found = []
    for name in np.unique(gpu.rows.name[mask]):
        mine = mask & (gpu.rows.name == name)
        size = int(np.maximum(gpu.size[mine], 0).sum())
        lasted = int((gpu.rows.end[mine] - gpu.rows.start[mine]).sum())
        rate = f", {size:,} bytes, {size / lasted:.2f} GB/s" if size and lasted else ""
        found.append(judged.runs(judged.trace.names[int(name)] + rate, np.flatnonzero(mine)))
    return sorted(found, key=lambda each: -each.duration_ns)[:SHOWN]
