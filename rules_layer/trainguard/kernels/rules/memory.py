"""Copies take the GPU's time, or its memory is nearly full."""

import re
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from trainguard.core.finding import Severity
from trainguard.kernels.columns import Ints, WorkKind
from trainguard.kernels.entries import Evidence, KernelFinding
from trainguard.kernels.rules.finding import JudgedRank, by_name, severity
from trainguard.kernels.rules.rule import RankRule, Share, portion
from trainguard.kernels.rules.text import Saying, gpu_of, shown
from trainguard.kernels.times.gpu_times import TraceGpuTime
from trainguard.kernels.times.intervals import Spans, intersection
from trainguard.kernels.work import kind_of
from trainguard.ledger.bucket import Bucket
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import FactSheet, Measure

# From this share of the copies' time on it is pageable memory that slows them.
_MOSTLY = 0.5


class MemcpyBound(RankRule):
    """Fires where copies take the GPU's time; it advises to pin what is neither pinned nor on the GPU."""

    title = "Copies"
    change = ChangeCode.COPY_LESS
    fires_when = "the GPU only copies or sets memory for {least} of the time"
    measure = Measure("share of the window with copies alone")
    takes = "memory_alone"
    summary = "{copy_share} of the time the GPU only copies or sets memory."
    advice = "Keep data and optimizer state on the GPU, join small copies, and copy while the GPU computes."
    clause = "the GPU only copied memory for part of the time"
    changes: ClassVar[Mapping[str, ChangeCode]] = {"pageable_copies": ChangeCode.PIN_MEMORY}
    says = (
        Saying("memcpy_bound", summary, advice, clause),
        Saying(
            "pageable_copies",
            "{copy_share} of the time the GPU only copies or sets memory; {pageable_copy_share} of the copies' time is "
            "from or to pageable memory.",
            "Pin host memory (pin_memory=True in the DataLoader), and copy with non_blocking=True.",
            clause,
        ),
    )

    least: Share = 0.1
    high: Share = 0.25

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        share = judged.share(judged.exposed_memory_ns)
        if share < self.least:
            return None
        mask = judged.in_window & (judged.trace.gpu.kind >= WorkKind.MEMCPY)
        rows = judged.trace.gpu
        lasted = np.where(mask, rows.end - rows.start, 0)
        pageable = float(lasted[np.isin(rows.name, _pageable_names(judged))].sum() / max(lasted.sum(), 1))
        facts = [portion("copy_share", share, self.least), portion("pageable_copy_share", pageable, _MOSTLY)]
        return self.found(
            facts,
            severity=severity(share, self.least, self.high),
            evidence=by_name(judged, mask),
            gain=judged.gain(judged.exposed_memory_ns),
            kind="pageable_copies" if pageable >= _MOSTLY else "",
        )


def _pageable_names(judged: JudgedRank) -> Ints:
    return judged.trace.numbers_of(lambda name: kind_of(name)[1] == "Pageable")


_ASYNCHRONOUS = re.compile(r"(cuda|hip|cu)Memcpy\w*Async")


class PageableCopy(RankRule):
    """Fires where asynchronous copies are from or to pageable host memory.

    CUDA copies such memory through a buffer of its own, so that the call waits; a call that is meant to wait is another
    matter.
    """

    title = "Copies from pageable memory"
    change = ChangeCode.PIN_MEMORY
    fires_when = "copies from or to pageable memory take {least} of the time"
    measure = Measure("share of the window in such copies")
    claims = (Bucket.HOST,)
    summary = "Asynchronous copies from or to pageable memory take {pageable_share} of the time."
    advice = "Set pin_memory=True in the DataLoader, and copy with non_blocking=True."
    clause = "copies used pageable memory"

    least: Share = 0.01
    medium: Share = 0.1

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        rows = judged.trace.gpu
        mask = np.zeros(len(rows), dtype=np.bool_)
        mask[_pageable_rows(judged)] = True
        lasted = int((rows.end[mask] - rows.start[mask]).sum()) // judged.counted
        share = judged.share(lasted)
        if share < self.least:
            return None
        return self.found(
            [portion("pageable_share", share, self.least)],
            severity=Severity.LOW if share < self.medium else Severity.MEDIUM,
            evidence=by_name(judged, mask),
            gain=judged.gain(lasted),
        )

    def stretches(self, judged: JudgedRank, gpu: TraceGpuTime) -> Spans:
        return intersection(gpu.memory_alone, judged.when(_pageable_rows(judged), gpu))


def _pageable_rows(judged: JudgedRank) -> Ints:
    trace, rows, pageable = judged.trace, judged.trace.gpu, _pageable_names(judged)
    mask = judged.in_window & (trace.gpu.kind == WorkKind.MEMCPY) & np.isin(rows.name, pageable)
    copies = np.flatnonzero(mask & (judged.window.launch >= 0))
    calls = trace.launches.name[judged.window.launch[copies]]
    return copies[np.isin(calls, trace.numbers_of(_ASYNCHRONOUS.search))]


def _gpu_memory_full_summary(sheet: FactSheet) -> str:
    return f"{shown(sheet)['reserved_share']} of the memory of {gpu_of(sheet, 'reserved_share')} was reserved."


class GpuMemoryFull(RankRule):
    title = "GPU memory"
    change = ChangeCode.SAVE_MEMORY
    fires_when = "over {most} of a GPU's memory was reserved; needs profile_memory=True"
    measure = Measure("reserved share of the memory")
    is_steady = False
    summary = _gpu_memory_full_summary
    advice = "Leave room before the job runs out of memory: activation checkpointing, a smaller batch."
    clause = "a GPU's memory was nearly full"

    most: Share = 0.9

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
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
        )


def _most_reserved(judged: JudgedRank, device: int) -> Evidence | str:
    """Return the peak of a GPU's memory with its time, where that is in the window."""
    at, window = judged.trace.reserved_at.get(device), judged.window
    what = f"GPU {device}, {judged.trace.reserved[device]:,} bytes reserved"
    if at is None or not window.start <= at <= window.end:
        return what
    return judged.stretch(what, at, at)
