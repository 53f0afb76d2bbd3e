"""What the two rules on bottlenecks share: GPUs that are low while a core is at some limit.

The two rules differ in what they measure of the cores, in their defaults and in their words. The count, the recent
window, the list of bottlenecks and the judgement are here. Source: AWS documentation of both rules (a point is a
bottleneck when GPU utilization is below gpu_threshold while the cores' measure is above its threshold; the rule fires
when the share of such points exceeds threshold). The recent window, the fraction of GPUs and the shortest judged time
are added here, and pauses and start-up told apart.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules.judgement import Judgement, Measure
from trainguard.rules.paid_time import share_of_paid
from trainguard.rules.parameter_help import PATIENCE_HELP, ParameterHelp
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive, RuleParameters, SystemRule
from trainguard.rules.symptoms import LOW_GPUS, SLOW_STEPS, SMALL_WORK
from trainguard.rules.units import counted, points_in, show_duration, show_percent
from trainguard.rules.views import NodeMinute, NodeView
from trainguard.rules.warm_up import never_collected, progress_of, warming_up_reason
from trainguard.rules.windowing import patience_in_points
from trainguard.telemetry.snapshots import BoolArray, FloatArray, IntArray, Snapshots

RECENT_MINUTES = 30
KEPT_BOTTLENECKS = 32
RECENT_MIN_SHARE = 0.5
"""The recent window is judged once its snapshots cover this share of it, else a few points after a gap would ring."""

MIN_JUDGED_S = 600.0
"""A running job is judged on more points than these; compilation that follows the first touch of a GPU is no fault."""


class BottleneckParameters(RuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``patience`` in points, or in seconds by ``patience_s``.

    ``gpu_fraction`` is the fraction of the ever-active GPUs that must be below ``gpu_threshold``.
    """

    threshold: Percent = 50.0
    gpu_threshold: Percent
    patience: NonNegativeInt
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


class MinuteCount(msgspec.Struct, array_like=True):
    """Snapshots of one minute of event time (epoch minutes)."""

    minute: int
    judged: int
    bottlenecked: int


class Bottleneck(msgspec.Struct, array_like=True):
    """One snapshot in which the GPUs waited: epoch seconds, number of GPUs that were low, highest core in percent."""

    time: float
    gpus_low: int
    peak: float


class Tally(msgspec.Struct, array_like=True):
    """Counts over any number of snapshots; ``minutes`` holds the newest 30, ``newest`` the last 32 bottlenecks.

    ``lost`` is what the low GPUs left undone in the bottlenecks, in hundredths of a percent of the node's GPUs, summed
    over snapshots.
    """

    judged: int = 0
    bottlenecked: int = 0
    low_gpu: int = 0
    minutes: list[MinuteCount] = msgspec.field(default_factory=list)
    newest: list[Bottleneck] = msgspec.field(default_factory=list)
    lost: int = 0

    def absorb(self, later: "Tally") -> None:
        """Add the counts of snapshots that come after all of this tally's."""
        self.judged += later.judged
        self.bottlenecked += later.bottlenecked
        self.low_gpu += later.low_gpu
        self.lost += later.lost
        for count in later.minutes:
            if self.minutes and self.minutes[-1].minute == count.minute:
                self.minutes[-1].judged += count.judged
                self.minutes[-1].bottlenecked += count.bottlenecked
            else:
                self.minutes.append(count)
        self.minutes = [count for count in self.minutes if count.minute > self.minutes[-1].minute - RECENT_MINUTES]
        self.newest = (self.newest + later.newest)[-KEPT_BOTTLENECKS:]


class BottleneckState(msgspec.Struct, array_like=True):
    """What is judged for good, and the open idle run: it counts as soon as the node is active again, else never."""

    kept: Tally = msgspec.field(default_factory=Tally)
    open_idle: Tally = msgspec.field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class _Share:
    """Bottlenecks among judged snapshots."""

    hits: int
    judged: int

    @property
    def percent(self) -> float:
        return 100.0 * self.hits / self.judged if self.judged else 0.0


class BottleneckRule(SystemRule[P, BottleneckState], Generic[P]):
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
        ever_active = {gpu for gpu, ever in zip(view.gpu_names, view.ever_active.tolist(), strict=True) if ever}
        columns = [index for index, gpu in enumerate(snapshots.gpu_names) if gpu in ever_active]
        if not columns:
            return
        utilization, peaks = snapshots.gpu_utilization[:, columns], self.peaks(snapshots)
        counted = _Counted.of(utilization, peaks, self.limit(parameters), parameters, len(ever_active))
        judged = ~np.isnan(peaks) & ~np.isnan(utilization).all(axis=1) & minute.started
        rows = np.arange(len(snapshots))
        active_rows = np.flatnonzero(minute.active)
        last_active = int(active_rows[-1]) if active_rows.size else -1
        if active_rows.size:
            state.kept.absorb(state.open_idle)
            state.open_idle = Tally()
            state.kept.absorb(counted.tally(snapshots.times, judged & (rows <= last_active)))
        state.open_idle.absorb(counted.tally(snapshots.times, judged & (rows > last_active)))

    def judge(self, state: BottleneckState, view: NodeView, parameters: P) -> Judgement:
        """Say FIRED when the share of bottlenecks exceeds the threshold, over the whole job or the last 30 minutes."""
        if view.through is None:
            return Judgement(Status.WAITING_FOR_DATA, f"no system metrics of {view.node} yet.")
        if not view.gpu_names:
            return Judgement(Status.NOT_APPLICABLE, f"{view.node} has no GPU.")
        kept = state.kept
        whole = _Share(kept.bottlenecked, kept.judged)
        recent = _Share(sum(count.bottlenecked for count in kept.minutes), sum(count.judged for count in kept.minutes))
        details = self._details(kept, whole, recent)
        patience = _needed(view, parameters)
        if not (kept.judged or state.open_idle.judged) and view.kept_total > (0 if view.closed else patience):
            return never_collected(self.metric, view)
        if kept.judged <= patience:
            return Judgement(
                Status.WARMING_UP,
                warming_up_reason(kept.judged, patience, view),
                data_points=kept.judged,
                patience=progress_of(kept.judged, patience),
                details=details,
            )
        covered = recent.judged * view.interval_s >= RECENT_MIN_SHARE * RECENT_MINUTES * 60.0
        recently = covered and recent.percent > parameters.threshold >= whole.percent
        measured = recent if recently else whole
        fired = measured.percent > parameters.threshold
        lost_s = kept.lost / 10_000.0 * view.interval_s
        wasted = share_of_paid(view, lost_s) if fired else None
        return Judgement(
            Status.FIRED if fired else Status.OK,
            self._reason(measured, view, parameters, recently=recently),
            measured=measured.percent,
            threshold=parameters.threshold,
            data_points=kept.judged,
            advice=_advice(self.remedy(), view, lost_s) if fired else None,
            affected_share=whole.percent / 100.0,
            wasted_share=wasted,
            pooled=(kept.bottlenecked, kept.judged),
            details=details,
        )

    def _reason(self, share: _Share, view: NodeView, parameters: P, *, recently: bool) -> str:
        where = f"of the last {RECENT_MINUTES} min on {view.node}" if recently else f"on {view.node}"
        return (
            f"in {share.hits:,} of {counted(share.judged, 'point')} {where} ({show_percent(share.percent)}, threshold "
            f"{show_percent(parameters.threshold)}) at least {show_percent(100.0 * parameters.gpu_fraction)} of the "
            f"GPUs were below {show_percent(parameters.gpu_threshold)} while {self.cause(parameters)}."
        )

    def _details(self, kept: Tally, whole: _Share, recent: _Share) -> dict[str, Any]:
        """Numbers for the report; ``judged`` and ``bottlenecked`` of several nodes add up to the pooled share."""
        return {
            "judged": kept.judged,
            "bottlenecked": kept.bottlenecked,
            "share_percent": whole.percent,
            "recent_judged": recent.judged,
            "recent_share_percent": recent.percent,
            "low_gpu_utilization": kept.low_gpu,
            "bottlenecks": [
                {"time": each.time, "gpus_low": each.gpus_low, self.peak_key: each.peak} for each in kept.newest
            ],
        }


@dataclass(frozen=True, slots=True)
class _Counted:
    """What T snapshots count as (all arrays of length T)."""

    low: BoolArray
    hit: BoolArray
    gpus_low: IntArray
    peaks: FloatArray
    lost: IntArray

    @classmethod
    def of(
        cls, utilization: FloatArray, peaks: FloatArray, limit: float, parameters: BottleneckParameters, gpus: int
    ) -> "_Counted":
        """Look at float64[T, G]; ``gpus`` is how many GPUs of the node were ever active."""
        below = utilization < parameters.gpu_threshold
        gpus_low = np.count_nonzero(below, axis=1)
        low = gpus_low >= parameters.gpu_fraction * gpus
        undone = np.where(below, 100.0 - utilization, 0.0).sum(axis=1) / gpus
        return cls(low, low & (peaks > limit), gpus_low, peaks, np.rint(100.0 * undone).astype(np.int64))

    def tally(self, times: FloatArray, chosen: BoolArray) -> Tally:
        """Count the chosen snapshots, oldest first."""
        hit = chosen & self.hit
        epoch_minutes = np.floor(times / 60.0).astype(np.int64)
        minutes, index = np.unique(epoch_minutes[chosen], return_inverse=True)
        judged = np.bincount(index, minlength=minutes.size)
        hits = np.bincount(index[hit[chosen]], minlength=minutes.size)
        newest = np.flatnonzero(hit)[-KEPT_BOTTLENECKS:]
        columns = (times[newest].tolist(), self.gpus_low[newest].tolist(), self.peaks[newest].tolist())
        return Tally(
            judged=int(np.count_nonzero(chosen)),
            bottlenecked=int(np.count_nonzero(hit)),
            low_gpu=int(np.count_nonzero(chosen & self.low)),
            minutes=[MinuteCount(*row) for row in zip(minutes.tolist(), judged.tolist(), hits.tolist(), strict=True)],
            newest=[Bottleneck(*row) for row in zip(*columns, strict=True)],
            lost=int(self.lost[hit].sum()),
        )


def _needed(view: NodeView, parameters: BottleneckParameters) -> int:
    """Return ``patience_s`` in points, or ``patience``, which is at least 10 minutes while the job runs."""
    patience = patience_in_points(parameters.patience, parameters.patience_s, view.interval_s)
    if parameters.patience_s is not None or view.closed:
        return patience
    return max(patience, points_in(MIN_JUDGED_S, view.interval_s))


def _advice(remedy: str, view: NodeView, lost_s: float) -> str:
    return f"{remedy}: the wait has cost as much as {show_duration(lost_s)} of the whole node {view.node}."
