"""The shared part of the rules on bottlenecks: GPUs that are low while a core is at some limit.

Source: AWS documentation of both rules. Slow minutes are added: where counters are means over the sampling interval,
GPUs at 45 % beside full cores are below 10 % in no point.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from trainguard.core.finding import Fact, Patience
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import Snapshots, points_in
from trainguard.ledger.bucket import Bucket
from trainguard.rules.bottlenecks.state import (
    GOOD_GPUS,
    HUNDREDTHS,
    LAPSED_MINUTES,
    RECENT_MINUTES,
    BottleneckState,
    Cores,
    Counted,
    MinuteCount,
    Share,
    Tally,
    is_cause,
)
from trainguard.rules.bottlenecks.text import (
    KINDS,
    SLOW,
    WAITS,
    BottleneckDetails,
    BottleneckShares,
    CoreWords,
    contrast_facts,
    core_facts,
    details_of,
    share_facts,
)
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive
from trainguard.rules.rule_inputs import ALARMING_WASTE, NodeMinute, NodeView, share_of_paid
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import (
    DATA_WAITS,
    LOW_GPUS,
    PATIENCE_HELP,
    SLOW_STEPS,
    SMALL_WORK,
    SYSTEM,
    ParameterHelp,
    RuleSpec,
)
from trainguard.rules.windows import PatienceParameters, SampledRule, never_collected, warming_up
from trainguard.state.gpu_time import ACTIVE_PERCENT

# The recent window is judged once its snapshots cover this share of it, else a few points after a gap would fire.
RECENT_MIN_SHARE = 0.5
# A running job is judged on more points than these; compilation that follows the first touch of a GPU is no fault.
MIN_JUDGED_S = 600.0
# A minute is slow, too, where so much of what the GPUs left undone was left in bottlenecked points.
WAITED_SHARE = 0.5


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
SLOW_SHARE = Measure("points in slow minutes of the judged ones", "%")
# What the specs of both rules have in common.
bottleneck_spec = partial(
    RuleSpec,
    looks_at="each node's GPUs and cores",
    measures=(BOTTLENECKED_SHARE, SLOW_SHARE),
    inputs=SYSTEM,
    explains=(LOW_GPUS, SMALL_WORK, SLOW_STEPS, DATA_WAITS),
    claims={"": (Bucket.DATA, Bucket.HOST, Bucket.IDLE, Bucket.UNEXPLAINED)},
    details=BottleneckDetails,
    section="trainguard.rules.bottlenecks.section:blocks",
)
P = TypeVar("P", bound=BottleneckParameters)


class BottleneckRule(SampledRule[P, BottleneckState], Generic[P]):
    """Fires when too large a share of the snapshots has low GPUs beside a core at its limit.

    ``peak_key`` names the measure of the cores in the details. ``more_peak`` is by how much the cores' second measure
    is higher while the GPUs wait. A running job is judged on more points than ``least_judged_s``, where no
    ``patience_s`` is set.
    """

    peak_key: ClassVar[str]
    words: ClassVar[CoreWords]
    more_peak: ClassVar[float]
    least_judged_s: ClassVar[float] = MIN_JUDGED_S

    @abstractmethod
    def cores(self, snapshots: Snapshots) -> Cores:
        """Return what the cores of each snapshot were at."""

    @abstractmethod
    def limit(self, parameters: P) -> float:
        """Return above how many percent a core is what the GPUs wait for."""

    @abstractmethod
    def at_limit(self, count: MinuteCount, parameters: P) -> bool:
        """Say whether the cores were at their limit over a minute."""

    def is_slow(self, count: MinuteCount, parameters: P) -> bool:
        """Say whether in a minute the GPUs worked slowly beside cores at their limit, or waited for them."""
        if not count.judged or count.mean(count.gpu) >= GOOD_GPUS:
            return False
        return count.lost >= WAITED_SHARE * count.undone or self.at_limit(count, parameters)

    # Three recent windows, so that a share that hovers about the threshold stays one episode.
    clear_s = 3.0 * RECENT_MINUTES * 60.0

    def observe(self, state: BottleneckState, minute: NodeMinute, parameters: P) -> None:
        """Count the snapshots that have CPU and GPU samples, start-up left out; an idle run waits for its end."""
        if minute.restarted:
            state.reset()
        snapshots = minute.snapshots
        used = state.used(minute.view)
        columns = [index for index, gpu in enumerate(snapshots.gpu_names) if gpu in used]
        state.note_use(minute, snapshots.gpu_utilization >= ACTIVE_PERCENT)
        if not columns:
            return
        utilization, cores = snapshots.gpu_utilization[:, columns], self.cores(snapshots)
        judged = ~np.isnan(cores[0]) & ~np.isnan(utilization).all(axis=1) & minute.started
        core, gpu, fraction = self.limit(parameters), parameters.gpu_threshold, parameters.gpu_fraction
        counted = Counted.of(utilization, cores, used, core=core, gpu=gpu, fraction=fraction)
        state.add(
            minute,
            counted,
            judged,
            is_slow=lambda count: self.is_slow(count, parameters),
            threshold=parameters.threshold,
        )

    def judge_samples(self, state: BottleneckState, view: NodeView, parameters: P) -> RuleResult:
        kept = state.kept
        slow = [count for count in kept.minutes if self.is_slow(count, parameters)]
        points, minutes = _points(kept), _minutes(kept, slow)
        details = details_of(kept, points, minutes, self.peak_key) if view.detailed else None
        patience = _needed(view, parameters, self.least_judged_s)
        if not (kept.judged or state.open_idle.judged) and view.kept_total > (0 if view.closed else patience):
            return never_collected(self.words.series, view)
        if kept.judged <= patience:
            return warming_up(kept.judged, patience, view, details or {})
        covered = points.recent.judged * view.interval_s >= RECENT_MIN_SHARE * RECENT_MINUTES * 60.0
        shares = [
            (evidence, share, share is evidence.recent)
            for evidence in (points, minutes)
            for share in (evidence.whole, evidence.recent)
            if share is evidence.whole or covered
        ]
        # While the job runs, what it has lost is held against 30 minutes at least: a few compilations are soon over.
        at_once = view.closed or parameters.patience_s is not None
        least = 1 if at_once else points_in(60.0 * RECENT_MINUTES, view.interval_s)
        above = [each for each in shares if each[1].percent > parameters.threshold]
        costly = [each for each in above if each[1].wasted_of(least) >= ALARMING_WASTE]
        over = state.has_lapsed
        if over and view.closed:
            costly = [each for each in costly if each[1] is each[0].whole]
        contrast = kept.contrast if costly else None
        alike = contrast is not None and not is_cause(*contrast, view.interval_s, self.more_peak)
        found = None if alike or (over and not view.closed) else next(iter(costly), None)
        evidence, measured, recently = next(iter(costly or above or shares))
        began_at = None if state.bad_since is None else max(60.0 * state.bad_since, view.first_active_at or 0.0)
        lost_s = evidence.whole.lost / 10_000.0 * view.interval_s
        kind = WAITS if evidence is points else SLOW
        why: list[Fact] = []
        if above and not costly:
            kind, undone = f"{kind}_cheap", measured.wasted_of(least)
            why = [view.work_fact("undone_share", undone, unit="share", threshold=ALARMING_WASTE)]
        elif contrast is not None and alike:
            kind = f"{kind}_alike"
            why = [*contrast_facts(contrast, self.words.series, view, self.limit(parameters))]
        elif costly and found is None:
            kind, why = f"{kind}_over", [view.work_fact("free_minutes", LAPSED_MINUTES, unit="min")]
        facts = (
            *share_facts(measured, view, parameters.threshold, kept.recent if recently else None),
            *self._condition(kept, slow, view, parameters, by_points=evidence is points),
            *why,
        )
        return RuleResult.of(
            self.text,
            Status.FIRED if found else Status.OK,
            kind,
            facts,
            measured=measured.percent,
            threshold=parameters.threshold,
            measure=BOTTLENECKED_SHARE if evidence is points else SLOW_SHARE,
            data_points=kept.judged,
            progress=Patience(seen=kept.judged, needed=patience),
            affected_share=evidence.whole.percent / 100.0,
            wasted_share=share_of_paid(view, lost_s) if found else None,
            pooled=(evidence.whole.hits, kept.judged),
            pooled_by={
                each: ((points if each.startswith(WAITS) else minutes).whole.hits, kept.judged) for each in KINDS
            },
            onset=began_at if found else None,
            until=60.0 * (state.bad_through + 1) if found and over and state.bad_through is not None else None,
            gpus=_gpus(state, view, evidence is points) if found else (),
            details=details or {},
        )

    def _condition(
        self, kept: Tally, slow: list[MinuteCount], view: NodeView, parameters: P, *, by_points: bool
    ) -> Iterator[Fact]:
        if not by_points:
            yield from core_facts(kept.slow_minutes(slow), self.words, view, newest=bool(slow))
            return
        yield view.work_fact("gpus_low", parameters.gpu_fraction, unit="share", series="GPUUtilization")
        yield view.work_fact("low_limit", parameters.gpu_threshold, unit="%", series="GPUUtilization")
        core, limit = kept.newest[-1][2] if kept.newest else 0.0, self.limit(parameters)
        yield view.work_fact("core_limit", core, unit="%", series=self.words.series, threshold=limit)
        if kept.bottlenecked:
            level = kept.level / HUNDREDTHS / kept.bottlenecked
            yield view.work_fact(f"{self.words.level}_found", level, unit="%", series=self.words.series)


def _points(kept: Tally) -> BottleneckShares:
    judged, hits, lost = (
        sum(getattr(count, name) for count in kept.minutes) for name in ("judged", "bottlenecked", "lost")
    )
    return BottleneckShares(Share(kept.bottlenecked, kept.judged, kept.lost), Share(hits, judged, lost))


def _minutes(kept: Tally, slow: list[MinuteCount]) -> BottleneckShares:
    hits, lost = sum(count.judged for count in slow), sum(count.wasted for count in slow)
    recent = Share(hits, sum(count.judged for count in kept.minutes), lost)
    return BottleneckShares(Share(kept.slow + hits, kept.judged, kept.slow_lost + lost), recent)


def _gpus(state: BottleneckState, view: NodeView, by_points: bool) -> tuple[str, ...]:
    """Return the GPUs that were low in half of the bottlenecks; in slow minutes, all that are used."""
    kept = state.kept
    if by_points and kept.low:
        return tuple(gpu for gpu in view.gpu_names if 2 * kept.low.get(gpu, 0) >= kept.bottlenecked)
    return state.used(view)


def _needed(view: NodeView, parameters: BottleneckParameters, least_s: float) -> int:
    patience = parameters.patience_points(view.interval_s)
    if parameters.patience_s is not None or view.closed:
        return patience
    return max(patience, points_in(least_s, view.interval_s))
