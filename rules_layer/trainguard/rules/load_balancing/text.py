"""The words of LoadBalancing."""

from enum import StrEnum

from trainguard.core.finding import Fact, clock
from trainguard.core.units import show_number, show_percent, show_percentage_points
from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.windows.warm_up import or_undecided

NEVER_USED_PERCENT = 1.0
"""A mean below it is that of a GPU without a process."""
LONG_WAIT_S = 7_200.0
SAME_PERCENT = 0.05
REMEDY = (
    "split data and model evenly (one process a GPU, equal shards, equal batches), and do not let one process also "
    "load, gather or evaluate for the others"
)
REMEDY_OF_NODES = "its share of the data, its network, its GPUs' clocks; replace it if it is slow with the same work"


class LoadBalancingKind(StrEnum):
    APART = "apart"
    """Over the whole job a side's utilization has little in common with another's, and is lower."""

    BEHIND = "behind"

    STOPPED = "stopped"

    ALIKE = "alike"
    CLOSE = "close"

    EVEN = "even"
    NOT_STEADY = "not_steady"
    BY_CHANCE = "by_chance"
    COLLECTING = "collecting_points"
    TOO_FEW = "too_few_points"
    NO_PEER = "no_peer"
    NO_OTHER_NODE = "no_other_node"


_GAPS = {
    LoadBalancingKind.BEHIND: "",
    LoadBalancingKind.STOPPED: "",
    LoadBalancingKind.EVEN: "",
    LoadBalancingKind.NOT_STEADY: ", and by half of that or more for less than two thirds of the time",
    LoadBalancingKind.BY_CHANCE: ", which chance may explain",
}


@or_undecided
def text(sheet: FactSheet) -> Words:
    kind = LoadBalancingKind(sheet.kind)
    if kind in _GAPS:
        reason = f"{_stopped(sheet) if kind is LoadBalancingKind.STOPPED else ''}{_gap(sheet)}{_GAPS[kind]}."
    elif kind in {LoadBalancingKind.APART, LoadBalancingKind.ALIKE, LoadBalancingKind.CLOSE}:
        reason = f"{_distance(sheet)}."
    else:
        return Words(_without_verdict(sheet, kind))
    if kind is LoadBalancingKind.STOPPED:
        return Words(reason, _advice_on_stopped(sheet), f"{_side(sheet['mean_utilization_at_work'])} stopped working")
    if kind not in {LoadBalancingKind.APART, LoadBalancingKind.BEHIND}:
        return Words(reason)
    sides = "GPUs" if sheet["mean_utilization_at_work"].device else "nodes"
    return Words(reason, _advice(sheet), f"the {sides} did not share the work evenly")


def _without_verdict(sheet: FactSheet, kind: LoadBalancingKind) -> str:
    if kind is LoadBalancingKind.NO_OTHER_NODE:
        nodes = "only one node" if sheet["nodes"].value else "no node"
        return f"the job has {nodes} with GPUs, and so none to compare."
    if kind is LoadBalancingKind.NO_PEER:
        gpus = sheet["gpus"]
        return f"{gpus.node} has {'only one GPU' if gpus.value else 'no GPU'}, and so none to compare."
    points, interval_s = sheet["points"], sheet.number("sampling_interval")
    needed = int(points.threshold or 0)
    reason = f"{points.node} has {points.value:,} of the {needed:,} points that a comparison takes"
    if kind is LoadBalancingKind.TOO_FEW:
        return f"{reason}; its stream has ended, too early for a verdict."
    reason += f"; about {sheet.duration('time_left')} left"
    slow = needed * interval_s > LONG_WAIT_S
    return f"{reason} at a sampling interval of {interval_s:g} s." if slow else f"{reason}."


def _stopped(sheet: FactSheet) -> str:
    side, again = sheet["mean_utilization_at_work"], sheet.get("worked_again_at")
    goes_on = "" if again is None else f", and worked again from about {clock(float(again.value))} on"
    return f"{_side(side)} stopped working at about {clock(sheet.number('stopped_at'))}{goes_on}. "


def _gap(sheet: FactSheet) -> str:
    low, high, gap = sheet["mean_utilization_at_work"], sheet["busiest_utilization_at_work"], sheet["gap_at_work"]
    every = sheet.get("mean_utilization"), sheet.get("busiest_utilization")
    behind = (
        f"{show_percentage_points(float(gap.value))} behind the busiest (threshold {show_number(gap.threshold or 0.0)})"
    )
    whole, most = every
    if whole is None or most is None or abs(float(most.value) - float(high.value)) < SAME_PERCENT:
        return f"{_means(low, high)}, {behind}"
    return (
        f"{_means(whole, most)}; outside pauses {show_percent(float(low.value))} and "
        f"{show_percent(float(high.value))}, {behind}"
    )


def _means(low: Fact, high: Fact) -> str:
    return (
        f"From {clock(low.start, low.end)} {_side(low)} was at {show_percent(float(low.value))} on average, "
        f"{_other(high, low)} at {show_percent(float(high.value))}"
    )


def _distance(sheet: FactSheet) -> str:
    low, other, distance = sheet["mean_utilization_at_work"], sheet["other_utilization_at_work"], sheet["distance"]
    largest = sheet.number("largest_distance")
    rest = f"the other {sheet['nodes_compared'].value} nodes together" if other.node is None else _other(other, low)
    reason = (
        f"From {clock(low.start, low.end)}, pauses left out, {_side(low)} was at {show_percent(float(low.value))} on "
        f"average, {rest} at {show_percent(float(other.value))}; the distance of their histograms is "
        f"{float(distance.value):.2f} (threshold {distance.threshold:g}, at most {largest:.2f})"
    )
    least = sheet.get("least_gap")
    if least is None:
        return reason
    return f"{reason}, but their means differ by less than {show_number(float(least.value))} percentage points"


def _advice(sheet: FactSheet) -> str:
    low = sheet["mean_utilization_at_work"]
    unused = float(low.value) < NEVER_USED_PERCENT
    start = f"let a process use {_side(low)}, or pay for less; " if unused else ""
    remedy = REMEDY if low.device else f"look at what is different on {low.node}: {REMEDY_OF_NODES}"
    said = f"{start}{remedy}."
    return f"{said[0].upper()}{said[1:]}"


def _advice_on_stopped(sheet: FactSheet) -> str:
    side = _side(sheet["mean_utilization_at_work"])
    return (
        f"Find out why {side} stopped at about {clock(sheet.number('stopped_at'))}: look at its process's log, and at "
        "the GPU (Xid errors in dmesg, nvidia-smi -q). What the others computed without it may be worth nothing."
    )


def _side(fact: Fact) -> str:
    return f"{fact.device} of {fact.node}" if fact.device else str(fact.node)


def _other(fact: Fact, beside: Fact) -> str:
    return str(fact.device) if fact.device and fact.node == beside.node else _side(fact)
