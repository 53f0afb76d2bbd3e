"""LoadBalancing over the nodes of a job: the GPUs of each together, against those of all the others."""

from dataclasses import dataclass, replace

import numpy as np

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import IntArray
from trainguard.rules.load_balancing.judging import (
    CLEAR_AFTER_S,
    MIN_GAP,
    SPEC,
    BalanceDetails,
    LoadBalancingParameters,
    by_distance,
    by_gap_of,
    compared_facts,
    kept_span,
    needed_points,
    progress_of,
    warming_up,
)
from trainguard.rules.load_balancing.rule import LoadBalancing
from trainguard.rules.load_balancing.text import LoadBalancingKind, text
from trainguard.rules.load_balancing.times import Comparison, compare_with_rest, two_point_bins
from trainguard.rules.load_balancing.window import (
    BalanceWindow,
    Gaps,
    gaps_across,
)
from trainguard.rules.protocol import JobRule
from trainguard.rules.rule_inputs import JobView, NodeFacts, NodeView, share_of_paid
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.windows.warm_up import lacks_utilization

NEVER_USED_S = 1_200.0
"""A node that was never active counts as one at 0 % once it has idled for longer; up to here it may be starting up."""


class LoadBalancingAcrossNodes(JobRule[LoadBalancingParameters]):
    """Fires for a node whose GPUs' utilization has little in common with that of all other nodes' GPUs."""

    spec = SPEC

    clear_s = CLEAR_AFTER_S

    def judge(self, view: JobView, parameters: LoadBalancingParameters) -> RuleResult:
        """Compare each node's GPUs together with those of all other nodes; nodes without GPUs are left out."""
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
            return RuleResult.of(text, Status.NOT_APPLICABLE, LoadBalancingKind.NO_OTHER_NODE, (number,))
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
        return by_gap_of(gaps, tuple((name, None) for name in names)).result(
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
    fired = outcome.status is Status.FIRED
    details = BalanceDetails(
        workloads=dict(zip(names, two_point_bins(counts).tolist(), strict=True)),
        distances=dict(zip(names, compared.distances[:, 0].tolist(), strict=True)),
        means=dict(zip(names, compared.means.tolist(), strict=True)),
    )
    behind = fired and bool(compared.means[row] < compared.others[row, column])
    unused = behind and load.view.first_active_at is None
    return outcome.result(
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


def _wasted_share(loads: list[_Load], compared: Comparison, view: JobView) -> float:
    """Share by which those compared stay behind the busiest, of the paid time of all nodes with system metrics."""
    shares = [
        share_of_paid(load.view, behind * load.points * load.view.interval_s) or 0.0
        for load, behind in zip(loads, compared.idle_share.tolist(), strict=True)
    ]
    return sum(shares) / sum(facts.system is not None for facts in view.nodes.values())
