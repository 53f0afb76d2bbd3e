"""The GPU is idle, whatever the reason, or single steps are slow."""

import numpy as np
from msgspec.structs import replace

from trainguard.core.finding import Fact, Severity
from trainguard.kernels.columns import Ints
from trainguard.kernels.entries import Evidence, KernelFinding
from trainguard.kernels.rules.finding import SHOWN, JudgedRank, longest_gaps, percent, severity, work_under
from trainguard.kernels.rules.rule import Nanoseconds, Number, RankRule, Share, milliseconds, portion
from trainguard.kernels.rules.text import Saying, gpu_of, shown
from trainguard.kernels.times.gpu_times import TraceGpuTime, busy_shares
from trainguard.kernels.times.intervals import Spans, intersection
from trainguard.ledger.bucket import LOST_AT_WORK
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import FactSheet, Measure
from trainguard.rules.spec import LOW_GPUS

PARTS = 30


def _gpu_busy_low_summary(sheet: FactSheet) -> str:
    gpus, said = int(sheet.number("gpus")), shown(sheet)
    who = "The GPU is" if gpus == 1 else f"The {gpus:,} GPUs are on average"
    each = ""
    if "least_busy_share" in said:
        each = f", {gpu_of(sheet, 'least_busy_share')} {said['least_busy_share']}"
    return f"{who} busy {said['busy_share']} of the time{each}."


class GpuBusyLow(RankRule):
    title = "GPU busy"
    change = ChangeCode.FIND_WAITS
    fires_when = "the GPU is busy less than {enough} of the window; it matters more below {medium}"
    measure = Measure("busy share of the window")
    symptom = LOW_GPUS
    claims = LOST_AT_WORK
    takes = "surely_idle"
    summary = _gpu_busy_low_summary
    advice = "Find what the GPU waits for in the other findings; then try a larger batch."
    clause = "the GPU was busy for too little of the time"

    enough: Share = 0.7
    medium: Share = 0.5

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        busy = judged.share(judged.known_busy_ns)
        if not judged.has_gpu or busy >= self.enough:
            return None
        return self.found(
            [
                portion("busy_share", busy, self.medium if busy < self.medium else self.enough),
                Fact(name="gpus", value=judged.counted),
                *_least_busy(judged),
            ],
            severity=Severity.MEDIUM if busy < self.medium else Severity.LOW,
            evidence=_worst_parts(judged),
            gain=judged.gain(judged.window.length - judged.known_busy_ns),
        )


def _least_busy(judged: JudgedRank) -> list[Fact]:
    counted = [gpu for gpu in judged.gpus if gpu.counted]
    if len(counted) < 2:
        return []
    least = min(counted, key=lambda gpu: gpu.busy.total)
    return [portion("least_busy_share", judged.share(least.busy.total), device=f"gpu{least.number}")]


def _worst_parts(judged: JudgedRank) -> list[Evidence]:
    parts = np.arange(PARTS + 1, dtype=np.int64)
    edges = judged.window.start + judged.window.length // PARTS * parts
    edges[-1] = judged.window.end
    lasted = np.diff(edges)
    if not lasted.all():
        return []
    shares = busy_shares(judged.gpus, edges)
    evidence = []
    for place in np.argsort(shares, kind="stable")[:SHOWN].tolist():
        start, end = int(edges[place]), int(edges[place + 1])
        host = work_under(judged.trace, start, end)
        said = f"GPU busy {percent(float(shares[place]))} here" + (f", host {host}" if host else "")
        evidence.append(judged.stretch(said, start, end))
    return evidence


def _gpu_gap_summary(sheet: FactSheet) -> str:
    gaps, longest = int(sheet.number("gaps")), f"up to {sheet.number('longest_gap'):,.1f} ms"
    return f"The GPU is idle at a stretch {'once' if gaps == 1 else f'{gaps:,} times'}, {longest}."


class GpuGap(RankRule):
    title = "Gaps of the GPU"
    change = ChangeCode.PAUSE_LESS
    fires_when = (
        "the GPU is idle at a stretch, and its next work not launched, for {long_ns}, or for over {of_step} of the "
        "median step"
    )
    measure = Measure("longest gap", "ms")
    symptom = LOW_GPUS
    claims = LOST_AT_WORK
    summary = _gpu_gap_summary
    advice = "Look at what the host does in these gaps: checkpoints, logging, evaluation, data loading."
    clause = "the GPU was idle at a stretch"

    long_ns: Nanoseconds = 500_000_000
    of_step: Share = 0.1
    medium: Share = 0.1
    high: Share = 0.3

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        long = self._long_gaps(judged)
        if not judged.has_gpu or not len(long.start):
            return None
        return self.found(
            [
                milliseconds("longest_gap", int((long.end - long.start).max()), long_gap_ns(judged)),
                Fact(name="gaps", value=len(long.start)),
            ],
            severity=severity(judged.share(long.total), self.medium, self.high),
            evidence=longest_gaps(judged, long),
            gain=judged.gain(long.total),
        )

    def stretches(self, judged: JudgedRank, gpu: TraceGpuTime) -> Spans:
        return intersection(gpu.surely_idle, self._long_gaps(judged))

    def _long_gaps(self, judged: JudgedRank) -> Spans:
        found, limit = judged.unlaunched_gaps, long_gap_ns(judged)
        lasted = found.end - found.start
        over = (lasted >= self.long_ns) | (lasted > limit)
        return Spans(found.start[over], found.end[over])


def long_gap_ns(judged: JudgedRank) -> float:
    """Return above how many nanoseconds a gap is a long one; a step is as long as its work on the GPU.

    A host that is ahead of the GPU has short steps and a few long ones, in which it waits.
    """
    if not len(judged.window.steps):
        return float(GpuGap.long_ns)
    start, end = judged.steps_on_gpu()
    return min(float(GpuGap.long_ns), GpuGap.of_step * float(np.median(end - start)))


# Standard deviations of a normal distribution in its median absolute deviation.
ROBUST_SIGMA = 1.4826


def _trace_step_outlier_summary(sheet: FactSheet) -> str:
    steps = f"{sheet['slow_steps'].value} of {sheet['steps'].value} steps"
    return f"{steps} take over {sheet['slowest_step'].threshold:,.1f} ms; median {sheet.number('median_step'):,.1f}."


class TraceStepOutlier(RankRule):
    """Fires by the length of steps with their work on the GPU: a host that is far ahead does not show a slow one."""

    title = "Slow steps of a trace"
    change = ChangeCode.FIX_SLOW_STEPS
    fires_when = "of {steps} steps or more, one is over the median by {sigmas} robust sigmas and {of_median} of it"
    measure = Measure("slowest step", "ms")
    is_steady = False
    says = (
        Saying(
            "slow_steps",
            _trace_step_outlier_summary,
            advice="Compare these steps with a usual one: checkpoints, logging, loader restarts, other ranks.",
            clause="single steps were slow",
        ),
    )

    steps: Number = 10
    sigmas: Number = 5
    of_median: Share = 0.1

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        steps = judged.window.steps
        if len(steps) < self.steps:
            return None
        start, end = judged.steps_on_gpu()
        lasted = end - start
        slow, median = self._slow_steps(lasted)
        if not len(slow):
            return None
        parts = judged.step_parts(start, end)
        worst = slow[np.argsort(-lasted[slow], kind="stable")]
        return self.found(
            [
                milliseconds("slowest_step", int(lasted.max()), self._limit(lasted)),
                milliseconds("median_step", median),
                Fact(name="slow_steps", value=len(slow)),
                Fact(name="steps", value=len(steps)),
            ],
            severity=Severity.MEDIUM,
            evidence=[_slow_step(judged, parts, int(at), int(start[at]), int(end[at])) for at in worst[:SHOWN]],
            gain=judged.gain(float((lasted[slow] - median).sum())),
        )

    def beyond(self, judged: JudgedRank, taken: Spans) -> float:
        """Return by how many nanoseconds slow steps exceed the median beyond what other findings have of them."""
        start, end = judged.steps_on_gpu()
        slow, median = self._slow_steps(end - start)
        start, end = start[slow], end[slow]
        return float(np.maximum(end - start - median - taken.within(start, end), 0.0).sum())

    def _slow_steps(self, lasted: Ints) -> tuple[Ints, float]:
        return np.flatnonzero(lasted > self._limit(lasted)), float(np.median(lasted))

    def _limit(self, lasted: Ints) -> float:
        median = float(np.median(lasted))
        sigma = ROBUST_SIGMA * float(np.median(np.abs(lasted - median)))
        return max(median + self.sigmas * sigma, (1 + self.of_median) * median)


def _slow_step(judged: JudgedRank, parts: dict[str, Ints], at: int, start: int, end: int) -> Evidence:
    grown = {name: float(values[at] - np.median(values)) for name, values in parts.items()}
    most = max(grown, key=lambda name: grown[name])
    what = f"slow step, {most} {grown[most] / 1e6:+,.1f} ms over its median"
    number = int(judged.window.steps.number[at])
    return replace(judged.stretch(what, start, end), step=number)
