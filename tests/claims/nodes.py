"""Recomputes what a finding says about several nodes: how many there are, and on how many of them its rule fires.

A verdict on a node rests on that node's samples and events alone. So each node is given to the product as if it were
the only one of its job, and the counts are those of what is said about each. Points are counted in the raw samples.
"""

import math
from typing import cast

from tests.claims.bottleneck import waits_of
from tests.claims.context import Context, Expected, Fact, Recompute
from tests.claims.product import statuses_alone
from tests.claims.raw import Node

FIRED, NO_VERDICT = "FIRED", "WARMING_UP"
SILENT_S, OVER_S = 900.0, {"CPUBottleneck": 5_400.0, "IOBottleneck": 5_400.0, "LoadBalancing": 5_400.0}
# A rule fires no more on a node that fell silent before so long, or before so many windows.
WINDOWS, FEWEST_POINTS = 3, 20


def _statuses(context: Context) -> dict[str, str]:
    """Return by node the status of the finding's rule where it is the only node."""
    job, cached = context.raw.job, context.raw.cached
    if "alone" not in cached:
        cached["alone"] = {node: statuses_alone(job.folder, node) for node in job.nodes}
    alone = cast("dict[str, dict[str, str]]", cached["alone"])
    return {node: statuses[context.rule] for node, statuses in alone.items()}


def _fired(context: Context, _: Fact) -> Expected:
    """Return on how many nodes the rule fires, those left out that fell silent long before the others."""
    nodes = context.raw.job.nodes
    last = max(node.last for node in nodes.values())
    heard = [name for name, node in nodes.items() if last - node.last < _silent_s(context, node)]
    return float(sum(_statuses(context)[name] == FIRED for name in heard))


def _silent_s(context: Context, node: Node) -> float:
    window_s = float(context.parameters.get("window_s") or 0.0)
    windows_s = WINDOWS * max(window_s, FEWEST_POINTS * node.interval_s) if window_s else 0.0
    return max(SILENT_S, OVER_S.get(context.rule, 0.0), windows_s)


def _waiting(context: Context, _: Fact) -> Expected:
    """Return on how many nodes the rule has no verdict."""
    return float(list(_statuses(context).values()).count(NO_VERDICT))


def _without_verdict(context: Context, fact: Fact) -> Expected:
    """Return the node's name where it has no verdict."""
    named = str(fact["value"])
    return named if _statuses(context).get(named) == NO_VERDICT else f"none of {_statuses(context)}"


def _points(context: Context, *, found: bool) -> float:
    """Return how many points of all nodes with a verdict count, or how many of them are of the finding's kind."""
    statuses, total = _statuses(context), 0
    for node in context.raw.job.nodes:
        if statuses[node] in {FIRED, "OK"}:
            waits = waits_of(context, {"node": node})
            total += int(waits.found(context.finding["finding_kind"], None).sum() if found else waits.judged.sum())
    return float(total)


def _share(context: Context, _: Fact) -> Expected:
    seen, judged = context.first("points_seen_on_nodes"), context.first("points_judged_on_nodes")
    return float(seen["value"]) / float(judged["value"]) if seen and judged else math.nan


COMMON: dict[str, Recompute] = {
    "nodes_judged": lambda context, _: float(len(context.raw.job.nodes)),
    "nodes_fired": _fired,
    "nodes_without_verdict": _waiting,
    "node_without_verdict": _without_verdict,
    "points_seen_on_nodes": lambda context, _: _points(context, found=True),
    "points_judged_on_nodes": lambda context, _: _points(context, found=False),
    "share_of_points_on_nodes": _share,
}
