"""LoadBalancing: GPUs, or nodes, that do clearly less than the others.

Source: AWS documentation of LoadBalancing (histograms of the GPUs' utilization are compared, and the rule fires when
the distance of two exceeds threshold). Three things are added: the means must differ too, because the distance alone
calls 97 % and 99 % as far apart as 0 % and 100 %; a comparison takes as many points as a histogram needs; and the nodes
of a job are compared with each other.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules.divergence import MAX_DISTANCE, Comparison, compare_pairs, compare_with_rest, two_point_bins
from trainguard.rules.judgement import Judgement, Measure
from trainguard.rules.paid_time import share_of_paid
from trainguard.rules.parameter_help import WAITED, ParameterHelp, span_help
from trainguard.rules.protocol import JobRule, NonNegativeInt, Percent, Positive, RuleParameters, SystemRule
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS
from trainguard.rules.units import show_duration, show_number, show_percent
from trainguard.rules.views import JobView, NodeMinute, NodeView
from trainguard.rules.warm_up import never_active_reason
from trainguard.rules.windowing import patience_in_points
from trainguard.telemetry.snapshots import BoolArray, IntArray

MIN_POINTS = 500
"""Histograms of fewer points are far apart by chance: eight equal GPUs would fire at ten points."""

MIN_GAP = 10.0
"""Percentage points by which the means must differ."""

NEVER_USED_S = 1_200.0
"""A node that was never active counts as one at 0 % once it has idled for longer; up to here it may be starting up."""

NEVER_USED_PERCENT = 1.0
"""A mean below it is that of a GPU without a process."""

CLEAR_AFTER_S = 5_400.0
LONG_WAIT_S = 7_200.0
REMEDY = (
    "split data and model evenly (one process a GPU, equal shards, equal batches), and do not let one process also "
    "load, gather or evaluate for the others"
)
REMEDY_OF_NODES = "its share of the data, its network, its GPUs' clocks; replace it if it is slow with the same work"


class LoadBalancingParameters(RuleParameters, frozen=True, kw_only=True):
    """``threshold`` is a Jensen-Shannon distance, at most 0.8326; ``patience`` in points, ``patience_s`` in seconds."""

    threshold: Percent = 0.5
    patience: NonNegativeInt = 10
    patience_s: Positive | None = None


def _clause(judgement: Judgement, nodes: int) -> str:
    across_nodes = nodes > 1 and "/" not in (judgement.worst or "")
    return f"the {'nodes' if across_nodes else 'GPUs'} did not share the work evenly"


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
    shipped_defaults={"threshold": 0.2, "patience": 1_000},
    managed_parameters=("threshold", "patience"),
    inputs=SYSTEM,
    explains=(LOW_GPUS,),
    clause=_clause,
    section="trainguard.report.html.sections.load_balancing:blocks",
)


class LoadBalancingState(msgspec.Struct, array_like=True):
    """Nothing: the engine's counts of the kept points say it all."""


class LoadBalancing(SystemRule[LoadBalancingParameters, LoadBalancingState]):
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

    def judge(self, state: LoadBalancingState, view: NodeView, parameters: LoadBalancingParameters) -> Judgement:
        """Compare each pair of GPUs that have points enough, GPUs that were never active included."""
        del state
        if view.through is None:
            return Judgement(Status.WAITING_FOR_DATA, f"no system metrics of {view.node} yet.")
        if len(view.gpu_names) <= 1:
            count = "only one GPU" if view.gpu_names else "no GPU"
            return Judgement(Status.NOT_APPLICABLE, f"{view.node} has {count}, and so none to compare.")
        needed = _needed(parameters, view.interval_s)
        points = view.gpu_histogram.sum(axis=1)
        chosen = np.flatnonzero(points >= needed)
        workloads = dict(zip(view.gpu_names, two_point_bins(view.gpu_histogram).tolist(), strict=True))
        if chosen.size <= 1:
            return _warming_up(view, int(np.sort(points)[-2]), needed, {"workloads": workloads})
        names = tuple(view.gpu_names[index] for index in chosen.tolist())
        compared = compare_pairs(view.gpu_histogram[chosen])
        apart = _apart(compared, parameters)
        row, column = _worst(compared, apart)
        lost_s = float(compared.idle_share.mean()) * view.kept_total * view.interval_s
        pair = _Pair(f"{names[row]} of {view.node}", names[column], row, column, view.node)
        judgement = _judgement(compared, apart, pair, share_of_paid(view, lost_s) or 0.0, parameters)
        details = {
            "workloads": workloads,
            "distances": _shown_distances(names, compared, apart),
            "means": dict(zip(names, compared.means.tolist(), strict=True)),
        }
        return replace(judgement, worst=names[row], data_points=view.kept_total, details=details)


class LoadBalancingAcrossNodes(JobRule[LoadBalancingParameters]):
    """Fires for a node whose GPUs' utilization has little in common with that of all other nodes' GPUs."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = LoadBalancingParameters

    def clear_after_s(self, parameters: LoadBalancingParameters, interval_s: float) -> float:
        """As within a node."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def judge(self, view: JobView, parameters: LoadBalancingParameters) -> Judgement:
        """Compare each node's GPUs together with those of all other nodes; nodes without GPUs are left out."""
        systems = (facts.system for facts in view.nodes.values())
        loads = [_load(system) for system in systems if system is not None and system.gpu_names]
        if len(loads) <= 1:
            count = "only one node with GPUs" if loads else "no node with GPUs"
            return Judgement(Status.NOT_APPLICABLE, f"the job has {count}, and so none to compare.")
        judged = [load for load in loads if load.points >= _needed(parameters, load.view.interval_s)]
        if len(judged) <= 1:
            second = sorted(loads, key=lambda load: load.points)[-2]
            return _warming_up(second.view, second.points, _needed(parameters, second.view.interval_s), {})
        names = tuple(load.view.node for load in judged)
        counts = np.stack([load.counts for load in judged])
        compared = compare_with_rest(counts)
        apart = _apart(compared, parameters)
        row, column = _worst(compared, apart)
        rest = names[1 - row] if len(names) == 2 else f"the other {len(names) - 1} nodes together"
        remedy = f"look at what is different on {names[row]}: {REMEDY_OF_NODES}"
        pair = _Pair(names[row], rest, row, column, "the job", remedy)
        judgement = _judgement(compared, apart, pair, _wasted_share(judged, compared, _paid_nodes(view)), parameters)
        details = {
            "workloads": dict(zip(names, two_point_bins(counts).tolist(), strict=True)),
            "distances": dict(zip(names, compared.distances[:, 0].tolist(), strict=True)),
            "means": dict(zip(names, compared.means.tolist(), strict=True)),
        }
        return replace(judgement, worst=names[row], data_points=sum(load.points for load in judged), details=details)


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
    return max(patience_in_points(parameters.patience, parameters.patience_s, interval_s), MIN_POINTS)


def _apart(compared: Comparison, parameters: LoadBalancingParameters) -> BoolArray:
    gaps = np.abs(compared.means[:, np.newaxis] - compared.others)
    apart: BoolArray = (compared.distances > parameters.threshold) & (gaps >= MIN_GAP)
    return apart


def _worst(compared: Comparison, apart: BoolArray) -> tuple[int, int]:
    """Return the least busy of the sides that are apart, and its furthest counterpart; else the two furthest apart."""
    if not apart.any():
        distances = compared.distances.copy()
        if distances.shape[1] > 1:
            np.fill_diagonal(distances, -1.0)
        row, column = divmod(int(np.argmax(distances)), distances.shape[1])
        return row, column
    row = int(np.argmin(np.where(apart.any(axis=1), compared.means, np.inf)))
    return row, int(np.argmax(np.where(apart[row], compared.distances[row], -1.0)))


def _shown_distances(names: tuple[str, ...], compared: Comparison, apart: BoolArray) -> dict[str, dict[str, float]]:
    """Distances of the pairs that are apart, and the largest of all, by the names of both."""
    shown = np.triu(apart, 1)
    largest = np.argmax(np.triu(compared.distances, 1) + np.triu(np.ones(apart.shape), 1))
    shown[np.unravel_index(int(largest), apart.shape)] = True
    table: dict[str, dict[str, float]] = {}
    for row, column in np.argwhere(shown).tolist():
        table.setdefault(names[row], {})[names[column]] = float(compared.distances[row, column])
    return table


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


def _warming_up(view: NodeView, points: int, needed: int, details: dict[str, Any]) -> Judgement:
    reason = f"{view.node} has {points:,} of the {needed:,} points that a comparison takes"
    if view.first_active_at is None:
        reason = never_active_reason(view).removesuffix(".")
    elif view.closed:
        reason += "; its stream has ended, too early for a verdict"
    else:
        reason += f"; about {show_duration((needed - points) * view.interval_s)} left"
        if needed * view.interval_s > LONG_WAIT_S:
            reason += f" at a sampling interval of {view.interval_s:g} s"
    return Judgement(
        Status.WARMING_UP, f"{reason}.", data_points=points, patience=f"{points}/{needed}", details=details
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """A side, what it was compared with, where in the comparison, and whose time was paid for."""

    name: str
    other: str
    row: int
    column: int
    paid: str
    remedy: str = REMEDY


def _judgement(
    compared: Comparison, apart: BoolArray, pair: _Pair, wasted: float, parameters: LoadBalancingParameters
) -> Judgement:
    """Put the comparison of the worst pair into words; ``wasted`` is the share of the paid time that it all cost."""
    mean, others = float(compared.means[pair.row]), float(compared.others[pair.row, pair.column])
    distance = float(compared.distances[pair.row, pair.column])
    reason = (
        f"{pair.name} is at {show_percent(mean)} on average, {pair.other} at {show_percent(others)}; the distance of "
        f"their histograms is {distance:.2f} (threshold {parameters.threshold:g}, at most {MAX_DISTANCE:.2f})"
    )
    if not apart.any():
        if distance > parameters.threshold:
            reason += f", but their means differ by less than {show_number(MIN_GAP)} percentage points"
        return Judgement(Status.OK, f"{reason}.", measured=distance, threshold=parameters.threshold)
    behind = show_percent(100.0 * float(compared.idle_share.mean()))
    cost = (
        f"Together they do {behind} less than at the pace of the busiest, which cost {show_percent(100.0 * wasted)} of "
        f"the time paid for {pair.paid}"
    )
    start = f"let a process use {pair.name}, or pay for less; " if mean < NEVER_USED_PERCENT else ""
    return Judgement(
        Status.FIRED,
        f"{reason}.",
        measured=distance,
        threshold=parameters.threshold,
        advice=f"{cost}: {start}{pair.remedy}.",
        affected_share=float(compared.unlike[pair.row, pair.column]),
        wasted_share=wasted,
    )
