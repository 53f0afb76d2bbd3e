"""Rules on what moves data: between ranks, and between host and GPU."""

import numpy as np

from trainguard.finding import Severity
from trainguard.kernels.columns import Bools, Kind
from trainguard.kernels.findings.finding import FAMILY, SHOWN, Evidence, Judged, KernelFinding, percent, severity

EXPOSED_MOST, EXPOSED_HIGH = 0.1, 0.25
MEMORY_MOST = 0.1
PAGEABLE_MOST = 0.01


def exposed_communication(judged: Judged) -> KernelFinding | None:
    """Fire where the GPU communicates a tenth of the time without computing."""
    metrics = judged.metrics
    share = metrics.share(metrics.exposed_communication_ns)
    if share < EXPOSED_MOST:
        return None
    lines = [line for line in judged.table.lines if line.communication][:SHOWN]
    overlap = metrics.overlap_ns / metrics.communication.total
    return KernelFinding(
        id=FAMILY + "ExposedCommunication",
        severity=severity(share, EXPOSED_MOST, EXPOSED_HIGH),
        value=round(share, 4),
        threshold=EXPOSED_MOST,
        summary=f"{percent(share)} of the time the GPU communicates and does not compute;"
        f" {percent(overlap)} of the communication overlaps with computation.",
        evidence=[Evidence(what=line.name, duration_ns=line.total_ns, count=line.count) for line in lines],
        gain=judged.gain(metrics.exposed_communication_ns),
        recommendation="Overlap it: bucket size, prefetch, gradient accumulation; or send less: hierarchical or "
        "compressed collectives. A kernel that waits for a late rank looks the same: compare the ranks.",
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
        summary=f"{percent(share)} of the time the GPU only copies or sets memory.",
        evidence=_by_name(judged, judged.metrics.in_window & (judged.trace.gpu.kind >= Kind.MEMCPY)),
        gain=judged.gain(judged.metrics.exposed_memory_ns),
        recommendation="Keep data on the GPU, join small copies, pin host memory and copy with non_blocking=True.",
    )


def pageable_copy(judged: Judged) -> KernelFinding | None:
    """Fire where copies from or to pageable host memory take 1 % of the time."""
    names = [place for place, name in enumerate(judged.trace.names) if name.startswith("Memcpy") and "Pageable" in name]
    rows = judged.trace.gpu.rows
    mask = judged.metrics.in_window & np.isin(rows.name, np.array(names, dtype=np.int64))
    mask &= judged.trace.gpu.kind == Kind.MEMCPY
    lasted = int((rows.end[mask] - rows.start[mask]).sum())
    share = judged.metrics.share(lasted)
    if share < PAGEABLE_MOST:
        return None
    return KernelFinding(
        id=FAMILY + "PageableCopy",
        severity=Severity.LOW if share < MEMORY_MOST else Severity.MEDIUM,
        value=round(share, 4),
        threshold=PAGEABLE_MOST,
        summary=f"Copies from or to pageable memory take {percent(share)} of the time.",
        evidence=_by_name(judged, mask),
        gain=judged.gain(lasted),
        recommendation="Set pin_memory=True in the DataLoader, and copy with non_blocking=True.",
    )


def _by_name(judged: Judged, mask: Bools) -> list[Evidence]:
    gpu = judged.trace.gpu
    found = []
    for name in np.unique(gpu.rows.name[mask]):
        mine = mask & (gpu.rows.name == name)
        size = int(np.maximum(gpu.size[mine], 0).sum())
        lasted = int((gpu.rows.end[mine] - gpu.rows.start[mine]).sum())
        rate = f", {size:,} bytes, {size / lasted:.2f} GB/s" if size and lasted else ""
        what = judged.trace.names[int(name)] + rate
        found.append(Evidence(what=what, duration_ns=lasted, count=int(mine.sum())))
    return sorted(found, key=lambda each: -each.duration_ns)[:SHOWN]
