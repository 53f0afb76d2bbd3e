"""What the two comparisons of LoadBalancing share: parameters, patience, and what their numbers mean."""

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from trainguard.finding import Fact, Progress
from trainguard.ledger.bucket import Bucket
from trainguard.records import Status
from trainguard.rules.balance_details import BalanceDetails
from trainguard.rules.balance_facts import gap_facts
from trainguard.rules.balance_text import LoadBalancingKind, text
from trainguard.rules.balance_window import (
    MIN_WINDOW_POINTS,
    MIN_WINDOW_S,
    WIDE_GAP,
    BalanceWindow,
    Gaps,
)
from trainguard.rules.details import NodeDetails
from trainguard.rules.divergence import Comparison
from trainguard.rules.parameter_help import WAITED, ParameterHelp, span_help
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS, SMALL_WORK, UNEVEN
from trainguard.rules.units import points_in
from trainguard.rules.warm_up import never_active
from trainguard.rules.windowing import PatienceParameters
from trainguard.telemetry.snapshots import BoolArray

MIN_POINTS, MIN_POINTS_S = 500, 250.0
"""Histograms of fewer points, or of a shorter time, are far apart by chance: eight equal GPUs would fire at ten."""

MIN_GAP = 15.0
"""Percentage points by which the means must differ: ten GPUs of one batch and one model do by a few."""

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
    symptom=UNEVEN,
    explains=(LOW_GPUS, SMALL_WORK),
    text=text,
    claims=dict.fromkeys(
        (LoadBalancingKind.APART, LoadBalancingKind.BEHIND, LoadBalancingKind.STOPPED),
        (Bucket.PEERS, Bucket.IDLE, Bucket.UNEXPLAINED),
    ),
    details=BalanceDetails,
    section="trainguard.report.html.sections.load_balancing:blocks",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a comparison says: of the means of late, or of the counts of the whole job."""

    status: Status
    kind: LoadBalancingKind
    facts: tuple[Fact, ...]
    measured: float
    threshold: float
    measure: Measure

    def result(self, **more: Any) -> RuleResult:
        """Return it as a judgement with more of its fields."""
        measures = {"measured": self.measured, "threshold": self.threshold, "measure": self.measure}
        return RuleResult.of(text, self.status, self.kind, self.facts, **measures, **more)


def by_gap_of(gaps: Gaps, sides: "tuple[tuple[str, str | None], ...]") -> Outcome:
    """Compare the means of the window."""
    gap = float(gaps.means[gaps.busiest] - gaps.means[gaps.worst])
    facts = gap_facts(gaps, sides, gaps.worst)
    if gaps.apart.any():
        return Outcome(Status.FIRED, LoadBalancingKind.BEHIND, facts, gap, WIDE_GAP, GAP)
    kind = LoadBalancingKind.EVEN
    if gap >= WIDE_GAP:
        kind = LoadBalancingKind.BY_CHANCE if gaps.steady[gaps.worst] else LoadBalancingKind.NOT_STEADY
    return Outcome(Status.OK, kind, facts, gap, WIDE_GAP, GAP)


def by_distance(
    compared: Comparison,
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
    if apart.any():
        return Outcome(Status.FIRED, LoadBalancingKind.APART, facts, distance, threshold, DISTANCE)
    if distance <= threshold:
        return Outcome(Status.OK, LoadBalancingKind.ALIKE, facts, distance, threshold, DISTANCE)
    close = (*facts, Fact(name="least_gap", value=MIN_GAP, unit="points"))
    return Outcome(Status.OK, LoadBalancingKind.CLOSE, close, distance, threshold, DISTANCE)


def kept_span(state: BalanceWindow, view: NodeView) -> tuple[float, float]:
    """Return when the first and the last kept point of a node was taken, epoch seconds."""
    newest = state.blocks[-1].last if state.blocks else view.watermark_s
    began = state.began if state.began is not None else view.first_sample_at
    return began or 0.0, newest or 0.0


def needed_points(parameters: LoadBalancingParameters, interval_s: float) -> int:
    """Return how many points a comparison of histograms takes."""
    return max(parameters.patience_points(interval_s), MIN_POINTS, points_in(MIN_POINTS_S, interval_s))


def needed_of_window(parameters: LoadBalancingParameters, interval_s: float) -> int:
    """Return how many points a comparison of the window's means takes."""
    return max(parameters.patience_points(interval_s), MIN_WINDOW_POINTS, points_in(MIN_WINDOW_S, interval_s))


def _least_needed(view: NodeView, points: int, parameters: LoadBalancingParameters) -> int:
    """Return how many points the comparison takes that comes next: that of the window, or that of the counts."""
    of_window, of_counts = needed_of_window(parameters, view.interval_s), needed_points(parameters, view.interval_s)
    return of_counts if points >= of_window else min(of_window, of_counts)


def progress_of(view: NodeView, points: int, parameters: LoadBalancingParameters, gaps: Gaps) -> Progress:
    """Return how far the comparison of the counts is, and what the window holds."""
    start, end = gaps.span
    held = bool(gaps.numbers)
    return Progress(
        seen=points,
        needed=needed_points(parameters, view.interval_s),
        window_points=int(gaps.points.max()) if gaps.points.size else 0,
        window_start=start if held else None,
        window_end=end if held else None,
    )


def warming_up(view: NodeView, points: int, parameters: LoadBalancingParameters, details: NodeDetails) -> RuleResult:
    """Say how far a node is from the comparison that comes next."""
    needed = _least_needed(view, points, parameters)
    facts: tuple[Fact, ...] = (
        Fact(name="points", value=points, unit="points", node=view.node, threshold=float(needed)),
        Fact(name="sampling_interval", value=view.interval_s, unit="s", node=view.node),
        Fact(name="time_left", value=max(needed - points, 0) * view.interval_s, unit="s", node=view.node),
    )
    kind: str = LoadBalancingKind.TOO_FEW if view.closed else LoadBalancingKind.COLLECTING
    if view.first_active_at is None:
        kind, facts = never_active(view)
    return RuleResult.of(
        text,
        Status.WARMING_UP,
        kind,
        facts,
        data_points=points,
        progress=Progress(seen=points, needed=needed),
        details=details,
    )
