"""Shared parts of LoadBalancing's two comparisons: parameters, facts and patience."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from trainguard.core.finding import Fact, Patience
from trainguard.formats.profile.snapshots import BoolArray, points_in
from trainguard.ledger.bucket import Bucket
from trainguard.render.details import Details, NodeDetails
from trainguard.rules.change import ChangeCode
from trainguard.rules.load_balancing.text import LoadBalancingKind, text
from trainguard.rules.load_balancing.times import FINE_S, MAX_DISTANCE, DeviceComparison, Stretch
from trainguard.rules.load_balancing.window import MIN_WINDOW_POINTS, MIN_WINDOW_S, WIDE_GAP, BalanceWindow, Gaps
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import JudgedKind, Measure, RuleResult
from trainguard.rules.spec import LOW_GPUS, PATIENCE_HELP, SMALL_WORK, SYSTEM, UNEVEN, ParameterHelp, RuleSpec
from trainguard.rules.windows import PatienceParameters, never_active

# A node, and one of its GPUs; None for all of them together.
Side = tuple[str, str | None]


def gap_facts(gaps: Gaps, sides: Sequence[Side], low: int) -> tuple[Fact, ...]:
    """Return how busy the side that stays behind and the busiest are over the window, at work and over all samples."""
    high, (start, end) = gaps.busiest, gaps.span
    gap, times = float(gaps.means[high] - gaps.means[low]), dict[str, Any](start=start, end=end)
    facts = [
        _use("mean_utilization_at_work", float(gaps.means[low]), sides[low], gaps.spans[low]),
        _use("busiest_utilization_at_work", float(gaps.means[high]), sides[high], gaps.spans[high]),
        Fact(name="gap_at_work", value=gap, unit="points", series="GPUUtilization", threshold=WIDE_GAP, **times),
    ]
    if gaps.overall is not None:
        spans, means = gaps.overall
        shown = (("mean_utilization", low), ("busiest_utilization", high)) if max(low, high) < means.size else ()
        facts += [_use(name, float(means[side]), sides[side], spans[side]) for name, side in shown]
    return tuple(facts)


def compared_facts(
    compared: DeviceComparison, place: tuple[int, int], sides: Sequence[Side], spans: Sequence[tuple[float, float]]
) -> tuple[Fact, ...]:
    """Return how busy both of a pair were over all their kept points, and how far apart."""
    row, column = place
    pairwise = compared.distances.shape[1] > 1
    other = column if pairwise else 1 - row if len(sides) == 2 else None
    mean, low = float(compared.others[place]), spans[row]
    begin, end = _outer([span for index, span in enumerate(spans) if index != row] if other is None else [spans[other]])
    rest = Fact(name="other_utilization_at_work", value=mean, unit="%", series="GPUUtilization", start=begin, end=end)
    if other is not None:
        rest = _use("other_utilization_at_work", mean, sides[other], (begin, end))
    more = () if other is not None else (Fact(name="nodes_compared", value=len(sides) - 1, unit="nodes"),)
    first, last = _outer([low, (begin, end)])
    return (
        _use("mean_utilization_at_work", float(compared.means[row]), sides[row], low),
        rest,
        Fact(name="distance", value=float(compared.distances[place]), start=first, end=last),
        Fact(name="largest_distance", value=MAX_DISTANCE),
        *more,
    )


def _outer(spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(begin for begin, _ in spans), max(end for _, end in spans)


def stopped_facts(view: NodeView, gpu: str, when: Stretch) -> tuple[Fact, ...]:
    """Return when a GPU stopped working, and when it worked again: to three minutes, ``from`` and ``to`` say which."""
    first = -math.inf if view.first_sample_at is None else view.first_sample_at
    newest = math.inf if view.watermark_s is None else view.watermark_s
    return tuple(
        _use(name, at, (view.node, gpu), (min(max(at - FINE_S, first), at), max(min(at + FINE_S, newest), at)), "time")
        for name, at in zip(("stopped_at", "worked_again_at"), when, strict=True)
        if at is not None
    )


def _use(name: str, value: float, side: Side, span: tuple[float, float], unit: str = "%") -> Fact:
    where: dict[str, Any] = {"node": side[0], "device": side[1], "start": span[0], "end": span[1]}
    return Fact(name=name, value=value, unit=unit, series="GPUUtilization", **where)


class BalanceDetails(Details, frozen=True):
    """A node's GPUs: counts of utilization by two percent each, distances of pairs, means in percent."""

    workloads: dict[str, list[int]] = msgspec.field(default_factory=dict)
    distances: dict[str, dict[str, float] | float] = msgspec.field(default_factory=dict)
    means: dict[str, float] = msgspec.field(default_factory=dict)


def shown_distances(
    names: tuple[str, ...], compared: DeviceComparison, apart: BoolArray
) -> dict[str, dict[str, float] | float]:
    """Return distances of the pairs that are apart, and the largest of all, by the names of both."""
    shown = np.triu(apart, 1)
    largest = np.argmax(np.triu(compared.distances, 1) + np.triu(np.ones(apart.shape), 1))
    shown[np.unravel_index(int(largest), apart.shape)] = True
    table: dict[str, dict[str, float]] = {}
    for row, column in np.argwhere(shown).tolist():
        table.setdefault(names[row], {})[names[column]] = float(compared.distances[row, column])
    return {**table}


# Histograms of fewer points, or of a shorter time, are far apart by chance: eight equal GPUs would fire at ten.
MIN_POINTS, MIN_POINTS_S = 500, 250.0
# Percentage points by which the means must differ: ten GPUs of one batch and one model do by a few.
MIN_GAP = 15.0

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
        **PATIENCE_HELP,
    },
    shipped_defaults={"threshold": 0.2, "patience_s": 500.0},
    managed_parameters=("threshold", "patience"),
    inputs=SYSTEM,
    symptom=UNEVEN,
    explains=(LOW_GPUS, SMALL_WORK),
    changes={"": ChangeCode.BALANCE_RANKS, LoadBalancingKind.STOPPED: ChangeCode.READ_JOB_LOG},
    text=text,
    claims=dict.fromkeys(
        (LoadBalancingKind.APART, LoadBalancingKind.BEHIND, LoadBalancingKind.STOPPED),
        (Bucket.PEERS, Bucket.IDLE, Bucket.UNEXPLAINED),
    ),
    details=BalanceDetails,
    section="trainguard.rules.load_balancing.section:blocks",
)


# Fields of a judgement: of the means of late, or of the counts of the whole job.
Outcome = dict[str, Any]


def by_gap_of(gaps: Gaps, sides: "tuple[tuple[str, str | None], ...]") -> Outcome:
    gap = float(gaps.means[gaps.busiest] - gaps.means[gaps.worst])
    facts = gap_facts(gaps, sides, gaps.worst)
    kind = LoadBalancingKind.BEHIND if gaps.apart.any() else LoadBalancingKind.EVEN
    if kind is LoadBalancingKind.EVEN and gap >= WIDE_GAP:
        kind = LoadBalancingKind.BY_CHANCE if gaps.steady[gaps.worst] else LoadBalancingKind.NOT_STEADY
    return {"kind": kind, "facts": facts, "measured": gap, "threshold": WIDE_GAP, "measure": GAP}


def by_distance(
    compared: DeviceComparison,
    apart: BoolArray,
    place: tuple[int, int],
    facts: tuple[Fact, ...],
    parameters: LoadBalancingParameters,
) -> Outcome:
    """Compare the counts of the whole job: ``place`` is of the worst pair."""
    distance, threshold = float(compared.distances[place]), parameters.threshold
    facts = tuple(
        msgspec.structs.replace(fact, threshold=threshold) if fact.name == "distance" else fact for fact in facts
    )
    kind = LoadBalancingKind.ALIKE
    if apart.any():
        kind = LoadBalancingKind.APART
    elif distance > threshold:
        kind, facts = LoadBalancingKind.CLOSE, (*facts, Fact(name="least_gap", value=MIN_GAP, unit="points"))
    measures = {"measured": distance, "threshold": threshold, "measure": DISTANCE}
    return {"kind": kind, "facts": facts, **measures}


def kept_span(state: BalanceWindow, view: NodeView) -> tuple[float, float]:
    """Return when the first and the last kept point of a node was taken, epoch seconds."""
    newest = state.blocks[-1].last if state.blocks else view.watermark_s
    began = state.began if state.began is not None else view.first_sample_at
    return began or 0.0, newest or 0.0


def needed_points(parameters: LoadBalancingParameters, interval_s: float) -> int:
    return max(parameters.patience_points(interval_s), MIN_POINTS, points_in(MIN_POINTS_S, interval_s))


def progress_of(view: NodeView, points: int, parameters: LoadBalancingParameters, gaps: Gaps) -> Patience:
    start, end = gaps.span
    held = bool(gaps.numbers)
    return Patience(
        seen=points,
        needed=needed_points(parameters, view.interval_s),
        window_points=int(gaps.points.max()) if gaps.points.size else 0,
        window_start=start if held else None,
        window_end=end if held else None,
    )


def warming_up(view: NodeView, points: int, parameters: LoadBalancingParameters, details: NodeDetails) -> RuleResult:
    patience, needed = parameters.patience_points(view.interval_s), needed_points(parameters, view.interval_s)
    of_window = max(patience, MIN_WINDOW_POINTS, points_in(MIN_WINDOW_S, view.interval_s))
    if points < of_window:
        needed = min(of_window, needed)
    facts: tuple[Fact, ...] = (
        Fact(name="points", value=points, unit="points", node=view.node, threshold=float(needed)),
        Fact(name="sampling_interval", value=view.interval_s, unit="s", node=view.node),
        Fact(name="time_left", value=max(needed - points, 0) * view.interval_s, unit="s", node=view.node),
    )
    kind: JudgedKind = LoadBalancingKind.TOO_FEW if view.closed else LoadBalancingKind.COLLECTING
    if view.first_active_at is None:
        kind, facts = never_active(view)
    return RuleResult.of_kind(
        text,
        kind,
        facts,
        data_points=points,
        progress=Patience(seen=points, needed=needed),
        details=details,
    )
