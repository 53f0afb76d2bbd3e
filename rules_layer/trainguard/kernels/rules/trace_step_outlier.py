"""Single steps are slow."""

import numpy as np

from trainguard.core.finding import Fact, Severity
from trainguard.kernels.activity import step_parts
from trainguard.kernels.columns import Ints
from trainguard.kernels.intervals import Spans
from trainguard.kernels.rules.finding import SHOWN, Evidence, Judged, KernelFinding
from trainguard.kernels.rules.rule import RankRule
from trainguard.kernels.rules.text import MILLISECONDS, Saying
from trainguard.kernels.rules.thresholds import Number, Share
from trainguard.rules.rule_result import FactSheet, Measure

ROBUST_SIGMA = 1.4826
"""Standard deviations of a normal distribution in its median absolute deviation."""


def _summary(sheet: FactSheet) -> str:
    steps = f"{sheet['slow_steps'].value} of {sheet['steps'].value} steps"
    return f"{steps} take over {sheet['slowest_step'].threshold:,.1f} ms; median {sheet.number('median_step'):,.1f}."


class TraceStepOutlier(RankRule):
    """Fires where one of many steps is far over the median."""

    title = "Slow steps of a trace"
    fires_when = "of {steps} steps or more, one is over the median by {sigmas} robust sigmas and {of_median} of it"
    measure = Measure("slowest step", "ms")
    is_steady = False
    says = (
        Saying(
            "slow_steps",
            _summary,
            advice="Compare these steps with a usual one: checkpoints, logging, loader restarts, other ranks.",
            clause="single steps were slow",
        ),
    )

    steps: Number = 10
    sigmas: Number = 5
    of_median: Share = 0.1

    def judge_rank(self, judged: Judged) -> KernelFinding | None:
        """Fire where there are steps enough to say what is usual, and one is slow."""
        steps = judged.window.steps
        if len(steps) < self.steps:
            return None
        lasted = steps.end - steps.start
        slow, median = self._slow_steps(lasted)
        if not len(slow):
            return None
        parts = step_parts(judged.metrics, steps.start, steps.end)
        worst = slow[np.argsort(-lasted[slow], kind="stable")]
        return self.found(
            [
                Fact(
                    name="slowest_step",
                    value=round(int(lasted.max()) / 1e6, 3),
                    unit=MILLISECONDS,
                    threshold=round(self._limit(lasted) / 1e6, 3),
                ),
                Fact(name="median_step", value=round(median / 1e6, 3), unit=MILLISECONDS),
                Fact(name="slow_steps", value=len(slow)),
                Fact(name="steps", value=len(steps)),
            ],
            severity=Severity.MEDIUM,
            evidence=[_slow_step(judged, parts, int(at)) for at in worst[:SHOWN]],
            gain=judged.gain(float((lasted[slow] - median).sum())),
        )

    def beyond(self, judged: Judged, taken: Spans) -> float:
        """Return by how many nanoseconds slow steps exceed the median beyond what other findings have of them."""
        steps = judged.window.steps
        slow, median = self._slow_steps(steps.end - steps.start)
        start, end = steps.start[slow], steps.end[slow]
        return float(np.maximum(end - start - median - taken.within(start, end), 0.0).sum())

    def _slow_steps(self, lasted: Ints) -> tuple[Ints, float]:
        return np.flatnonzero(lasted > self._limit(lasted)), float(np.median(lasted))

    def _limit(self, lasted: Ints) -> float:
        median = float(np.median(lasted))
        sigma = ROBUST_SIGMA * float(np.median(np.abs(lasted - median)))
        return max(median + self.sigmas * sigma, (1 + self.of_median) * median)


def _slow_step(judged: Judged, parts: dict[str, Ints], at: int) -> Evidence:
    steps = judged.window.steps
    grown = {name: float(values[at] - np.median(values)) for name, values in parts.items()}
    most = max(grown, key=lambda name: grown[name])
    what = f"slow step, {most} {grown[most] / 1e6:+,.1f} ms over its median"
    return judged.stretch(what, int(steps.start[at]), int(steps.end[at]))
