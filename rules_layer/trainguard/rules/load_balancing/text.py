"""The words of LoadBalancing."""

from collections.abc import Mapping

from trainguard.core.accelerators import FAULTS, STATE
from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.core.units import show_number
from trainguard.rules.rule_result import FactSheet, JudgedKind, Parts, Words
from trainguard.rules.windows import or_undecided

# A mean below it is that of a GPU without a process.
NEVER_USED_PERCENT = 1.0

LONG_WAIT_S = 7_200.0
SAME_PERCENT = 0.05
APART_S = 180.0
REMEDY = (
    "split data and model evenly (one process a GPU, equal shards, equal batches), and do not let one process also "
    "load, gather or evaluate for the others"
)
REMEDY_OF_NODES = "its share of the data, its network, its GPUs' clocks; replace it if it is slow with the same work"


class LoadBalancingKind(JudgedKind):
    # Over the whole job a side's utilization has little in common with another's, and is lower.
    APART = "apart", Status.FIRED
    BEHIND = "behind", Status.FIRED
    STOPPED = "stopped", Status.FIRED
    ALIKE = "alike"
    CLOSE = "close"
    EVEN = "even"
    NOT_STEADY = "not_steady"
    BY_CHANCE = "by_chance"
    COLLECTING = "collecting_points", Status.WARMING_UP
    TOO_FEW = "too_few_points", Status.WARMING_UP
    NO_PEER = "no_peer", Status.NOT_APPLICABLE
    NO_OTHER_NODE = "no_other_node", Status.NOT_APPLICABLE


@or_undecided
def text(sheet: FactSheet) -> Words:
    return sheet.fill(_WORDS[LoadBalancingKind(sheet.kind)], **_PARTS)


def _slow(sheet: FactSheet) -> str:
    interval_s, needed = sheet.number("sampling_interval"), int(sheet["points"].threshold or 0)
    return f" at a sampling interval of {interval_s:g} s" if needed * interval_s > LONG_WAIT_S else ""


def _gap(sheet: FactSheet) -> str:
    whole, most = sheet.get("mean_utilization"), sheet.get("busiest_utilization")
    high = sheet["busiest_utilization_at_work"]
    if whole is None or most is None or abs(float(most.value) - float(high.value)) < SAME_PERCENT:
        return _means(sheet, sheet["mean_utilization_at_work"], high)
    at_work = "; outside pauses {mean_utilization_at_work} and {busiest_utilization_at_work}"
    return _means(sheet, whole, most) + sheet.say(at_work)


def _means(sheet: FactSheet, low: Fact, high: Fact) -> str:
    said = "From {low.when} {side} was at {low} on average, {other} at {high}" + _when(high, low, "high")
    return sheet.say(said, low=low, high=high, side=_side(low), other=_other(high, low))


def _when(fact: Fact, beside: Fact, name: str) -> str:
    """Return words for the time of a fact where it ends far from another's, as that of a GPU that was lost does."""
    apart = fact.end is not None and beside.end is not None and abs(fact.end - beside.end) >= APART_S
    return f" from {{{name}.when}}" if apart else ""


def _rest(sheet: FactSheet) -> str:
    low, other = sheet["mean_utilization_at_work"], sheet["other_utilization_at_work"]
    together = "the other {nodes_compared.value} nodes together"
    return sheet.say(together) if other.node is None else _other(other, low)


def _advice(sheet: FactSheet) -> str:
    low = sheet["mean_utilization_at_work"]
    unused = float(low.value) < NEVER_USED_PERCENT
    start = f"let a process use {_side(low)}, or pay for less; " if unused else ""
    remedy = REMEDY if low.device else f"look at what is different on {low.node}: {REMEDY_OF_NODES}"
    said = f"{start}{remedy}."
    return f"{said[0].upper()}{said[1:]}"


def _side(fact: Fact) -> str:
    return f"{fact.device} of {fact.node}" if fact.device else str(fact.node)


def _other(fact: Fact, beside: Fact) -> str:
    return str(fact.device) if fact.device and fact.node == beside.node else _side(fact)


_PARTS: Parts = {
    "side": lambda sheet: _side(sheet["mean_utilization_at_work"]),
    "sides": lambda sheet: "GPUs" if sheet["mean_utilization_at_work"].device else "nodes",
    "means": _gap,
    "rest": _rest,
    "rest_when": lambda sheet: sheet.say(
        _when(sheet["other_utilization_at_work"], sheet["mean_utilization_at_work"], "other_utilization_at_work")
    ),
    "advice": _advice,
    "needed": lambda sheet: f"{int(sheet['points'].threshold or 0):,}",
    "slow": _slow,
    "close": lambda sheet: sheet.say_if(
        "least_gap",
        ", but their means differ by less than {least} percentage points",
        least=lambda _: show_number(sheet.number("least_gap")),
    ),
    "again": lambda sheet: sheet.say_if("worked_again_at", ", and worked again from about {worked_again_at} on"),
    "wide": lambda sheet: show_number(sheet["gap_at_work"].threshold or 0.0),
    "no_other": lambda sheet: "only one node" if sheet["nodes"].value else "no node",
    "no_peer": lambda sheet: "only one GPU" if sheet["gpus"].value else "no GPU",
}
_GAP = "{means}, {gap_at_work} behind the busiest (threshold {wide})"
_COLLECTED = "{node} has {points.value:,} of the {needed} points that a comparison takes"
_UNEVEN = "the {sides} did not share the work evenly"
_DISTANCE = (
    "From {mean_utilization_at_work.when}, pauses left out, {side} was at {mean_utilization_at_work} on average, "
    "{rest} at {other_utilization_at_work}{rest_when}; the distance of their histograms is {distance.value:.2f} "
    "(threshold {distance.threshold:g}, at most {largest_distance.value:.2f})"
)
_WORDS: Mapping[LoadBalancingKind, Words] = {
    LoadBalancingKind.APART: Words(f"{_DISTANCE}{{close}}.", "{advice}", _UNEVEN),
    LoadBalancingKind.ALIKE: Words(f"{_DISTANCE}{{close}}."),
    LoadBalancingKind.CLOSE: Words(f"{_DISTANCE}{{close}}."),
    LoadBalancingKind.BEHIND: Words(f"{_GAP}.", "{advice}", _UNEVEN),
    LoadBalancingKind.STOPPED: Words(
        f"{{side}} stopped working at about {{stopped_at}}{{again}}. {_GAP}.",
        "Find out why {side} stopped at about {stopped_at}: look at its process's log, and for faults of the GPU in "
        f"{FAULTS} and {STATE}. What the others computed without it may be worth nothing.",
        "{side} stopped working",
    ),
    LoadBalancingKind.EVEN: Words(f"{_GAP}."),
    LoadBalancingKind.NOT_STEADY: Words(f"{_GAP}, and by half of that or more for less than two thirds of the time."),
    LoadBalancingKind.BY_CHANCE: Words(f"{_GAP}, which chance may explain."),
    LoadBalancingKind.COLLECTING: Words(f"{_COLLECTED}; about {{time_left}} left{{slow}}."),
    LoadBalancingKind.TOO_FEW: Words(f"{_COLLECTED}; its stream has ended, too early for a verdict."),
    LoadBalancingKind.NO_PEER: Words("{node} has {no_peer}, and so none to compare."),
    LoadBalancingKind.NO_OTHER_NODE: Words("the job has {no_other} with GPUs, and so none to compare."),
}
