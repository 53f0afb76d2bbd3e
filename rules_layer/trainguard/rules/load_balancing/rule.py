"""LoadBalancing: GPUs, or nodes, that do clearly less than the others.

Source: AWS documentation of LoadBalancing. The means must differ too, as the distance alone calls 97 % and 99 % as far
apart as 0 % and 100 %; the last hour's are compared by themselves, for GPUs that idle part of their time.
"""

from dataclasses import replace

import numpy as np

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import BoolArray
from trainguard.render.details import NodeDetails
from trainguard.rules.load_balancing.judging import (
    CLEAR_AFTER_S,
    MIN_GAP,
    SPEC,
    BalanceDetails,
    LoadBalancingParameters,
    by_distance,
    by_gap_of,
    compared_facts,
    gap_facts,
    kept_span,
    needed_points,
    progress_of,
    shown_distances,
    stopped_facts,
    warming_up,
)
from trainguard.rules.load_balancing.text import LoadBalancingKind, text
from trainguard.rules.load_balancing.times import (
    FINE_S,
    SILENT_BLOCKS,
    Comparison,
    Stretch,
    compare_pairs,
    two_point_bins,
)
from trainguard.rules.load_balancing.window import WIDE_GAP, BalanceWindow, Gaps
from trainguard.rules.protocol import SystemRule
from trainguard.rules.rule_inputs import NodeMinute, NodeView, share_of_paid
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.windows.warm_up import lacks_utilization, waiting


def silence(view: NodeView, gaps: Gaps, low: int, since: float | None, worked: float | None = None) -> Stretch | None:
    """Return when a GPU that had worked did nothing; None of one that did something, or never worked.

    ``low`` is the GPU, ``since`` the imbalance's start and ``worked`` the GPU's last work, epoch seconds; None where
    unknown.
    """
    if not view.ever_active[low] or view.first_active_at is None:
        return None
    stretch = gaps.fine.stretch(low, [gaps.busiest], WIDE_GAP / 2.0, gaps.variance)
    if stretch is None:
        return None
    begin = since if stretch.begin is None else stretch.begin
    if begin is None or begin - view.first_active_at < SILENT_BLOCKS * FINE_S:
        return None
    if not gaps.fine.is_silent(low, begin, stretch.end):
        return None
    # It worked up to a pause of the whole node, and not after it: so it did nothing in the pause either.
    stopped = gaps.fine.seen_until(low, begin)
    # The others may have done little when it stopped, or nothing at all: it is behind them from later on.
    return Stretch(stopped if worked is None or stretch.end is not None else min(stopped, worked), stretch.end)


class LoadBalancing(SystemRule[LoadBalancingParameters, BalanceWindow]):
    """Fires for GPUs of a node whose utilization has little in common, or that stay behind the busiest."""

    spec = SPEC

    clear_s = CLEAR_AFTER_S
    """90 min: the counts are of the whole job, and a distance changes slowly about the threshold."""

    def observe(self, state: BalanceWindow, minute: NodeMinute, parameters: LoadBalancingParameters) -> None:
        """Add the kept points to the window."""
        view, snapshots = minute.view, minute.snapshots
        if minute.restarted:
            state.reset()
        if len(snapshots) and snapshots.gpu_utilization.size and minute.started.any():
            state.add_all(snapshots.times[minute.started], snapshots.gpu_utilization[minute.started])
        if minute.fresh:
            fresh = slice(len(view.kept_times) - minute.fresh, None)
            times, utilization = view.kept_times[fresh], view.kept_gpu_utilization[fresh]
            state.add(times, utilization)
            if view.kept_total >= parameters.patience_points(view.interval_s):
                state.note(state.gaps(view.interval_s), times, utilization)

    def judge(self, state: BalanceWindow, view: NodeView, parameters: LoadBalancingParameters) -> RuleResult:
        """Compare each pair of GPUs that have points enough, GPUs that were never active included."""
        unfit = _unfit(view)
        if unfit is not None:
            return unfit
        points = view.gpu_histogram.sum(axis=1)
        chosen = np.flatnonzero(points >= needed_points(parameters, view.interval_s))
        gaps = state.gaps(view.interval_s)
        waited = view.kept_total >= parameters.patience_points(view.interval_s)
        by_gap = waited and bool(gaps.apart.any())
        if chosen.size <= 1 and not (waited and np.count_nonzero(gaps.judged) > 1):
            return warming_up(view, int(np.sort(points)[-2]), parameters, _details(view))
        names = tuple(view.gpu_names[index] for index in chosen.tolist())
        compared = compare_pairs(view.gpu_histogram[chosen]) if chosen.size > 1 else None
        apart = None if compared is None else compared.apart(parameters.threshold, MIN_GAP)
        details = _details(view)
        if isinstance(details, BalanceDetails) and compared is not None and apart is not None:
            means = dict(zip(names, compared.means.tolist(), strict=True))
            details = BalanceDetails(details.workloads, shown_distances(names, compared, apart), means)
        # What was found by the gap of the means is held against its threshold when it is over, too.
        by_means = by_gap or (state.seen > 0 and np.count_nonzero(gaps.judged) > 1)
        sides = tuple((view.node, gpu) for gpu in view.gpu_names)
        if compared is None or apart is None or (by_means and not apart.any()):
            outcome, worst = by_gap_of(gaps, sides), gaps.worst
            until = gaps.over if by_gap else None
            affected = _share_seen(state) if by_gap else None
        else:
            row, column = compared.worst(apart)
            worst = int(chosen[row])
            spans = [kept_span(state, view)] * int(chosen.size)
            told = compared_facts(compared, (row, column), [sides[index] for index in chosen.tolist()], spans)
            outcome = by_distance(compared, apart, (row, column), told, parameters)
            fired = outcome.status is Status.FIRED
            until = gaps.over_since(worst, int(chosen[column])) if fired else None
            affected = float(compared.unlike[row, column]) if fired else None
        behind = outcome.status is Status.FIRED and by_gap
        when = silence(view, gaps, worst, state.since, state.worked_until(worst)) if behind else None
        if when is not None:
            stopped = stopped_facts(view, view.gpu_names[worst], when)
            facts = (*gap_facts(gaps, sides, worst), *stopped)
            outcome = replace(by_gap_of(gaps, sides), status=Status.FIRED, kind=LoadBalancingKind.STOPPED, facts=facts)
        fired = outcome.status is Status.FIRED
        return outcome.result(
            affected_share=affected,
            wasted_share=_wasted_on(state, view, compared) if fired else None,
            until=until,
            worst=view.gpu_names[worst],
            data_points=view.kept_total,
            onset=_onset(state, view) if fired else None,
            gpus=_behind(view, gaps if by_gap else None, names, compared, apart),
            progress=progress_of(view, int(np.sort(points)[-2]), parameters, gaps),
            details=details,
        )


def _unfit(view: NodeView) -> RuleResult | None:
    if view.watermark_s is None:
        return waiting(view)
    if len(view.gpu_names) > 1:
        return None
    if view.mig_names and not view.gpu_names:
        return lacks_utilization(view)
    number = Fact(name="gpus", value=len(view.gpu_names), unit="GPUs", node=view.node)
    return RuleResult.of(text, Status.NOT_APPLICABLE, LoadBalancingKind.NO_PEER, (number,))


def _wasted_on(state: BalanceWindow, view: NodeView, compared: Comparison | None) -> float | None:
    lost_s = state.lost / 1e4 * view.interval_s
    if compared is not None and not state.seen:
        lost_s = float(compared.idle_share.mean()) * view.kept_total * view.interval_s
    return share_of_paid(view, lost_s)


def _details(view: NodeView) -> NodeDetails:
    if not view.detailed:
        return {}
    return BalanceDetails(dict(zip(view.gpu_names, two_point_bins(view.gpu_histogram).tolist(), strict=True)))


def _share_seen(state: BalanceWindow) -> float | None:
    return state.seen / state.judged if state.judged else None


def _onset(state: BalanceWindow, view: NodeView) -> float | None:
    """Return when the imbalance of now began; None where only the counts of the whole job show it."""
    if state.since is None or view.first_active_at is None:
        return None
    return max(state.since, view.first_active_at)


def _behind(
    view: NodeView, gaps: Gaps | None, names: tuple[str, ...], compared: Comparison | None, apart: BoolArray | None
) -> tuple[str, ...]:
    found = set() if gaps is None else {view.gpu_names[index] for index in np.flatnonzero(gaps.apart).tolist()}
    if compared is not None and apart is not None:
        below = (apart & (compared.means[:, np.newaxis] < compared.others)).any(axis=1)
        found |= {names[index] for index in np.flatnonzero(below).tolist()}
    return tuple(name for name in view.gpu_names if name in found)
