"""LoadBalancing: GPUs, or nodes, that do clearly less than the others.

Source: AWS documentation of LoadBalancing (histograms of the GPUs' utilization are compared, and the rule fires when
the distance of two exceeds threshold). What is added: the means must differ too, because the distance alone calls 97 %
and 99 % as far apart as 0 % and 100 %; the means of the last hour are compared by themselves, because a GPU that idles
for a part of its time has most of its values in common with the others; and so are the nodes of a job.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules import balance_output as output
from trainguard.rules.balance_output import BalanceDetails, Behind, Pair
from trainguard.rules.balance_stopped import stopped
from trainguard.rules.balance_window import (
    BLOCK_S,
    BLOCKS,
    MIN_WINDOW_POINTS,
    MIN_WINDOW_S,
    WIDE_GAP,
    BalanceWindow,
    Gaps,
    gaps_across,
)
from trainguard.rules.details import NodeDetails
from trainguard.rules.divergence import Comparison, compare_pairs, compare_with_rest, two_point_bins
from trainguard.rules.paid_time import share_of_paid
from trainguard.rules.parameter_help import WAITED, ParameterHelp, span_help
from trainguard.rules.protocol import JobRule, NonNegativeInt, Percent, Positive
from trainguard.rules.rule_inputs import JobView, NodeMinute, NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS, SMALL_WORK
from trainguard.rules.units import points_in
from trainguard.rules.warm_up import warming_up
from trainguard.rules.windowing import PatienceParameters, SampledRule, no_utilization
from trainguard.telemetry.snapshots import BoolArray, IntArray

MIN_POINTS, MIN_POINTS_S = 500, 250.0
"""Histograms of fewer points, or of a shorter time, are far apart by chance: eight equal GPUs would fire at ten."""

MIN_GAP = 15.0
"""Percentage points by which the means must differ: ten GPUs of one batch and one model do by a few."""

NEVER_USED_S = 1_200.0
"""A node that was never active counts as one at 0 % once it has idled for longer; up to here it may be starting up."""

CLEAR_AFTER_S = 5_400.0


class LoadBalancingParameters(PatienceParameters, frozen=True, kw_only=True):
    """``threshold`` is a Jensen-Shannon distance, at most 0.8326; ``patience_s`` in seconds, ``patience`` in points."""

    default_patience_s: ClassVar[float | None] = 5.0

    threshold: Percent = 0.5
    patience: NonNegativeInt | None = None
    patience_s: Positive | None = None


DISTANCE = Measure("Jensen-Shannon distance")
GAP = Measure("gap to the busiest", "percentage points")

SPEC = RuleSpec(
    name="LoadBalancing",
    title="Workload balance",
    looks_at="the GPUs of a node, the nodes of a job",
    fires_when="some do clearly less than the others",
    condition=(
        "a GPU, or a node, does less than another, and their utilizations are more than {threshold} apart; or it stays "
        "20 percentage points behind the busiest over the last 60 min"
    ),
    measures=(DISTANCE, GAP),
    at_patience=True,
    parameters={
        "threshold": ParameterHelp("Jensen-Shannon distance", "two workloads further apart are unbalanced"),
        **span_help("patience", WAITED, ("points", "seconds")),
    },
    shipped_defaults={"threshold": 0.2, "patience_s": 500.0},
    managed_parameters=("threshold", "patience"),
    inputs=SYSTEM,
    explains=(LOW_GPUS, SMALL_WORK),
    clause=output.clause_of,
    details=BalanceDetails,
    section="trainguard.report.html.sections.load_balancing:blocks",
)


class LoadBalancing(SampledRule[LoadBalancingParameters, BalanceWindow]):
    """Fires for GPUs of a node whose utilization has little in common, or that stay behind the busiest."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = LoadBalancingParameters
    state_type = BalanceWindow

    def clear_after_s(self, parameters: LoadBalancingParameters, interval_s: float) -> float:
        """90 min: the counts are of the whole job, and a distance changes slowly about the threshold."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def window_points(self, parameters: LoadBalancingParameters, interval_s: float) -> int:
        """Ask for no kept points: their counts are enough."""
        del parameters, interval_s
        return 0

    def observe(self, state: BalanceWindow, minute: NodeMinute, parameters: LoadBalancingParameters) -> None:
        """Add the kept points to the window."""
        view = minute.view
        if minute.fresh:
            fresh = slice(len(view.kept_times) - minute.fresh, None)
            times, utilization = view.kept_times[fresh], view.kept_gpu_utilization[fresh]
            state.add(times, utilization)
            if view.kept_total >= parameters.patience_points(view.interval_s):
                state.note(state.gaps(view.interval_s), times, utilization)

    def unfit(self, view: NodeView) -> str | None:
        """Say that a GPU alone has none to be compared with."""
        if len(view.gpu_names) > 1:
            return None
        if view.mig_names and not view.gpu_names:
            return no_utilization(view)
        return f"{view.node} has {'only one GPU' if view.gpu_names else 'no GPU'}, and so none to compare."

    def judge_samples(self, state: BalanceWindow, view: NodeView, parameters: LoadBalancingParameters) -> RuleResult:
        """Compare each pair of GPUs that have points enough, GPUs that were never active included."""
        points = view.gpu_histogram.sum(axis=1)
        chosen = np.flatnonzero(points >= _needed(parameters, view.interval_s))
        gaps = state.gaps(view.interval_s)
        waited = view.kept_total >= parameters.patience_points(view.interval_s)
        by_gap = waited and gaps.apart.any()
        if chosen.size <= 1 and not (waited and np.count_nonzero(gaps.judged) > 1):
            return _warming_up(view, int(np.sort(points)[-2]), parameters, _details(view))
        names = tuple(view.gpu_names[index] for index in chosen.tolist())
        compared = compare_pairs(view.gpu_histogram[chosen]) if chosen.size > 1 else None
        apart = None if compared is None else compared.apart(parameters.threshold, MIN_GAP)
        lost_s = state.lost / 1e4 * view.interval_s
        if compared is not None and not state.seen:
            lost_s = float(compared.idle_share.mean()) * view.kept_total * view.interval_s
        wasted = share_of_paid(view, lost_s)
        details = _details(view)
        if isinstance(details, BalanceDetails) and compared is not None and apart is not None:
            means = dict(zip(names, compared.means.tolist(), strict=True))
            distances = output.shown_distances(names, compared, apart)
            details = BalanceDetails(details.workloads, distances, means)
        # What was found by the gap of the means is held against its threshold when it is over, too.
        by_means = by_gap or (state.seen > 0 and np.count_nonzero(gaps.judged) > 1)
        if compared is None or apart is None or (by_means and not apart.any()):
            worst, busiest = view.gpu_names[gaps.worst], view.gpu_names[gaps.busiest]
            behind = Behind(f"{worst} of {view.node}", busiest, gaps, view.node)
            result = _result_of_gap(behind, wasted)
            if by_gap:
                result = replace(result, affected_share=_share_seen(state), until=gaps.over)
        else:
            row, column = compared.worst(apart)
            worst = names[row]
            pair = _pair(compared, row, column, (f"{worst} of {view.node}", names[column]), view.node)
            result = _result(compared, apart, (row, column), pair, wasted, parameters)
            over = gaps.over_since(int(chosen[row]), int(chosen[column])) if result.status is Status.FIRED else None
            result = replace(result, until=over)
        if result.status is Status.FIRED and by_gap:
            lowest = view.gpu_names.index(worst)
            result = replace(stopped(result, view, gaps, lowest, state.since), measure=result.measure)
        return replace(
            result,
            worst=worst,
            data_points=view.kept_total,
            onset=_onset(state, view) if result.status is Status.FIRED else None,
            gpus=_behind(view, gaps if by_gap else None, names, compared, apart),
            details=details,
        )


class LoadBalancingAcrossNodes(JobRule[LoadBalancingParameters]):
    """Fires for a node whose GPUs' utilization has little in common with that of all other nodes' GPUs."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = LoadBalancingParameters

    def clear_after_s(self, parameters: LoadBalancingParameters, interval_s: float) -> float:
        """As within a node."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def judge(self, view: JobView, parameters: LoadBalancingParameters) -> RuleResult:
        """Compare each node's GPUs together with those of all other nodes; nodes without GPUs are left out."""
        loads = [
            _load(facts.system, facts.collected.get(LoadBalancing.name))
            for facts in view.nodes.values()
            if facts.system is not None and facts.system.gpu_names
        ]
        parted = [each.system for each in view.nodes.values() if each.system is not None and each.system.mig_names]
        if parted and not loads:
            return RuleResult(Status.NOT_APPLICABLE, no_utilization(parted[0]))
        if len(loads) <= 1:
            count = "only one node with GPUs" if loads else "no node with GPUs"
            return RuleResult(Status.NOT_APPLICABLE, f"the job has {count}, and so none to compare.")
        judged = [load for load in loads if load.points >= _needed(parameters, load.view.interval_s)]
        windows = [load for load in loads if load.points >= parameters.patience_points(load.view.interval_s)]
        gaps = gaps_across([load.window for load in windows], max(load.view.interval_s for load in loads))
        by_gap = bool(gaps.apart.any())
        if len(judged) <= 1 and np.count_nonzero(gaps.judged) <= 1:
            second = sorted(loads, key=lambda load: load.points)[-2]
            return _warming_up(second.view, second.points, parameters, BalanceDetails())
        points = sum(load.points for load in (judged if len(judged) > 1 else windows))
        found = _compared_nodes(judged, view, parameters) if len(judged) > 1 else None
        onset = _onset_across(gaps, windows) if by_gap else None
        names = [load.view.node for load in windows]
        if found is not None and (found.status is Status.FIRED or not by_gap):
            fired = found.status is Status.FIRED and found.worst in names
            until = gaps.over_since(names.index(found.worst)) if fired and found.worst else None
            return replace(found, data_points=points, onset=found.onset or onset, until=until)
        worst, busiest = names[gaps.worst], names[gaps.busiest]
        wasted = _wasted_share(windows, compare_with_rest(np.stack([load.counts for load in windows])), view)
        remedy = f"look at what is different on {worst}: {output.REMEDY_OF_NODES}"
        result = _result_of_gap(Behind(worst, busiest, gaps, output.THE_JOB, remedy), wasted)
        return replace(
            result,
            worst=worst,
            data_points=points,
            onset=onset,
            until=gaps.over if by_gap else None,
            gpus=_gpus_of([windows[index] for index in np.flatnonzero(gaps.apart).tolist()]) if by_gap else (),
            details=BalanceDetails() if found is None else found.details,
        )


def _compared_nodes(judged: "list[_Load]", view: JobView, parameters: LoadBalancingParameters) -> RuleResult:
    """Compare the counts of nodes over the whole job, each with all the others."""
    names = tuple(load.view.node for load in judged)
    counts = np.stack([load.counts for load in judged])
    compared = compare_with_rest(counts)
    apart = compared.apart(parameters.threshold, MIN_GAP)
    row, column = compared.worst(apart)
    rest = names[1 - row] if len(names) == 2 else f"the other {len(names) - 1} nodes together"
    pair = replace(
        _pair(compared, row, column, (names[row], rest), output.THE_JOB),
        remedy=f"look at what is different on {names[row]}: {output.REMEDY_OF_NODES}",
    )
    result = _result(compared, apart, (row, column), pair, _wasted_share(judged, compared, view), parameters)
    details = BalanceDetails(
        workloads=dict(zip(names, two_point_bins(counts).tolist(), strict=True)),
        distances=dict(zip(names, compared.distances[:, 0].tolist(), strict=True)),
        means=dict(zip(names, compared.means.tolist(), strict=True)),
    )
    behind = result.status is Status.FIRED and bool(compared.means[row] < compared.others[row, column])
    unused = behind and judged[row].view.first_active_at is None
    return replace(
        result,
        worst=names[row],
        onset=judged[row].view.first_sample_at if unused else None,
        gpus=_gpus_of([judged[row]]) if behind else (),
        details=details,
    )


def _onset_across(gaps: Gaps, windows: "list[_Load]") -> float | None:
    """Return when nodes began to stay behind; None where that may be before the window."""
    if gaps.since is None or (gaps.reaches and gaps.minutes >= BLOCKS * BLOCK_S / 60.0):
        return None
    began = [load.view.first_active_at for load in windows if load.view.first_active_at is not None]
    return max([gaps.since, *([max(began)] if gaps.reaches and began else [])])


def _gpus_of(loads: "list[_Load]") -> tuple[str, ...]:
    """Return all GPUs of nodes, with the node's name."""
    return tuple(f"{load.view.node}/{gpu}" for load in loads for gpu in load.view.gpu_names)


@dataclass(frozen=True, slots=True)
class _Load:
    """What a node's GPUs did together: ``counts`` of whole percents (int64[101]) over ``points`` of the node."""

    view: NodeView
    counts: IntArray
    points: int
    window: BalanceWindow


def _load(view: NodeView, state: msgspec.Struct | None) -> _Load:
    """Pool the GPUs of a node; one that was never used has no kept points, and was at 0 % for as many as it idled."""
    window = state if isinstance(state, BalanceWindow) else BalanceWindow()
    if view.first_active_at is not None or view.idle_run_s <= NEVER_USED_S:
        return _Load(view, view.gpu_histogram.sum(axis=0), view.kept_total, window)
    points = round(view.idle_run_s / view.interval_s)
    counts = np.zeros(view.gpu_histogram.shape[1], dtype=np.int64)
    counts[0] = points * len(view.gpu_names)
    return _Load(view, counts, points, window)


def _needed(parameters: LoadBalancingParameters, interval_s: float) -> int:
    """Return how many points a comparison of histograms takes."""
    return max(parameters.patience_points(interval_s), MIN_POINTS, points_in(MIN_POINTS_S, interval_s))


def _needed_of_window(parameters: LoadBalancingParameters, interval_s: float) -> int:
    """Return how many points a comparison of the window's means takes."""
    return max(parameters.patience_points(interval_s), MIN_WINDOW_POINTS, points_in(MIN_WINDOW_S, interval_s))


def _wasted_share(loads: list[_Load], compared: Comparison, view: JobView) -> float:
    """Share by which those compared stay behind the busiest, of the paid time of all nodes with system metrics."""
    shares = [
        share_of_paid(load.view, behind * load.points * load.view.interval_s) or 0.0
        for load, behind in zip(loads, compared.idle_share.tolist(), strict=True)
    ]
    return sum(shares) / sum(facts.system is not None for facts in view.nodes.values())


def _details(view: NodeView) -> NodeDetails:
    """Return how busy each GPU was, for a reader of details."""
    if not view.detailed:
        return {}
    return BalanceDetails(dict(zip(view.gpu_names, two_point_bins(view.gpu_histogram).tolist(), strict=True)))


def _warming_up(view: NodeView, points: int, parameters: LoadBalancingParameters, details: NodeDetails) -> RuleResult:
    """Say how far a node is from the comparison that comes next: that of the window, or that of the counts."""
    of_window, of_counts = _needed_of_window(parameters, view.interval_s), _needed(parameters, view.interval_s)
    needed = of_counts if points >= of_window else min(of_window, of_counts)
    return warming_up(points, needed, view, details, output.warming_up_reason(view, points, needed))


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
    """Return the GPUs that stay behind: over the window, or by their counts, where they are below one far apart."""
    found = set() if gaps is None else {view.gpu_names[index] for index in np.flatnonzero(gaps.apart).tolist()}
    if compared is not None and apart is not None:
        below = (apart & (compared.means[:, np.newaxis] < compared.others)).any(axis=1)
        found |= {names[index] for index in np.flatnonzero(below).tolist()}
    return tuple(name for name in view.gpu_names if name in found)


def _pair(compared: Comparison, row: int, column: int, names: tuple[str, str], paid: str) -> Pair:
    mean, others = float(compared.means[row]), float(compared.others[row, column])
    return Pair(*names, mean, others, float(compared.distances[row, column]), paid)


def _result(
    compared: Comparison,
    apart: BoolArray,
    place: tuple[int, int],
    pair: Pair,
    wasted: float | None,
    parameters: LoadBalancingParameters,
) -> RuleResult:
    """Put the comparison of the worst pair into words; ``wasted`` is the share of the paid time that it all cost."""
    reason = output.sentence_of(pair, parameters.threshold)
    if not apart.any():
        if pair.distance > parameters.threshold:
            reason += output.too_close(MIN_GAP)
        return RuleResult(Status.OK, f"{reason}.", measured=pair.distance, threshold=parameters.threshold)
    return RuleResult(
        Status.FIRED,
        f"{reason}.",
        measured=pair.distance,
        threshold=parameters.threshold,
        advice=output.advice_on(pair, float(compared.idle_share.mean())),
        affected_share=float(compared.unlike[place]),
        wasted_share=wasted,
    )


def _result_of_gap(behind: Behind, wasted: float | None) -> RuleResult:
    """Put the comparison of the window's means into words; ``wasted`` is the share of the paid time that it cost."""
    fired = bool(behind.gaps.apart.any())
    return RuleResult(
        Status.FIRED if fired else Status.OK,
        f"{output.sentence_of_gap(behind)}.",
        measured=behind.gap,
        threshold=WIDE_GAP,
        measure=GAP,
        advice=output.advice_on_gap(behind) if fired else None,
        wasted_share=wasted if fired else None,
    )
