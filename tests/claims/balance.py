"""Recomputes the facts of LoadBalancing."""

import math

import numpy as np

from tests.claims.context import Context, Expected, Fact, Range, Recompute, mean_of, samples
from tests.claims.raw import Floats, Node

NOTHING = 1.0
BINS = 51
TOLD_TO_S = 180.0


def _at_work(context: Context, fact: Fact) -> Expected:
    if fact.get("node") is None:
        return _of_others(context, fact)
    node = context.node(fact)
    if context.raw.work(node).began is None:
        mean = mean_of(samples(context, {**fact, "from": None, "to": None}))
        return Range(mean - 0.5, mean + 0.5)  # of a node that was never used, a whole percent
    return _said_of(context, context.raw.kept(node, context.gpus(fact), fact.get("from"), fact.get("to")))


def _said_of(context: Context, values: Floats) -> Expected:
    """Return a mean; of kind ``apart`` the values may be cut to whole percents first, as the rule's page says."""
    mean = mean_of(values)
    return Range(mean_of(np.floor(values)), mean) if context.finding["finding_kind"] == "apart" else mean


def _of_others(context: Context, fact: Fact) -> Expected:
    low = context.first("mean_utilization_at_work")
    others = [node for name, node in context.raw.job.nodes.items() if low is None or name != low["node"]]
    return _said_of(context, np.concatenate([_kept(context, node) for node in others if node.gpus]))


def _kept(context: Context, node: Node) -> Floats:
    return context.raw.kept(node, node.gpus, None, None)


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
    one = context.raw.kept(context.node(low), context.gpus(low), None, None)
    if other.get("node") is None:
        nodes = [node for name, node in context.raw.job.nodes.items() if name != low["node"] and node.gpus]
        rest = np.concatenate([_kept(context, node) for node in nodes])
    else:
        rest = context.raw.kept(context.node(other), context.gpus(other), None, None)
    first, second = _shares(one), _shares(rest)
    distance = _entropy((first + second) / 2.0) - (_entropy(first) + _entropy(second)) / 2.0
    exact = math.sqrt(max(distance, 0.0))
    return Range(exact - 0.005, exact + 0.005)


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
    """Return what a time may be that is told to three minutes: the truth lies between its ``from`` and ``to``."""
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
