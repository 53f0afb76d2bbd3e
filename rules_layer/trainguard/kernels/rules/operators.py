"""Operators take much longer than the GPU needs for their shapes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainguard.core.finding import Fact, Severity
from trainguard.kernels.columns import Ints
from trainguard.kernels.costs import short_shapes
from trainguard.kernels.device_entries import PeaksEntry
from trainguard.kernels.entries import KernelFinding, OperatorEntry
from trainguard.kernels.formulas.attention import ATTENTION
from trainguard.kernels.formulas.shapes import Measured, Reason, Why, strided_copy, why_slow
from trainguard.kernels.operators import Called, least_seconds
from trainguard.kernels.peaks import peaks_entry
from trainguard.kernels.rules.experts import uneven_groups
from trainguard.kernels.rules.finding import SHOWN, JudgedRank
from trainguard.kernels.rules.operator_forms import (
    FORMS,
    REACHED_BYTES,
    SPREAD_TOKENS,
    Saved,
    arithmetic_of,
    forms_of,
    margin_of,
    named,
)
from trainguard.kernels.rules.rule import RankRule, Share, portion
from trainguard.kernels.rules.text import Saying
from trainguard.kernels.times.gpu_times import TraceGpuTime
from trainguard.kernels.times.intervals import Spans
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import Measure

# The start and the end of a kernel take microseconds: shorter calls are not compared.
SHORTEST_NS = 10_000


@dataclass(frozen=True, slots=True)
class _Slow:
    """An operator with what it reaches of what good kernels do, and the nanoseconds that these would save.

    ``calls`` are those that are slow, and ``rows`` theirs: all, or single ones beside fast ones with the same shapes.
    """

    called: Called
    reached: float
    saved_ns: float
    calls: int
    rows: Ints
    by_memory: bool

    @property
    def are_single(self) -> bool:
        return self.calls < self.called.entry.count


# What a summary says about the shape, and the advice.
_SAID: Mapping[Reason, tuple[str, str]] = {
    Reason.MISALIGNED: (
        ": its dimension of {odd_size} is not aligned, as {faster_shape} would be",
        "Pad dimensions to multiples of 8, better of 64.",
    ),
    Reason.NARROW: (
        ": memory bounds a product with a dimension of {narrowest}",
        "Join products that share a matrix, or use a larger batch.",
    ),
    Reason.FEW_TILES: (
        ": its result has {tiles} tiles of side {tile_side} for {multiprocessors} multiprocessors",
        "Split the inner dimension (split-K), batch such products, or use a larger batch.",
    ),
    Reason.TILES: (
        ": its result, {narrowest} on a side, fills tiles of side {tile_side} in part, {faster_shape} fills them",
        "Use a larger batch, or dimensions that are multiples of the tile's side.",
    ),
    Reason.WAVES: (
        ": its {tiles} tiles fill the last wave of {multiprocessors} in part, {faster_shape} fills it",
        "Choose dimensions whose tiles fill the last wave, such as another batch.",
    ),
    Reason.FEW_ROWS: (
        ": {experts} experts share {rows} rows",
        SPREAD_TOKENS,
    ),
    Reason.UNEVEN: (
        ": {groups} products with such a matrix have from few to {most_rows} rows, {mean_rows} on average",
        "Compute all experts at once, as torch._grouped_mm does, and balance tokens by the router's auxiliary loss.",
    ),
    Reason.SINGLE: (
        " in {slow_calls} of {calls} calls, and others with these shapes are fast",
        "Look at what differs there: indices that collide or lie far apart, clocks, other work on the GPU.",
    ),
    Reason.HEADS: (": its heads are {head_width} wide", "Use heads of 64 or 128, for which fast kernels exist."),
    Reason.SHORT: (
        ": its sequences are {sequence} long",
        "Pack short sequences together, or use a larger batch.",
    ),
    Reason.ATTENTION: ("", "Try another kernel: FlashAttention 3 or cuDNN, on AMD AITER's or Composable Kernel's."),
    Reason.DEPTHWISE: (
        ": each of its {channels} channels is convolved alone",
        "Use channels_last, a fused depthwise kernel, or fewer groups.",
    ),
    Reason.CHANNELS: (
        ": it has {channels} channels in and {channels_out} out",
        "Pad channels to multiples of 8, better of 64, and use channels_last.",
    ),
    Reason.SMALL_IMAGES: (": its images have {positions} positions", "Use a larger batch, and channels_last."),
    Reason.CONVOLUTION: ("", "Use channels_last, and cudnn.benchmark or MIOpen's find mode."),
    Reason.STRIDED: (
        ": its tensor is not contiguous, neighbours lie {stride} elements apart",
        "Keep tensors in the order in which they are used: leave out .contiguous(), or permute smaller tensors.",
    ),
    Reason.MEMORY: ("", "Fuse it with its neighbours by torch.compile, or join many small calls."),
    Reason.UNKNOWN: ("", "Try torch.compile with max-autotune, or another library's kernel."),
}


def _kind(reason: Reason) -> str:
    return f"slow_operators_{reason}"


class SlowOperators(RankRule):
    title = "Slow operators"
    change = ChangeCode.FASTER_OPERATORS
    changes: ClassVar[Mapping[str, ChangeCode]] = dict.fromkeys(
        (f"slow_operators_{each}" for each in ("few_rows", "uneven", "starved", "unused")), ChangeCode.BALANCE_EXPERTS
    ) | {"slow_operators_unfused": ChangeCode.FUSE_KERNELS}
    fires_when = (
        "operators with recorded shapes that reach under {enough} (attention {enough_attention}) of what good kernels "
        "do cost {least} of the time; else experts that share few rows, or of which a router uses three in four at "
        "most, or attention in its math form take {least}, or chains of operators on single elements would save "
        "{least} as one kernel"
    )
    measure = Measure("share of the window that good kernels would save")
    says = (
        tuple(
            Saying(
                _kind(reason),
                f"{{operator}} ({{shapes}}) reaches {{reached_share}} of what good kernels do{said}; such operators "
                "cost {saved_share} of the time.",
                advice,
                "operators were much slower than the GPU allows",
            )
            for reason, (said, advice) in _SAID.items()
        )
        + FORMS
    )

    least: Share = 0.1
    medium: Share = 0.25
    enough: Share = 0.6
    enough_attention: Share = 0.45

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        found = self._saved(judged)
        if found is None:
            return None
        share = judged.share(found.saved_ns)
        return self.found(
            [portion(found.measured, judged.share(found.measured_ns), self.least), *found.facts],
            kind=found.kind,
            severity=Severity.MEDIUM if share >= self.medium else Severity.LOW,
            evidence=[judged.runs(what, rows) for what, rows in found.shown[:SHOWN]],
            gain=judged.gain(found.saved_ns),
        )

    def stretches(self, judged: JudgedRank, gpu: TraceGpuTime) -> Spans:
        found = self._saved(judged)
        empty = np.empty(0, dtype=np.int64)
        rows = [] if found is None or not found.saved_ns else [each for _, each in found.shown]
        return judged.when(np.concatenate([empty, *rows]), gpu)

    def _saved(self, judged: JudgedRank) -> Saved | None:
        """Return the first of slow operators and of the forms that others run in that costs enough time."""
        for found in (self._slow_ones(judged), *forms_of(judged)):
            if found is not None and judged.share(found.measured_ns) >= self.least:
                return found
        return None

    def _slow_ones(self, judged: JudgedRank) -> Saved | None:
        slow = self._slow(judged)
        if not slow:
            return None
        entry = slow[0].called.entry
        why = self._why(judged, slow[0])
        saved = min(sum(each.saved_ns for each in slow) / judged.counted, judged.compute_ns)
        return Saved(
            kind=_kind(why.reason),
            measured="saved_share",
            measured_ns=saved,
            saved_ns=saved,
            facts=[
                portion("reached_share", slow[0].reached, self._enough(entry, peaks_entry(judged.trace.gpus))),
                Fact(name="operator", value=entry.name),
                Fact(name="shapes", value=short_shapes(entry.shapes)),
                *(Fact(name=name, value=value) for name, value in why.numbers.items()),
                *([Fact(name="faster_shape", value=why.faster)] if why.faster else []),
            ],
            shown=[(named(each.called.entry), each.rows) for each in slow],
        )

    def _why(self, judged: JudgedRank, slow: _Slow) -> Why:
        entry = slow.called.entry
        if slow.are_single:
            return Why(Reason.SINGLE, {"slow_calls": slow.calls, "calls": entry.count})
        sms = judged.trace.gpus[0].sms if judged.trace.gpus else 0
        measured = Measured(sms, slow.reached, slow.by_memory)
        return (
            uneven_groups(judged, entry)
            or strided_copy(entry.name, slow.called.inputs)
            or why_slow(entry.name, entry.shapes, measured)
        )

    def _enough(self, entry: OperatorEntry, peaks: PeaksEntry | None) -> float:
        enough = self.enough_attention if entry.name in ATTENTION else self.enough
        return enough if peaks is None else margin_of(peaks) * enough

    def _slow(self, judged: JudgedRank) -> list[_Slow]:
        peaks = peaks_entry(judged.trace.gpus)
        if peaks is None:
            return []
        found = [slow for called in judged.operators if (slow := self._of(judged, called, peaks)) is not None]
        return sorted(found, key=lambda each: -each.saved_ns)

    def _of(self, judged: JudgedRank, called: Called, peaks: PeaksEntry) -> _Slow | None:
        entry = called.entry
        needs = least_seconds(entry, peaks)
        if needs is None or entry.unrated in ("algorithm", "not_moved") or entry.kernel_ns < SHORTEST_NS * entry.count:
            return None
        computes, moves = needs[0] / arithmetic_of(peaks) * 1e9, needs[1] / REACHED_BYTES * 1e9
        good_ns = max(computes, moves)
        reached = good_ns / entry.kernel_ns
        by_memory = moves > computes
        if reached < self._enough(entry, peaks):
            return _Slow(called, reached, entry.kernel_ns - good_ns, entry.count, called.rows, by_memory)
        return self._single(judged, called, good_ns / entry.count, self._enough(entry, peaks), by_memory)

    def _single(
        self, judged: JudgedRank, called: Called, good_ns: float, enough: float, by_memory: bool
    ) -> _Slow | None:
        """Return single calls that are slow, unless the GPU communicates beside them and shares its multiprocessors."""
        columns, rows = judged.trace.gpu, called.rows
        _, which = np.unique(judged.operator[rows], return_inverse=True)
        lasted = np.bincount(which, weights=columns.end[rows] - columns.start[rows])
        shared = judged.communicating.within(columns.start[rows], columns.end[rows])
        slow = (good_ns < enough * lasted) & (np.bincount(which, weights=shared) == 0)
        if not slow.any():
            return None
        total, calls = float(lasted[slow].sum()), int(slow.sum())
        return _Slow(called, good_ns * calls / total, total - good_ns * calls, calls, rows[slow[which]], by_memory)
