"""Recomputes the facts of LoadBalancing."""

import math

import numpy as np

from tests.claims.context import Context, Expected, Fact, Recompute, mean_of, samples
from tests.claims.raw import Floats, Node

NOTHING = 1.0
BINS = 51
TOLD_TO_S = 180.0


def _at_work(context: Context, fact: Fact) -> Expected:
    """Return a mean at work; of kind ``apart`` each value is cut to a whole percent, as the rule's page says."""
    return mean_of(_values(context, fact))


def _values(context: Context, side: Fact) -> Floats:
    """Return the utilization at work of a fact's side in its time: of its GPU, its node, or all but the low node."""
    if side.get("node") is not None:
        return _of_side(context, context.node(side), context.gpus(side), side)
    low = context.first("mean_utilization_at_work")
    others = [node for name, node in context.raw.job.nodes.items() if low is None or name != low["node"]]
    return np.concatenate([_of_side(context, node, node.gpus, side) for node in others if node.gpus])


def _of_side(context: Context, node: Node, gpus: list[str], time: Fact) -> Floats:
    cut = context.finding["finding_kind"] == "apart"
    if context.raw.work(node).began is None and cut:
        return _never_used(context, node, gpus)
    values = context.raw.kept(node, gpus, time.get("from"), time.get("to"))
    return np.floor(values) if cut else values


def _never_used(context: Context, node: Node, gpus: list[str]) -> Floats:
    """Return a node that was never used at its GPUs' means, each a whole percent."""
    series = node.of("GPUUtilization")
    means = [np.full(series[gpu].values.size, np.rint(mean_of(series[gpu].values))) for gpu in gpus]
    return np.concatenate(means)


def _mean(context: Context, fact: Fact) -> Expected:
    return mean_of(samples(context, fact))


def _gap(context: Context, fact: Fact) -> Expected:
    low, high = context.first("mean_utilization_at_work"), context.first("busiest_utilization_at_work")
    if low is None or high is None:
        return math.nan
    return float(high["value"]) - float(low["value"])  # both are held against the samples themselves


def _distance(context: Context, fact: Fact) -> Expected:
    """Return the Jensen-Shannon distance of the histograms of two sides, two whole percents to a bin."""
    low, other = context.first("mean_utilization_at_work"), context.first("other_utilization_at_work")
    if low is None or other is None:
        return math.nan
    first, second = _shares(_values(context, low)), _shares(_values(context, other))
    distance = _entropy((first + second) / 2.0) - (_entropy(first) + _entropy(second)) / 2.0
    return math.sqrt(max(distance, 0.0))


def _shares(values: Floats) -> Floats:
    counts = np.bincount((values // 2).astype(int), minlength=BINS).astype(np.float64)
    shares: Floats = counts / max(counts.sum(), 1.0)
    return shares


def _entropy(shares: Floats) -> float:
    some = shares[shares > 0.0]
    return float(-(some * np.log(some)).sum())


def _nodes_compared(context: Context, fact: Fact) -> Expected:
    return float(sum(bool(node.gpus) for node in context.raw.job.nodes.values()) - 1)


def _stopped(context: Context, fact: Fact) -> Expected:
    """Return when a GPU was last at work before the longest time in which it did nothing."""
    series = context.node(fact).of("GPUUtilization")[fact["device"]]
    return _within_three_minutes(fact, _longest_silence(series.times, series.values)[0])


def _again(context: Context, fact: Fact) -> Expected:
    series = context.node(fact).of("GPUUtilization")[fact["device"]]
    return _within_three_minutes(fact, _longest_silence(series.times, series.values)[1])


def _within_three_minutes(fact: Fact, true: float) -> Expected:
    """Return what a time may be that is given to three minutes: the truth lies between its ``from`` and ``to``."""
    least, most = fact["from"], fact["to"]
    holds = least <= true <= most and least <= fact["value"] <= most and most - least <= 2.0 * TOLD_TO_S
    return float(fact["value"]) if holds else true


def _longest_silence(times: Floats, values: Floats) -> tuple[float, float]:
    """Return the first sample of the longest time below 1 %, and the first one after it, epoch seconds."""
    silent = values < NOTHING
    edges = np.flatnonzero(np.diff(np.concatenate([[0], silent.astype(int), [0]])))
    runs = [(int(begin), int(end)) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
    if not runs:
        return math.nan, math.nan
    begin, end = max(runs, key=lambda run: times[run[1] - 1] - times[run[0]])
    return float(times[begin]), float(times[end]) if end < times.size else math.nan


FACTS: dict[str, Recompute] = {
    "mean_utilization_at_work": _at_work,
    "busiest_utilization_at_work": _at_work,
    "other_utilization_at_work": _at_work,
    "mean_utilization": _mean,
    "busiest_utilization": _mean,
    "gap_at_work": _gap,
    "distance": _distance,
    "largest_distance": lambda *_: math.sqrt(math.log(2.0)),
    "least_gap": lambda *_: 15.0,
    "nodes_compared": _nodes_compared,
    "stopped_at": _stopped,
    "worked_again_at": _again,
}
