"""Operators take much longer than the GPU needs for their shapes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainguard.core.finding import Fact, Severity
from trainguard.kernels.columns import Ints
from trainguard.kernels.costs import short_shapes
from trainguard.kernels.entries import KernelFinding, OperatorEntry
from trainguard.kernels.formulas.attention import ATTENTION
from trainguard.kernels.formulas.shapes import Measured, Reason, Why, why_slow
from trainguard.kernels.operators import Called, least_seconds
from trainguard.kernels.peaks import peaks_entry
from trainguard.kernels.rollup_entries import PeaksEntry
from trainguard.kernels.rules.experts import uneven_groups
from trainguard.kernels.rules.finding import SHOWN, Judged, rows_of
from trainguard.kernels.rules.rule import RankRule, portion
from trainguard.kernels.rules.text import Saying
from trainguard.kernels.rules.thresholds import Share
from trainguard.kernels.rules.unfused import MATH_ATTENTION, chains_of, math_attention
from trainguard.kernels.times.gpu_times import GpuTime
from trainguard.kernels.times.intervals import Spans
from trainguard.rules.rule_result import Measure

REACHED, REACHED_AMD, REACHED_BYTES = 0.75, 0.54, 0.85
"""What good kernels reach of a data sheet: of arithmetic (AMD: 708 of MI300X's 1,307 TFLOP/s, TraceLens), of memory."""

UNCONFIRMED = 0.9
"""Of a peak that others quote: an operator must be slower by a tenth more."""

SHORTEST_NS = 10_000
"""The start and the end of a kernel take microseconds: shorter calls are not compared."""

_AMD = re.compile(r"AMD|Instinct", re.IGNORECASE)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """What other kernels would save, in nanoseconds, and what is measured by it; ``shown`` are the rows by name."""

    kind: str
    measured: str
    measured_ns: float
    saved_ns: float
    facts: list[Fact]
    shown: list[tuple[str, Ints]]


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
        "Route more tokens at once (a larger batch), or spread experts over ranks.",
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
    Reason.MEMORY: ("", "Fuse it with its neighbours by torch.compile, or join many small calls."),
    Reason.UNKNOWN: ("", "Try torch.compile with max-autotune, or another library's kernel."),
}
"""What a summary says about the shape, and the advice."""


def _kind(reason: Reason) -> str:
    return f"slow_operators_{reason}"


_UNFUSED = (
    Saying(
        "slow_operators_math_attention",
        "{math_share} of the time attention runs as single operators ({operator}), which write its scores to memory.",
        "Let scaled_dot_product_attention choose FlashAttention or cuDNN: BF16 inputs, and is_causal=True in the place "
        "of a mask; or use FlexAttention.",
        "attention ran without a fused kernel",
    ),
    Saying(
        "slow_operators_unfused",
        "Chains of {operator} over {shapes} read and write tensors of the same size one after the other: one kernel "
        "would save up to {saved_share} of the time.",
        "Fuse them by torch.compile, or use an operator that does it all, such as gelu(approximate='tanh').",
        "operators in a row were not fused",
    ),
    Saying(
        "slow_operators_layout",
        "{layout_share} of the time tensors are turned between NCHW and NHWC around convolutions ({operator}).",
        "Keep model and batches in one layout: .to(memory_format=torch.channels_last).",
        "tensors were turned from one layout to another",
    ),
)


class SlowOperators(RankRule):
    title = "Slow operators"
    fires_when = (
        "operators with recorded shapes that reach under {enough} (attention {enough_attention}) of what good kernels "
        "do cost {least} of the time; else attention in its math form takes {least}, or chains of operators on "
        "single elements would save {least} as one kernel"
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
        + _UNFUSED
    )

    least: Share = 0.1
    medium: Share = 0.25
    enough: Share = 0.6
    enough_attention: Share = 0.45

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
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

    def stretches(self, judged: Judged, gpu: GpuTime) -> Spans:
        found = self._saved(judged)
        empty = np.empty(0, dtype=np.int64)
        rows = [] if found is None else [each for _, each in found.shown]
        return judged.when(np.concatenate([empty, *rows]), gpu)

    def _saved(self, judged: Judged) -> _Saved | None:
        """Return the first of slow operators, math attention, chains and turned layouts that costs enough time."""
        for found in (self._slow_ones(judged), _in_math_form(judged), _unfused(judged), _turned(judged)):
            if found is not None and judged.share(found.measured_ns) >= self.least:
                return found
        return None

    def _slow_ones(self, judged: Judged) -> _Saved | None:
        slow = self._slow(judged)
        if not slow:
            return None
        entry = slow[0].called.entry
        why = self._why(judged, slow[0])
        saved = min(sum(each.saved_ns for each in slow) / judged.counted, judged.compute_ns)
        return _Saved(
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
            shown=[(_named(each.called.entry), each.rows) for each in slow],
        )

    def _why(self, judged: Judged, slow: _Slow) -> Why:
        entry = slow.called.entry
        if slow.are_single:
            return Why(Reason.SINGLE, {"slow_calls": slow.calls, "calls": entry.count})
        sms = judged.trace.gpus[0].sms if judged.trace.gpus else 0
        measured = Measured(sms, slow.reached, slow.by_memory)
        return uneven_groups(judged, entry) or why_slow(entry.name, entry.shapes, measured)

    def _enough(self, entry: OperatorEntry, peaks: PeaksEntry | None) -> float:
        enough = self.enough_attention if entry.name in ATTENTION else self.enough
        return enough if peaks is None or peaks.confirmed else UNCONFIRMED * enough

    def _slow(self, judged: Judged) -> list[_Slow]:
        """Return the operators below the threshold, those that would save most first."""
        peaks = peaks_entry(judged.trace.gpus)
        if peaks is None:
            return []
        found = [slow for called in judged.operators if (slow := self._of(judged, called, peaks)) is not None]
        return sorted(found, key=lambda each: -each.saved_ns)

    def _of(self, judged: Judged, called: Called, peaks: PeaksEntry) -> _Slow | None:
        entry = called.entry
        needs = least_seconds(entry, peaks)
        if needs is None or entry.unrated in ("algorithm", "not_moved") or entry.kernel_ns < SHORTEST_NS * entry.count:
            return None
        arithmetic = REACHED_AMD if _AMD.search(peaks.gpu) else REACHED
        computes, moves = needs[0] / arithmetic * 1e9, needs[1] / REACHED_BYTES * 1e9
        good_ns = max(computes, moves)
        reached = good_ns / entry.kernel_ns
        by_memory = moves > computes
        if reached < self._enough(entry, peaks):
            return _Slow(called, reached, entry.kernel_ns - good_ns, entry.count, called.rows, by_memory)
        return self._single(judged, called, good_ns / entry.count, self._enough(entry, peaks), by_memory)

    def _single(self, judged: Judged, called: Called, good_ns: float, enough: float, by_memory: bool) -> _Slow | None:
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


def _named(entry: OperatorEntry) -> str:
    return f"{entry.name} {short_shapes(entry.shapes)}"


def _in_math_form(judged: Judged) -> _Saved | None:
    """Return attention in its math form: a fused kernel takes less than half of its time."""
    rows = math_attention(judged)
    if not len(rows):
        return None
    total = int((judged.trace.gpu.end[rows] - judged.trace.gpu.start[rows]).sum()) / judged.counted
    return _Saved(
        kind="slow_operators_math_attention",
        measured="math_share",
        measured_ns=total,
        saved_ns=total / 2,
        facts=[Fact(name="operator", value=MATH_ATTENTION)],
        shown=[(MATH_ATTENTION, rows)],
    )


_TURNS = re.compile(r"nchwtonhwc|nhwctonchw|batched_transpose_\d", re.IGNORECASE)
"""Kernels of cuDNN and MIOpen that turn images from one layout to the other."""


def _turned(judged: Judged) -> _Saved | None:
    lines = [line for line in judged.compute if _TURNS.search(line.name)]
    if not lines:
        return None
    rows = rows_of(lines)
    callers = np.unique(judged.operator[rows], return_counts=True)
    caller = int(callers[0][callers[1].argmax()])
    trace = judged.trace
    total = sum(line.total_ns for line in lines) / judged.counted
    return _Saved(
        kind="slow_operators_layout",
        measured="layout_share",
        measured_ns=total,
        saved_ns=total,
        facts=[Fact(name="operator", value=lines[0].name if caller < 0 else trace.names[trace.operators.name[caller]])],
        shown=[(line.name, line.rows) for line in lines],
    )


def _unfused(judged: Judged) -> _Saved | None:
    peaks = peaks_entry(judged.trace.gpus)
    chains = [] if peaks is None else chains_of(judged, peaks)
    if not chains:
        return None
    saved = min(sum(each.saved_ns for each in chains) / judged.counted, judged.compute_ns)
    return _Saved(
        kind="slow_operators_unfused",
        measured="saved_share",
        measured_ns=saved,
        saved_ns=saved,
        facts=[
            Fact(name="operator", value=chains[0].names),
            Fact(name="shapes", value=short_shapes(chains[0].shapes)),
        ],
        shown=[(each.names, each.rows) for each in chains],
    )
