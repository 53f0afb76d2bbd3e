"""What the two rules on bottlenecks share: GPUs that are low while a core is at some limit.

The two rules differ in what they measure of the cores, in their defaults and in their words. The count, the recent
window, the list of bottlenecks and the judgement are here. Source: AWS documentation of both rules (a point is a
bottleneck when GPU utilization is below gpu_threshold while the cores' measure is above its threshold; the rule fires
when the share of such points exceeds threshold). The recent window, the fraction of GPUs and the shortest judged time
are added here, and pauses and start-up told apart.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules import bottleneck_output as output
from trainguard.rules.bottleneck_counts import RECENT_MINUTES, BottleneckState, Counted, Share, Tally
from trainguard.rules.paid_time import share_of_paid
from trainguard.rules.parameter_help import PATIENCE_HELP, ParameterHelp
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.symptoms import LOW_GPUS, SLOW_STEPS, SMALL_WORK
from trainguard.rules.units import points_in
from trainguard.rules.warm_up import never_collected, warming_up
from trainguard.rules.windowing import PatienceParameters, SampledRule
from trainguard.telemetry.snapshots import FloatArray, Snapshots

RECENT_MIN_SHARE = 0.5
"""The recent window is judged once its snapshots cover this share of it, else a few points after a gap would ring."""

MIN_JUDGED_S = 600.0
"""A running job is judged on more points than these; compilation that follows the first touch of a GPU is no fault."""


class BottleneckParameters(PatienceParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``patience_s`` in seconds, or ``patience`` in points.

    ``gpu_fraction`` is the fraction of the ever-active GPUs that must be below ``gpu_threshold``.
    """

    threshold: Percent = 50.0
    gpu_threshold: Percent
    patience: NonNegativeInt | None = None
    patience_s: Positive | None = None
    gpu_fraction: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.5


BOTTLENECK_HELP: Mapping[str, ParameterHelp] = {
    "threshold": ParameterHelp("% of the judged points", "a larger share of bottlenecked points fires"),
    "gpu_threshold": ParameterHelp("%", "a GPU below it waits"),
    "gpu_fraction": ParameterHelp("fraction of the ever-active GPUs", "so many must wait for a point to count"),
    **PATIENCE_HELP,
}
BOTTLENECKED_SHARE = Measure("bottlenecked points of the judged ones", "%")
EXPLAINED = (LOW_GPUS, SMALL_WORK, SLOW_STEPS)
SECTION = "trainguard.report.html.sections.bottlenecks:blocks"

P = TypeVar("P", bound=BottleneckParameters)


class BottleneckRule(SampledRule[P, BottleneckState], Generic[P]):
    """Fires when too large a share of the snapshots has low GPUs beside a core at its limit.

    ``peak_key`` names the measure of the cores in the details, ``metric`` in a sentence.
    """

    state_type = BottleneckState
    peak_key: ClassVar[str]
    metric: ClassVar[str]

    @abstractmethod
    def peaks(self, snapshots: Snapshots) -> FloatArray:
        """Return the highest core of each snapshot: float64[T], percent, NaN without a sample."""

    @abstractmethod
    def limit(self, parameters: P) -> float:
        """Return above how many percent a core is what the GPUs wait for."""

    @abstractmethod
    def cause(self, parameters: P) -> str:
        """Return the cores' condition in words, for example ``a core was above 90 %``."""

    @abstractmethod
    def remedy(self) -> str:
        """Return what to do about it, as the beginning of a sentence."""

    def clear_after_s(self, parameters: P, interval_s: float) -> float:
        """Three recent windows, so that a share that hovers about the threshold stays one episode."""
        del parameters, interval_s  # the recent window is the same for all
        return 3.0 * RECENT_MINUTES * 60.0

    def window_points(self, parameters: P, interval_s: float) -> int:
        """Ask for no kept points: the rule counts for itself, pauses included."""
        del parameters, interval_s
        return 0

    def observe(self, state: BottleneckState, minute: NodeMinute, parameters: P) -> None:
        """Count the snapshots that have CPU and GPU samples, start-up left out; an idle run waits for its end."""
        snapshots, view = minute.snapshots, minute.view
        if minute.started_anew:
            state.kept, state.open_idle = Tally(), Tally()
        ever_active = {gpu for gpu, ever in zip(view.gpu_names, view.ever_active.tolist(), strict=True) if ever}
        columns = [index for index, gpu in enumerate(snapshots.gpu_names) if gpu in ever_active]
        if not columns:
            return
        utilization, peaks = snapshots.gpu_utilization[:, columns], self.peaks(snapshots)
        counted = Counted.of(
            utilization,
            peaks,
            limit=self.limit(parameters),
            gpu_threshold=parameters.gpu_threshold,
            fraction=parameters.gpu_fraction,
            gpus=len(ever_active),
        )
        judged = ~np.isnan(peaks) & ~np.isnan(utilization).all(axis=1) & minute.started
        rows = np.arange(len(snapshots))
        active_rows = np.flatnonzero(minute.active)
        last_active = int(active_rows[-1]) if active_rows.size else -1
        if active_rows.size:
            state.kept.absorb(state.open_idle)
            state.open_idle = Tally()
            state.kept.absorb(counted.tally(snapshots.times, judged & (rows <= last_active)))
        state.open_idle.absorb(counted.tally(snapshots.times, judged & (rows > last_active)))

    def judge_samples(self, state: BottleneckState, view: NodeView, parameters: P) -> RuleResult:
        """Say FIRED when the share of bottlenecks exceeds the threshold, over the whole job or the last 30 minutes."""
        kept = state.kept
        whole = Share(kept.bottlenecked, kept.judged)
        recent = Share(sum(count.bottlenecked for count in kept.minutes), sum(count.judged for count in kept.minutes))
        details = output.details_of(kept, (whole, recent), self.peak_key)
        patience = _needed(view, parameters)
        if not (kept.judged or state.open_idle.judged) and view.kept_total > (0 if view.closed else patience):
            return never_collected(self.metric, view)
        if kept.judged <= patience:
            return warming_up(kept.judged, patience, view, details)
        covered = recent.judged * view.interval_s >= RECENT_MIN_SHARE * RECENT_MINUTES * 60.0
        recently = covered and recent.percent > parameters.threshold >= whole.percent
        measured = recent if recently else whole
        fired = measured.percent > parameters.threshold
        lost_s = kept.lost / 10_000.0 * view.interval_s
        where = f"of the last {RECENT_MINUTES} min on {view.node}" if recently else f"on {view.node}"
        limits = parameters.threshold, parameters.gpu_fraction, parameters.gpu_threshold
        return RuleResult(
            Status.FIRED if fired else Status.OK,
            output.sentence_of(measured, where, self.cause(parameters), limits),
            measured=measured.percent,
            threshold=parameters.threshold,
            data_points=kept.judged,
            advice=output.advice_on(self.remedy(), view, lost_s) if fired else None,
            affected_share=whole.percent / 100.0,
            wasted_share=share_of_paid(view, lost_s) if fired else None,
            pooled=(kept.bottlenecked, kept.judged),
            details=details,
        )


def _needed(view: NodeView, parameters: BottleneckParameters) -> int:
    """Return ``patience_s`` in points, or ``patience``, which is at least 10 minutes while the job runs."""
    patience = parameters.patience_points(view.interval_s)
    if parameters.patience_s is not None or view.closed:
        return patience
    return max(patience, points_in(MIN_JUDGED_S, view.interval_s))
