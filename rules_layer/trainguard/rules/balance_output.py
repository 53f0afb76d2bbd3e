"""What is said of GPUs, or nodes, that do less than others: sentences, advice, warm-up, and the report's details."""

from dataclasses import dataclass

import msgspec
import numpy as np

from trainguard.rules.balance_stopped import STOPPED
from trainguard.rules.balance_window import WIDE_GAP, Gaps
from trainguard.rules.details import Details
from trainguard.rules.divergence import MAX_DISTANCE, Comparison
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import show_duration, show_number, show_percent, show_percentage_points
from trainguard.rules.warm_up import never_active_reason
from trainguard.telemetry.snapshots import BoolArray

NEVER_USED_PERCENT = 1.0
"""A mean below it is that of a GPU without a process."""

LONG_WAIT_S = 7_200.0
THE_JOB = "the job"
REMEDY = (
    "split data and model evenly (one process a GPU, equal shards, equal batches), and do not let one process also "
    "load, gather or evaluate for the others"
)
REMEDY_OF_NODES = "its share of the data, its network, its GPUs' clocks; replace it if it is slow with the same work"


class BalanceDetails(Details, frozen=True):
    """GPUs of a node: counts of utilization by two percent each, distances of pairs, means in percent.

    Of nodes against each other (``*``): the same, and the distance of each from the rest.
    """

    workloads: dict[str, list[int]] = msgspec.field(default_factory=dict)
    distances: dict[str, dict[str, float] | float] = msgspec.field(default_factory=dict)
    means: dict[str, float] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """A side and what it was compared with: names, means in percent and distance; whose time was paid for."""

    name: str
    other: str
    mean: float
    others: float
    distance: float
    paid: str
    remedy: str = REMEDY


@dataclass(frozen=True, slots=True)
class Behind:
    """The side that stays behind most over the window, the busiest, and whose time was paid for."""

    name: str
    busiest: str
    gaps: Gaps
    paid: str
    remedy: str = REMEDY

    @property
    def gap(self) -> float:
        """Percentage points by which it stays behind."""
        return float(self.gaps.means[self.gaps.busiest] - self.gaps.means[self.gaps.worst])

    @property
    def silenced(self) -> str:
        """Why a gap above the threshold is no finding; empty for one below it, and for a finding."""
        if self.gap < WIDE_GAP or self.gaps.apart.any():
            return ""
        if not self.gaps.steady[self.gaps.worst]:
            return f", but by {show_number(WIDE_GAP / 2.0)} or more for less than two thirds of that time"
        return ", which chance may explain"


def sentence_of_gap(behind: Behind) -> str:
    """Say how busy both were over the window."""
    low, high = (float(behind.gaps.means[index]) for index in (behind.gaps.worst, behind.gaps.busiest))
    return (
        f"over {behind.gaps.minutes} min {behind.name} is at {show_percent(low)} on average, "
        f"{behind.busiest} at {show_percent(high)}: {show_percentage_points(behind.gap)} behind the busiest (threshold "
        f"{show_number(WIDE_GAP)}){behind.silenced}"
    )


def advice_on_gap(behind: Behind) -> str:
    """Say what to do about sides that stay behind the busiest."""
    share = float(behind.gaps.behind.mean())
    never = float(behind.gaps.means[behind.gaps.worst]) < NEVER_USED_PERCENT
    return _advice(share, behind.paid, behind.name if never else None, behind.remedy)


def sentence_of(pair: Pair, threshold: float) -> str:
    """Say how busy both sides are, and how far apart."""
    return (
        f"{pair.name} is at {show_percent(pair.mean)} on average, {pair.other} at {show_percent(pair.others)}; the "
        f"distance of their histograms is {pair.distance:.2f} (threshold {threshold:g}, at most {MAX_DISTANCE:.2f})"
    )


def too_close(least: float) -> str:
    """Say why sides with distant histograms are no finding: means apart by less than ``least`` percentage points."""
    return f", but their means differ by less than {show_number(least)} percentage points"


def advice_on(pair: Pair, behind: float) -> str:
    """Say what to do about sides that stay ``behind`` the busiest by so much, 0 to 1."""
    unused = pair.name if pair.mean < NEVER_USED_PERCENT else None
    return _advice(behind, pair.paid, unused, pair.remedy)


def _advice(behind: float, paid: str, unused: str | None, remedy: str) -> str:
    start = f"let a process use {unused}, or pay for less; " if unused is not None else ""
    said = f"{start}{remedy}"
    whose = "the nodes of the job" if paid == THE_JOB else f"the GPUs of {paid}"
    return (
        f"{said[0].upper()}{said[1:]}. At the pace of the busiest, {whose} together would do "
        f"{show_percent(100.0 * behind / (1.0 - behind))} more."
    )


def warming_up_reason(view: NodeView, points: int, needed: int) -> str:
    """Say how far a node is from a comparison."""
    if view.first_active_at is None:
        return never_active_reason(view)
    reason = f"{view.node} has {points:,} of the {needed:,} points that a comparison takes"
    if view.closed:
        return f"{reason}; its stream has ended, too early for a verdict."
    reason += f"; about {show_duration((needed - points) * view.interval_s)} left"
    if needed * view.interval_s > LONG_WAIT_S:
        reason += f" at a sampling interval of {view.interval_s:g} s"
    return f"{reason}."


def shown_distances(
    names: tuple[str, ...], compared: Comparison, apart: BoolArray
) -> dict[str, dict[str, float] | float]:
    """Return distances of the pairs that are apart, and the largest of all, by the names of both."""
    shown = np.triu(apart, 1)
    largest = np.argmax(np.triu(compared.distances, 1) + np.triu(np.ones(apart.shape), 1))
    shown[np.unravel_index(int(largest), apart.shape)] = True
    table: dict[str, dict[str, float]] = {}
    for row, column in np.argwhere(shown).tolist():
        table.setdefault(names[row], {})[names[column]] = float(compared.distances[row, column])
    return {**table}


def clause_of(result: RuleResult, nodes: int) -> str:
    """Say what was found on a job of so many nodes."""
    name, found, _ = result.reason.partition(STOPPED)
    if found and result.worst is not None:
        return f"{name.rpartition(': ')[2]} stopped working"
    across_nodes = nodes > 1 and "/" not in (result.worst or "")
    return f"the {'nodes' if across_nodes else 'GPUs'} did not share the work evenly"
