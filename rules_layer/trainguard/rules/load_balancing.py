"""LoadBalancing: GPUs, or nodes, that do clearly less than the others.

Source: AWS documentation of LoadBalancing (histograms of the GPUs' utilization are compared, and the rule fires when
the distance of two exceeds threshold). Three things are added: the means must differ too, because the distance alone
calls 97 % and 99 % as far apart as 0 % and 100 %; a comparison takes as many points as a histogram needs; and the nodes
of a job are compared with each other.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules import balance_output as output
from trainguard.rules.balance_output import BalanceDetails, Pair
from trainguard.rules.divergence import Comparison, compare_pairs, compare_with_rest, two_point_bins
from trainguard.rules.paid_time import share_of_paid
from trainguard.rules.parameter_help import WAITED, ParameterHelp, span_help
from trainguard.rules.protocol import JobRule, NonNegativeInt, Percent, Positive
from trainguard.rules.rule_inputs import JobView, NodeMinute, NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS
from trainguard.rules.warm_up import warming_up
from trainguard.rules.windowing import PatienceParameters, SampledRule
from trainguard.telemetry.snapshots import BoolArray, IntArray

MIN_POINTS = 500
"""Histograms of fewer points are far apart by chance: eight equal GPUs would fire at ten points."""

MIN_GAP = 10.0
"""Percentage points by which the means must differ."""

NEVER_USED_S = 1_200.0
"""A node that was never active counts as one at 0 % once it has idled for longer; up to here it may be starting up."""

CLEAR_AFTER_S = 5_400.0


class LoadBalancingParameters(PatienceParameters, frozen=True, kw_only=True):
    """``threshold`` is a Jensen-Shannon distance, at most 0.8326; ``patience_s`` in seconds, ``patience`` in points."""

    default_patience_s: ClassVar[float | None] = 5.0

    threshold: Percent = 0.5
    patience: NonNegativeInt | None = None
    patience_s: Positive | None = None


SPEC = RuleSpec(
    name="LoadBalancing",
    title="Workload balance",
    looks_at="the GPUs of a node, the nodes of a job",
    fires_when="some do clearly less than the others",
    condition="a GPU, or a node, does less than another, and their utilizations are more than {threshold} apart",
    measures=(Measure("Jensen-Shannon distance"),),
    at_patience=True,
    parameters={
        "threshold": ParameterHelp("Jensen-Shannon distance", "two workloads further apart are unbalanced"),
        **span_help("patience", WAITED, ("points, at least 500 are waited for", "seconds")),
    },
    shipped_defaults={"threshold": 0.2, "patience_s": 500.0},
    managed_parameters=("threshold", "patience"),
    inputs=SYSTEM,
    explains=(LOW_GPUS,),
    clause=output.clause_of,
    details=BalanceDetails,
    section="trainguard.report.html.sections.load_balancing:blocks",
)


class LoadBalancingState(msgspec.Struct, array_like=True):
    """Nothing: the engine's counts of the kept points say it all."""


class LoadBalancing(SampledRule[LoadBalancingParameters, LoadBalancingState]):
    """Fires for two GPUs of a node whose utilization over the job has little in common."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = LoadBalancingParameters
    state_type = LoadBalancingState

    def clear_after_s(self, parameters: LoadBalancingParameters, interval_s: float) -> float:
        """90 min: the counts are of the whole job, and a distance changes slowly about the threshold."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def window_points(self, parameters: LoadBalancingParameters, interval_s: float) -> int:
        """Ask for no kept points: their counts are enough."""
        del parameters, interval_s
        return 0

    def observe(self, state: LoadBalancingState, minute: NodeMinute, parameters: LoadBalancingParameters) -> None:
        """Do nothing: the engine counts."""

    def unfit(self, view: NodeView) -> str | None:
        """Say that a GPU alone has none to be compared with."""
        if len(view.gpu_names) > 1:
            return None
        return f"{view.node} has {'only one GPU' if view.gpu_names else 'no GPU'}, and so none to compare."

    def judge_samples(
        self, state: LoadBalancingState, view: NodeView, parameters: LoadBalancingParameters
    ) -> RuleResult:
        """Compare each pair of GPUs that have points enough, GPUs that were never active included."""
        del state
        needed = _needed(parameters, view.interval_s)
        points = view.gpu_histogram.sum(axis=1)
        chosen = np.flatnonzero(points >= needed)
        workloads = dict(zip(view.gpu_names, two_point_bins(view.gpu_histogram).tolist(), strict=True))
        if chosen.size <= 1:
            return _warming_up(view, int(np.sort(points)[-2]), needed, BalanceDetails(workloads))
        names = tuple(view.gpu_names[index] for index in chosen.tolist())
        compared = compare_pairs(view.gpu_histogram[chosen])
        apart = compared.apart(parameters.threshold, MIN_GAP)
        row, column = compared.worst(apart)
        lost_s = float(compared.idle_share.mean()) * view.kept_total * view.interval_s
        pair = _pair(compared, row, column, (f"{names[row]} of {view.node}", names[column]), view.node)
        result = _result(compared, apart, (row, column), pair, share_of_paid(view, lost_s) or 0.0, parameters)
        means = dict(zip(names, compared.means.tolist(), strict=True))
        details = BalanceDetails(workloads, output.shown_distances(names, compared, apart), means)
        return replace(result, worst=names[row], data_points=view.kept_total, details=details)


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
        systems = (facts.system for facts in view.nodes.values())
        loads = [_load(system) for system in systems if system is not None and system.gpu_names]
        if len(loads) <= 1:
            count = "only one node with GPUs" if loads else "no node with GPUs"
            return RuleResult(Status.NOT_APPLICABLE, f"the job has {count}, and so none to compare.")
        judged = [load for load in loads if load.points >= _needed(parameters, load.view.interval_s)]
        if len(judged) <= 1:
            second = sorted(loads, key=lambda load: load.points)[-2]
            needed = _needed(parameters, second.view.interval_s)
            return _warming_up(second.view, second.points, needed, BalanceDetails())
        names = tuple(load.view.node for load in judged)
        counts = np.stack([load.counts for load in judged])
        compared = compare_with_rest(counts)
        apart = compared.apart(parameters.threshold, MIN_GAP)
        row, column = compared.worst(apart)
        rest = names[1 - row] if len(names) == 2 else f"the other {len(names) - 1} nodes together"
        pair = replace(
            _pair(compared, row, column, (names[row], rest), "the job"),
            remedy=f"look at what is different on {names[row]}: {output.REMEDY_OF_NODES}",
        )
        wasted = _wasted_share(judged, compared, _paid_nodes(view))
        result = _result(compared, apart, (row, column), pair, wasted, parameters)
        details = BalanceDetails(
            workloads=dict(zip(names, two_point_bins(counts).tolist(), strict=True)),
            distances=dict(zip(names, compared.distances[:, 0].tolist(), strict=True)),
            means=dict(zip(names, compared.means.tolist(), strict=True)),
        )
        return replace(result, worst=names[row], data_points=sum(load.points for load in judged), details=details)


@dataclass(frozen=True, slots=True)
class _Load:
    """What a node's GPUs did together: ``counts`` of whole percents (int64[101]) over ``points`` of the node."""

    view: NodeView
    counts: IntArray
    points: int


def _load(view: NodeView) -> _Load:
    """Pool the GPUs of a node; one that was never used has no kept points, and was at 0 % for as many as it idled."""
    if view.first_active_at is not None or view.idle_run_s <= NEVER_USED_S:
        return _Load(view, view.gpu_histogram.sum(axis=0), view.kept_total)
    points = round(view.idle_run_s / view.interval_s)
    counts = np.zeros(view.gpu_histogram.shape[1], dtype=np.int64)
    counts[0] = points * len(view.gpu_names)
    return _Load(view, counts, points)


def _needed(parameters: LoadBalancingParameters, interval_s: float) -> int:
    return max(parameters.patience_points(interval_s), MIN_POINTS)


def _paid_nodes(view: JobView) -> int:
    """Count the nodes that the job is judged on: those with system metrics, be they compared or not."""
    return sum(facts.system is not None for facts in view.nodes.values())


def _wasted_share(loads: list[_Load], compared: Comparison, nodes: int) -> float:
    """Share of the paid time of so many ``nodes`` by which those compared stay behind the busiest of them."""
    shares = [
        share_of_paid(load.view, behind * load.points * load.view.interval_s) or 0.0
        for load, behind in zip(loads, compared.idle_share.tolist(), strict=True)
    ]
    return sum(shares) / nodes


def _warming_up(view: NodeView, points: int, needed: int, details: BalanceDetails) -> RuleResult:
    return warming_up(points, needed, view, details, output.warming_up_reason(view, points, needed))


def _pair(compared: Comparison, row: int, column: int, names: tuple[str, str], paid: str) -> Pair:
    mean, others = float(compared.means[row]), float(compared.others[row, column])
    return Pair(*names, mean, others, float(compared.distances[row, column]), paid)


def _result(
    compared: Comparison,
    apart: BoolArray,
    place: tuple[int, int],
    pair: Pair,
    wasted: float,
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
        advice=output.advice_on(pair, float(compared.idle_share.mean()), wasted),
        affected_share=float(compared.unlike[place]),
        wasted_share=wasted,
    )
