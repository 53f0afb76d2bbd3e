"""The facts of GPUs, or nodes, against each other: how busy they were over which time."""

import math
from collections.abc import Sequence

from trainguard.finding import Fact
from trainguard.rules.balance_times import FINE_S, Stretch
from trainguard.rules.balance_window import WIDE_GAP, Gaps
from trainguard.rules.divergence import MAX_DISTANCE, Comparison
from trainguard.rules.rule_inputs import NodeView

Side = tuple[str, str | None]
"""A node, and one of its GPUs; None for all of them together."""


def gap_facts(gaps: Gaps, sides: Sequence[Side], low: int) -> tuple[Fact, ...]:
    """Return how busy the side that stays behind and the busiest are over the window, at work and over all samples."""
    high, (start, end) = gaps.busiest, gaps.span
    facts = [
        _use("mean_utilization_at_work", float(gaps.means[low]), sides[low], gaps.spans[low]),
        _use("busiest_utilization_at_work", float(gaps.means[high]), sides[high], gaps.spans[high]),
        Fact(
            name="gap_at_work",
            value=float(gaps.means[high] - gaps.means[low]),
            unit="points",
            series="GPUUtilization",
            start=start,
            end=end,
            threshold=WIDE_GAP,
        ),
    ]
    whole = gaps.overall
    if whole is not None and max(low, high) < whole.means.size:
        facts.append(_use("mean_utilization", float(whole.means[low]), sides[low], whole.spans[low]))
        facts.append(_use("busiest_utilization", float(whole.means[high]), sides[high], whole.spans[high]))
    return tuple(facts)


def compared_facts(
    compared: Comparison, place: tuple[int, int], sides: Sequence[Side], span: tuple[float, float]
) -> tuple[Fact, ...]:
    """Return how busy both of a pair were over all kept points of ``span``, epoch seconds, and how far apart.

    A side may be compared with one other, or with all the others together.
    """
    row, column = place
    pairwise = compared.distances.shape[1] > 1
    other = sides[column] if pairwise else sides[1 - row] if len(sides) == 2 else None
    mean = float(compared.others[place])
    rest = Fact(
        name="other_utilization_at_work", value=mean, unit="%", series="GPUUtilization", start=span[0], end=span[1]
    )
    if other is not None:
        rest = _use("other_utilization_at_work", mean, other, span)
    more = () if other is not None else (Fact(name="nodes_compared", value=len(sides) - 1, unit="nodes"),)
    return (
        _use("mean_utilization_at_work", float(compared.means[row]), sides[row], span),
        rest,
        Fact(name="distance", value=float(compared.distances[place]), start=span[0], end=span[1]),
        Fact(name="largest_distance", value=MAX_DISTANCE),
        *more,
    )


def stopped_facts(view: NodeView, gpu: str, when: Stretch) -> tuple[Fact, ...]:
    """Return when a GPU stopped working, and when it worked again: to three minutes, ``from`` and ``to`` say which."""
    first = -math.inf if view.first_sample_at is None else view.first_sample_at
    newest = math.inf if view.watermark_s is None else view.watermark_s
    ends = (("stopped_at", when.begin), ("worked_again_at", when.end))
    return tuple(
        Fact(
            name=name,
            value=at,
            unit="time",
            series="GPUUtilization",
            node=view.node,
            device=gpu,
            start=min(max(at - FINE_S, first), at),
            end=max(min(at + FINE_S, newest), at),
        )
        for name, at in ends
        if at is not None
    )


def _use(name: str, mean: float, side: Side, span: tuple[float, float]) -> Fact:
    node, device = side
    return Fact(
        name=name,
        value=mean,
        unit="%",
        series="GPUUtilization",
        node=node,
        device=device,
        start=span[0],
        end=span[1],
    )
