"""Operators take much longer than the GPU needs for their shapes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainguard.core.finding import Fact, Severity
from trainguard.kernels.costs import short_shapes
from trainguard.kernels.entries import KernelFinding, OperatorEntry, PeaksEntry
from trainguard.kernels.formulas.attention import ATTENTION
from trainguard.kernels.formulas.shapes import Reason, why_slow
from trainguard.kernels.operators import Called, least_seconds
from trainguard.kernels.peaks import peaks_entry
from trainguard.kernels.rules.finding import SHOWN, Judged, rows_of
from trainguard.kernels.rules.rule import RankRule, Saying, Share, portion
from trainguard.kernels.times.gpu_times import GpuTime
from trainguard.kernels.times.intervals import Spans
from trainguard.rules.rule_result import Measure

REACHED, REACHED_AMD, REACHED_BYTES = 0.75, 0.54, 0.85
"""What good kernels reach of a data sheet: of arithmetic (AMD: 708 of MI300X's 1,307 TFLOP/s, TraceLens), of memory."""

SHORTEST_NS = 10_000
"""The start and the end of a kernel take microseconds: shorter calls are not compared."""

_AMD = re.compile(r"AMD|Instinct", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Slow:
    """An operator with what it reaches of what good kernels do, and the nanoseconds that these would save."""

    called: Called
    reached: float
    saved_ns: float


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
        ": its result has {tiles} tiles for {multiprocessors} multiprocessors",
        "Split the inner dimension (split-K), batch such products, or use a larger batch.",
    ),
    Reason.WAVES: (
        ": {tiles} tiles leave the last wave over {multiprocessors} multiprocessors partly empty",
        "Choose dimensions whose tiles fill the last wave, such as another batch.",
    ),
    Reason.FEW_ROWS: (
        ": {experts} experts share {rows} rows",
        "Route more tokens at once (a larger batch), or spread experts over ranks.",
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


class SlowOperators(RankRule):
    title = "Slow operators"
    fires_when = (
        "operators with recorded shapes that reach under {enough} (attention {enough_attention}) of what good kernels "
        "do cost {least} of the time"
    )
    measure = Measure("share of the window that good kernels would save")
    says = tuple(
        Saying(
            _kind(reason),
            f"{{operator}} ({{shapes}}) reaches {{reached_share}} of what good kernels do{said}; such operators cost "
            "{saved_share} of the time.",
            advice,
            "operators were much slower than the GPU allows",
        )
        for reason, (said, advice) in _SAID.items()
    )

    least: Share = 0.1
    medium: Share = 0.25
    enough: Share = 0.6
    enough_attention: Share = 0.45

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        slow = self._slow(judged)
        saved = sum(each.saved_ns for each in slow) / judged.counted
        share = judged.share(min(saved, judged.compute_ns))
        if not slow or share < self.least:
            return None
        entry = slow[0].called.entry
        sms = judged.trace.gpus[0].sms if judged.trace.gpus else 0
        why = why_slow(entry.name, entry.shapes, sms)
        return self.found(
            [
                portion("saved_share", share, self.least),
                portion("reached_share", slow[0].reached, self._enough(entry)),
                Fact(name="operator", value=entry.name),
                Fact(name="shapes", value=short_shapes(entry.shapes)),
                *(Fact(name=name, value=value) for name, value in why.numbers.items()),
                *([Fact(name="faster_shape", value=why.faster)] if why.faster else []),
            ],
            kind=_kind(why.reason),
            severity=Severity.MEDIUM if share >= self.medium else Severity.LOW,
            evidence=[judged.runs(_named(each.called.entry), each.called.rows) for each in slow[:SHOWN]],
            gain=judged.gain(min(saved, judged.compute_ns)),
        )

    def stretches(self, judged: Judged, gpu: GpuTime) -> Spans:
        return judged.when(rows_of([each.called for each in self._slow(judged)]), gpu)

    def _enough(self, entry: OperatorEntry) -> float:
        return self.enough_attention if entry.name in ATTENTION else self.enough

    def _slow(self, judged: Judged) -> list[_Slow]:
        """Return the operators below the threshold, those that would save most first."""
        peaks = peaks_entry(judged.trace.gpus)
        if peaks is None:
            return []
        found = [slow for called in judged.operators if (slow := self._of(called, peaks)) is not None]
        return sorted(found, key=lambda each: -each.saved_ns)

    def _of(self, called: Called, peaks: PeaksEntry) -> _Slow | None:
        entry = called.entry
        needs = least_seconds(entry, peaks)
        if needs is None or entry.unrated in ("algorithm", "not_moved") or entry.kernel_ns < SHORTEST_NS * entry.count:
            return None
        arithmetic = REACHED_AMD if _AMD.search(peaks.gpu) else REACHED
        good_ns = max(needs[0] / arithmetic, needs[1] / REACHED_BYTES) * 1e9
        reached = good_ns / entry.kernel_ns
        return None if reached >= self._enough(entry) else _Slow(called, reached, entry.kernel_ns - good_ns)


def _named(entry: OperatorEntry) -> str:
    return f"{entry.name} {short_shapes(entry.shapes)}"
