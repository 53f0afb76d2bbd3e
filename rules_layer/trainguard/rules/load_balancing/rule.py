"""LoadBalancing: GPUs, or nodes, that do clearly less than the others.

Source: AWS documentation of LoadBalancing. The means must differ too, as the distance alone calls 97 % and 99 % as far
apart as 0 % and 100 %; the last hour's are compared by themselves, for GPUs that idle part of their time. Of a job's
nodes the GPUs of each together are compared with those of all the others.
"""

from dataclasses import dataclass, replace

import numpy as np

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import BoolArray, IntArray
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
    DeviceComparison,
    Stretch,
    compare_pairs,
    compare_with_rest,
    two_point_bins,
)
from trainguard.rules.load_balancing.window import WIDE_GAP, BalanceWindow, Gaps, gaps_across
from trainguard.rules.protocol import JobRule, SystemRule
from trainguard.rules.rule_inputs import JobView, NodeFacts, NodeMinute, NodeView, share_of_paid
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.windows import lacks_utilization, waiting


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
    behind_since, end = stretch
    begin = since if behind_since is None else behind_since
    if begin is None or begin - view.first_active_at < SILENT_BLOCKS * FINE_S:
        return None
    if not gaps.fine.is_silent(low, begin, end):
        return None
    # It worked up to a pause of the whole node, and not after it: so it did nothing in the pause either.
    stopped = gaps.fine.seen_until(low, begin)
    # The others may have done little when it stopped, or nothing at all: it is behind them from later on.
    return stopped if worked is None or end is not None else min(stopped, worked), end


class LoadBalancing(SystemRule[LoadBalancingParameters, BalanceWindow]):
    spec = SPEC

    # 90 min: the counts are of the whole job, and a distance changes slowly about the threshold.
    clear_s = CLEAR_AFTER_S

    def observe(self, state: BalanceWindow, minute: NodeMinute, parameters: LoadBalancingParameters) -> None:
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
        unfit = _unfit(view)
        if unfit is not None:
            return unfit
        points = view.gpu_histogram.sum(axis=1)
        chosen = np.flatnonzero(points >= needed_points(parameters, view.interval_s))
        gaps = state.gaps(view.interval_s)
        waited = view.kept_total >= parameters.patience_points(view.interval_s)
        by_gap, details = waited and bool(gaps.apart.any()), _details(view)
        if chosen.size <= 1 and not (waited and np.count_nonzero(gaps.judged) > 1):
            return warming_up(view, int(np.sort(points)[-2]), parameters, details)
        names = tuple(view.gpu_names[index] for index in chosen.tolist())
        compared = compare_pairs(view.gpu_histogram[chosen]) if chosen.size > 1 else None
        apart = None if compared is None else compared.apart(parameters.threshold, MIN_GAP)
        if isinstance(details, BalanceDetails) and compared is not None and apart is not None:
            means = dict(zip(names, compared.means.tolist(), strict=True))
            details = BalanceDetails(details.workloads, shown_distances(names, compared, apart), means)
        # What was found by the gap of the means is held against its threshold when it is over, too.
        by_means = by_gap or (state.seen > 0 and np.count_nonzero(gaps.judged) > 1)
        sides = tuple((view.node, gpu) for gpu in view.gpu_names)
        if compared is None or apart is None or (by_means and not apart.any()):
            outcome, worst = by_gap_of(gaps, sides), gaps.worst
            until = gaps.over if by_gap else None
            affected = state.seen / state.judged if by_gap and state.judged else None
        else:
            row, column = compared.worst(apart)
            worst = int(chosen[row])
            own = state.own([kept_span(state, view)] * len(view.gpu_names))
            spans = [own[index] for index in chosen.tolist()]
            told = compared_facts(compared, (row, column), [sides[index] for index in chosen.tolist()], spans)
            outcome = by_distance(compared, apart, (row, column), told, parameters)
            fired = outcome["kind"].status is Status.FIRED
            until = gaps.over_since(worst, int(chosen[column])) if fired else None
            affected = float(compared.unlike[row, column]) if fired else None
        behind = outcome["kind"].status is Status.FIRED and by_gap
        when = silence(view, gaps, worst, state.since, state.worked_until(worst)) if behind else None
        if when is not None:
            stopped = stopped_facts(view, view.gpu_names[worst], when)
            facts = (*gap_facts(gaps, sides, worst), *stopped)
            stands = {"kind": LoadBalancingKind.STOPPED, "facts": facts}
            outcome = by_gap_of(gaps, sides) | stands
        fired = outcome["kind"].status is Status.FIRED
        return RuleResult.of_kind(
            text,
            **outcome,
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
    return RuleResult.of_kind(text, LoadBalancingKind.NO_PEER, (number,))


def _wasted_on(state: BalanceWindow, view: NodeView, compared: DeviceComparison | None) -> float | None:
    lost_s = state.lost / 1e4 * view.interval_s
    if compared is not None and not state.seen:
        lost_s = float(compared.idle_share.mean()) * view.kept_total * view.interval_s
    return share_of_paid(view, lost_s)


def _details(view: NodeView) -> NodeDetails:
    if not view.detailed:
        return {}
    return BalanceDetails(dict(zip(view.gpu_names, two_point_bins(view.gpu_histogram).tolist(), strict=True)))


def _onset(state: BalanceWindow, view: NodeView) -> float | None:
    """Return when the imbalance of now began; None where only the counts of the whole job show it."""
    if state.since is None or view.first_active_at is None:
        return None
    return max(state.since, view.first_active_at)


def _behind(
    view: NodeView,
    gaps: Gaps | None,
    names: tuple[str, ...],
    compared: DeviceComparison | None,
    apart: BoolArray | None,
) -> tuple[str, ...]:
    found = set() if gaps is None else {view.gpu_names[index] for index in np.flatnonzero(gaps.apart).tolist()}
    if compared is not None and apart is not None:
        below = (apart & (compared.means[:, np.newaxis] < compared.others)).any(axis=1)
        found |= {names[index] for index in np.flatnonzero(below).tolist()}
    return tuple(name for name in view.gpu_names if name in found)


# A node that was never active counts as one at 0 % once it has idled for longer; up to here it may be starting up.
NEVER_USED_S = 1_200.0


class LoadBalancingAcrossNodes(JobRule[LoadBalancingParameters]):
    spec = SPEC

    clear_s = CLEAR_AFTER_S

    def judge(self, view: JobView, parameters: LoadBalancingParameters) -> RuleResult:
        loads = [
            _load(facts.system, facts)
            for facts in view.nodes.values()
            if facts.system is not None and facts.system.gpu_names
        ]
        parted = [each.system for each in view.nodes.values() if each.system is not None and each.system.mig_names]
        if parted and not loads:
            return lacks_utilization(parted[0])
        if len(loads) <= 1:
            number = Fact(name="nodes", value=len(loads), unit="nodes")
            return RuleResult.of_kind(text, LoadBalancingKind.NO_OTHER_NODE, (number,))
        judged = [load for load in loads if load.points >= needed_points(parameters, load.view.interval_s)]
        windows = [load for load in loads if load.points >= parameters.patience_points(load.view.interval_s)]
        gaps = gaps_across([load.window for load in windows], max(load.view.interval_s for load in loads))
        by_gap = bool(gaps.apart.any())
        second = sorted(loads, key=lambda load: load.points)[-2]
        if len(judged) <= 1 and np.count_nonzero(gaps.judged) <= 1:
            return warming_up(second.view, second.points, parameters, BalanceDetails())
        progress = progress_of(second.view, second.points, parameters, gaps)
        points = sum(load.points for load in (judged if len(judged) > 1 else windows))
        found = _compared_nodes(judged, view, parameters) if len(judged) > 1 else None
        onset = _onset_across(gaps, windows) if by_gap else None
        names = [load.view.node for load in windows]
        if found is not None and (found.status is Status.FIRED or not by_gap):
            fired = found.status is Status.FIRED and found.worst in names
            until = gaps.over_since(names.index(found.worst)) if fired and found.worst else None
            return replace(found, data_points=points, onset=found.onset or onset, until=until, progress=progress)
        wasted = _wasted_share(windows, compare_with_rest(np.stack([load.counts for load in windows])), view)
        return RuleResult.of_kind(
            text,
            **by_gap_of(gaps, tuple((name, None) for name in names)),
            wasted_share=wasted if by_gap else None,
            worst=names[gaps.worst],
            data_points=points,
            onset=onset,
            until=gaps.over if by_gap else None,
            gpus=_gpus_of([windows[index] for index in np.flatnonzero(gaps.apart).tolist()]) if by_gap else (),
            progress=progress,
            details=BalanceDetails() if found is None else found.details,
        )


def _compared_nodes(judged: "list[_Load]", view: JobView, parameters: LoadBalancingParameters) -> RuleResult:
    names = tuple(load.view.node for load in judged)
    counts = np.stack([load.counts for load in judged])
    compared = compare_with_rest(counts)
    apart = compared.apart(parameters.threshold, MIN_GAP)
    row, column = compared.worst(apart)
    load = judged[row]
    sides: list[tuple[str, str | None]] = [(name, None) for name in names]
    spans = [kept_span(each.window, each.view) for each in judged]
    told = compared_facts(compared, (row, column), sides, spans)
    outcome = by_distance(compared, apart, (row, column), told, parameters)
    fired = outcome["kind"].status is Status.FIRED
    details = BalanceDetails(
        workloads=dict(zip(names, two_point_bins(counts).tolist(), strict=True)),
        distances=dict(zip(names, compared.distances[:, 0].tolist(), strict=True)),
        means=dict(zip(names, compared.means.tolist(), strict=True)),
    )
    behind = fired and bool(compared.means[row] < compared.others[row, column])
    unused = behind and load.view.first_active_at is None
    return RuleResult.of_kind(
        text,
        **outcome,
        affected_share=float(compared.unlike[row, column]) if fired else None,
        wasted_share=_wasted_share(judged, compared, view) if fired else None,
        worst=names[row],
        onset=load.view.first_sample_at if unused else None,
        gpus=_gpus_of([load]) if behind else (),
        details=details,
    )


def _onset_across(gaps: Gaps, windows: "list[_Load]") -> float | None:
    """Return when nodes began to stay behind; None where that may be before the window."""
    if gaps.since is None or (gaps.reaches and gaps.full):
        return None
    began = [load.view.first_active_at for load in windows if load.view.first_active_at is not None]
    return max([gaps.since, *([max(began)] if gaps.reaches and began else [])])


def _gpus_of(loads: "list[_Load]") -> tuple[str, ...]:
    return tuple(f"{load.view.node}/{gpu}" for load in loads for gpu in load.view.gpu_names)


@dataclass(frozen=True, slots=True)
class _Load:
    """A node's GPUs together: ``counts`` of whole percents (int64[101]) over ``points`` of the node."""

    view: NodeView
    counts: IntArray
    points: int
    window: BalanceWindow


def _load(view: NodeView, facts: NodeFacts) -> _Load:
    state = facts.collected.get(LoadBalancing.name)
    window = state if isinstance(state, BalanceWindow) else BalanceWindow()
    if view.first_active_at is not None or view.idle_run_s <= NEVER_USED_S or view.watermark_s is None:
        return _Load(view, view.gpu_histogram.sum(axis=0), view.kept_total, window)
    points = round(view.idle_run_s / view.interval_s)
    counts = np.zeros(view.gpu_histogram.shape[1], dtype=np.int64)
    use = facts.used_between(view.watermark_s - view.idle_run_s, view.watermark_s)
    means = np.zeros(len(view.gpu_names)) if use is None else np.nan_to_num(use.means)
    np.add.at(counts, np.minimum(np.rint(means).astype(np.int64), counts.size - 1), points)
    return _Load(view, counts, points, window)


def _wasted_share(loads: list[_Load], compared: DeviceComparison, view: JobView) -> float:
    """Share by which those compared stay behind the busiest, of the paid time of all nodes with system metrics."""
    shares = [
        share_of_paid(load.view, behind * load.points * load.view.interval_s) or 0.0
        for load, behind in zip(loads, compared.idle_share.tolist(), strict=True)
    ]
    return sum(shares) / sum(facts.system is not None for facts in view.nodes.values())
