"""CPUBottleneck: GPUs that wait for a busy CPU.

Source: AWS documentation of CPUBottleneck (a point is a bottleneck when GPU utilization is below gpu_threshold while
CPU utilization is above cpu_threshold; the rule fires when the share of such points exceeds threshold). The recent
window and the fraction of GPUs are added here, and pauses and start-up told apart.
"""

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules.judgement import Judgement
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive, RuleParameters, SystemRule
from trainguard.rules.spans import patience_in_points, warming_up_reason
from trainguard.rules.units import show_percent
from trainguard.rules.views import NodeMinute, NodeView
from trainguard.telemetry.snapshots import BoolArray, FloatArray, IntArray

RECENT_MINUTES = 30
KEPT_BOTTLENECKS = 32
RECENT_MIN_SHARE = 0.5
"""The recent window is judged once its snapshots cover this share of it, else a few points after a gap would ring."""


class CPUBottleneckParameters(RuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``patience`` in points, or in seconds by ``patience_s``.

    ``gpu_fraction`` is the fraction of the ever-active GPUs that must be below ``gpu_threshold``.
    """

    threshold: Percent = 50.0
    gpu_threshold: Percent = 10.0
    cpu_threshold: Percent = 90.0
    patience: NonNegativeInt = 100
    patience_s: Positive | None = None
    gpu_fraction: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.5


class MinuteCount(msgspec.Struct, array_like=True):
    """Snapshots of one minute of event time (epoch minutes)."""

    minute: int
    judged: int
    bottlenecked: int


class Bottleneck(msgspec.Struct, array_like=True):
    """One snapshot in which the GPUs waited: epoch seconds, number of GPUs that were low, busiest core in percent."""

    time: float
    gpus_low: int
    cpu_max: float


class Tally(msgspec.Struct, array_like=True):
    """Counts over any number of snapshots; ``minutes`` holds the newest 30, ``newest`` the last 32 bottlenecks."""

    judged: int = 0
    bottlenecked: int = 0
    low_gpu: int = 0
    minutes: list[MinuteCount] = msgspec.field(default_factory=list)
    newest: list[Bottleneck] = msgspec.field(default_factory=list)

    def absorb(self, later: "Tally") -> None:
        """Add the counts of snapshots that come after all of this tally's."""
        self.judged += later.judged
        self.bottlenecked += later.bottlenecked
        self.low_gpu += later.low_gpu
        for count in later.minutes:
            if self.minutes and self.minutes[-1].minute == count.minute:
                self.minutes[-1].judged += count.judged
                self.minutes[-1].bottlenecked += count.bottlenecked
            else:
                self.minutes.append(count)
        self.minutes = [count for count in self.minutes if count.minute > self.minutes[-1].minute - RECENT_MINUTES]
        self.newest = (self.newest + later.newest)[-KEPT_BOTTLENECKS:]


class CPUBottleneckState(msgspec.Struct, array_like=True):
    """What is judged for good, and the open idle run: it counts as soon as the node is active again, else never."""

    kept: Tally = msgspec.field(default_factory=Tally)
    open_idle: Tally = msgspec.field(default_factory=Tally)


class CPUBottleneck(SystemRule[CPUBottleneckParameters, CPUBottleneckState]):
    """Fires when too large a share of the snapshots has low GPUs beside a busy core."""

    name: ClassVar[str] = "CPUBottleneck"
    parameters_type = CPUBottleneckParameters
    state_type = CPUBottleneckState

    def clear_after_s(self, parameters: CPUBottleneckParameters, interval_s: float) -> float:
        """Three recent windows, so that a share that hovers about the threshold stays one episode."""
        del parameters, interval_s  # the recent window is the same for all
        return 3.0 * RECENT_MINUTES * 60.0

    def window_points(self, parameters: CPUBottleneckParameters, interval_s: float) -> int:
        """Ask for no kept points: the rule counts for itself, pauses included."""
        del parameters, interval_s
        return 0

    def observe(self, state: CPUBottleneckState, minute: NodeMinute, parameters: CPUBottleneckParameters) -> None:
        """Count the snapshots that have CPU and GPU samples, start-up left out; an idle run waits for its end."""
        snapshots, view = minute.snapshots, minute.view
        ever_active = {gpu for gpu, ever in zip(view.gpu_names, view.ever_active.tolist(), strict=True) if ever}
        columns = [index for index, gpu in enumerate(snapshots.gpu_names) if gpu in ever_active]
        if not columns:
            return
        utilization = snapshots.gpu_utilization[:, columns]
        sampled = ~np.isnan(snapshots.cpu_max) & ~np.isnan(utilization).all(axis=1)
        gpus_low = np.count_nonzero(utilization < parameters.gpu_threshold, axis=1)
        low = gpus_low >= parameters.gpu_fraction * len(ever_active)
        hit = low & (snapshots.cpu_max > parameters.cpu_threshold)
        judged = sampled & minute.started
        rows = np.arange(len(snapshots))
        active_rows = np.flatnonzero(minute.active)
        last_active = int(active_rows[-1]) if active_rows.size else -1

        def tally(chosen: BoolArray) -> Tally:
            return _tally(
                snapshots.times[chosen], low[chosen], hit[chosen], gpus_low[chosen], snapshots.cpu_max[chosen]
            )

        if active_rows.size:
            state.kept.absorb(state.open_idle)
            state.open_idle = Tally()
            state.kept.absorb(tally(judged & (rows <= last_active)))
        state.open_idle.absorb(tally(judged & (rows > last_active)))

    def judge(self, state: CPUBottleneckState, view: NodeView, parameters: CPUBottleneckParameters) -> Judgement:
        """Say FIRED when the share of bottlenecks exceeds the threshold, over the whole job or the last 30 minutes."""
        if view.through is None:
            return Judgement(Status.WAITING_FOR_DATA, f"no system metrics of {view.node} yet.")
        if not view.gpu_names:
            return Judgement(Status.NOT_APPLICABLE, f"{view.node} has no GPU.")
        kept = state.kept
        recent_judged = sum(count.judged for count in kept.minutes)
        recent_hits = sum(count.bottlenecked for count in kept.minutes)
        share = 100.0 * kept.bottlenecked / kept.judged if kept.judged else 0.0
        recent_share = 100.0 * recent_hits / recent_judged if recent_judged else 0.0
        details = {
            "judged": kept.judged,
            "bottlenecked": kept.bottlenecked,
            "share_percent": share,
            "recent_judged": recent_judged,
            "recent_share_percent": recent_share,
            "low_gpu_utilization": kept.low_gpu,
            "bottlenecks": [msgspec.structs.asdict(bottleneck) for bottleneck in kept.newest],
        }
        patience = patience_in_points(parameters.patience, parameters.patience_s, view.interval_s)
        if kept.judged <= patience:
            return Judgement(
                Status.WARMING_UP,
                warming_up_reason(kept.judged, patience, view),
                data_points=kept.judged,
                patience=f"{kept.judged}/{patience}",
                details=details,
            )
        covered = recent_judged * view.interval_s >= RECENT_MIN_SHARE * RECENT_MINUTES * 60.0
        recently = covered and recent_share > parameters.threshold >= share
        measured, hits, judged = share, kept.bottlenecked, kept.judged
        where = f"points on {view.node}"
        if recently:
            measured, hits, judged = recent_share, recent_hits, recent_judged
            where = f"points of the last {RECENT_MINUTES} min on {view.node}"
        reason = (
            f"in {hits:,} of {judged:,} {where} ({show_percent(measured)}, threshold "
            f"{show_percent(parameters.threshold)}) at least {show_percent(100.0 * parameters.gpu_fraction)} of the "
            f"GPUs were below {show_percent(parameters.gpu_threshold)} while a core was above "
            f"{show_percent(parameters.cpu_threshold)}."
        )
        return Judgement(
            Status.FIRED if measured > parameters.threshold else Status.OK,
            reason,
            measured=measured,
            threshold=parameters.threshold,
            data_points=kept.judged,
            details=details,
        )


def _tally(times: FloatArray, low: BoolArray, hit: BoolArray, gpus_low: IntArray, cpu_max: FloatArray) -> Tally:
    """Count N snapshots (all arrays of length N), oldest first."""
    minutes, index = np.unique(np.floor(times / 60.0).astype(np.int64), return_inverse=True)
    judged = np.bincount(index, minlength=minutes.size)
    hits = np.bincount(index[hit], minlength=minutes.size)
    newest = np.flatnonzero(hit)[-KEPT_BOTTLENECKS:]
    columns = (times[newest].tolist(), gpus_low[newest].tolist(), cpu_max[newest].tolist())
    return Tally(
        judged=times.size,
        bottlenecked=int(np.count_nonzero(hit)),
        low_gpu=int(np.count_nonzero(low)),
        minutes=[MinuteCount(*row) for row in zip(minutes.tolist(), judged.tolist(), hits.tolist(), strict=True)],
        newest=[Bottleneck(*row) for row in zip(*columns, strict=True)],
    )
