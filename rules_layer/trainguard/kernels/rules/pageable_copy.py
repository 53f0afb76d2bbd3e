"""Copies use pageable memory."""

import re

import numpy as np

from trainguard.core.finding import Severity
from trainguard.kernels.columns import Ints, Kind
from trainguard.kernels.intervals import Spans, intersection
from trainguard.kernels.memory_operations import kind_of
from trainguard.kernels.rules.evidence import by_name
from trainguard.kernels.rules.finding import Judged, JudgedGpu, KernelFinding
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import Saying, portion
from trainguard.kernels.rules.thresholds import Share
from trainguard.ledger.bucket import Bucket
from trainguard.rules.rule_result import Measure

_ASYNCHRONOUS = re.compile(r"(cuda|hip|cu)Memcpy\w*Async")


class PageableCopy(RankRule):
    """Fires where asynchronous copies are from or to pageable host memory.

    CUDA copies such memory through a buffer of its own, so that the call waits; a call that is meant to wait is another
    matter.
    """

    title = "Copies from pageable memory"
    fires_when = "copies from or to pageable memory take {least} of the time"
    measure = Measure("share of the window in such copies")
    claims = (Bucket.HOST,)
    says = (
        Saying(
            "pageable_copy",
            "Asynchronous copies from or to pageable memory take {pageable_share} of the time.",
            advice="Set pin_memory=True in the DataLoader, and copy with non_blocking=True.",
            clause="copies used pageable memory",
        ),
    )

    least: Share = 0.01
    medium: Share = 0.1

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where such copies take a part of the window; of several GPUs the mean."""
        rows = judged.trace.gpu.rows
        mask = np.zeros(len(rows), dtype=np.bool_)
        mask[_pageable_rows(judged)] = True
        lasted = int((rows.end[mask] - rows.start[mask]).sum()) // judged.metrics.counted
        share = judged.metrics.share(lasted)
        if share < self.least:
            return None
        return self.found(
            [portion("pageable_share", share, self.least)],
            severity=Severity.LOW if share < self.medium else Severity.MEDIUM,
            evidence=by_name(judged, mask),
            gain=judged.gain(lasted),
        )

    def stretches(self, gpu: JudgedGpu) -> Spans:
        """Return when the GPU only makes such copies."""
        return intersection(gpu.copies_alone, gpu.runs(_pageable_rows(gpu.judged)))


def _pageable_rows(judged: Judged) -> Ints:
    trace, rows = judged.trace, judged.trace.gpu.rows
    pageable = [place for place, name in enumerate(trace.names) if kind_of(name)[1] == "Pageable"]
    asynchronous = [place for place, name in enumerate(trace.names) if _ASYNCHRONOUS.search(name)]
    mask = judged.metrics.in_window & (trace.gpu.kind == Kind.MEMCPY) & np.isin(rows.name, pageable)
    copies = np.flatnonzero(mask & (judged.window.launch >= 0))
    calls = trace.launches.name[judged.window.launch[copies]]
    return copies[np.isin(calls, asynchronous)]
