"""Holds each fact of a finding against the raw data: one recomputation per rule and name, and times within the job."""

import math
from collections.abc import Iterator
from typing import Any

from tests.claims import balance, bottleneck, hung, low, memory, phases, steps
from tests.claims.claim import Unknown, Untrue
from tests.claims.context import Context, Expected, Fact, Range, Raw, Recompute
from tests.claims.times import time_claims

WITHIN = {"%": 0.1, "share": 1e-3, "points": 0.1, "W": 0.1, "min": 0.1}
"""How far a value may be from the truth, by unit: 0.1 percentage points; counts not at all, times an interval."""


def _nodes_judged(context: Context, fact: Fact) -> Expected:
    return Range(2.0, float(len(context.raw.job.nodes)))


def _at_most_nodes(context: Context, fact: Fact) -> Expected:
    return Range(0.0, float(len(context.raw.job.nodes)))


def _points_on_nodes(context: Context, fact: Fact) -> Expected:
    every = sum(node.points.times.size for node in context.raw.job.nodes.values())
    return Range(0.0, float(every))


def _share_on_nodes(context: Context, fact: Fact) -> Expected:
    seen, judged = context.first("points_seen_on_nodes"), context.first("points_judged_on_nodes")
    return float(seen["value"]) / float(judged["value"]) if seen and judged else math.nan


_COMMON: dict[str, Recompute] = {
    "nodes_judged": _nodes_judged,
    "nodes_fired": _at_most_nodes,
    "nodes_without_verdict": _at_most_nodes,
    "points_seen_on_nodes": _points_on_nodes,
    "points_judged_on_nodes": _points_on_nodes,
    "share_of_points_on_nodes": _share_on_nodes,
}

UNJUDGED, UNJUDGED_NOW = "unjudged_", "unjudged_now_"
"""Begin the names of facts that say why a node has no verdict; of the end, where it was judged before."""


def _kept_points(context: Context, fact: Fact) -> Expected:
    return Range(0.0, float(context.raw.work(context.node(fact)).kept.sum()))


def _points_time(context: Context, fact: Fact) -> Expected:
    """Return for how long a patience that is missed may last: longer than what was kept."""
    return Range(0.0, math.inf)


_UNJUDGED: dict[str, Recompute] = {
    "points": _kept_points,
    "samples": lambda *_: 0.0,
    "gpus": lambda context, fact: float(len(context.node(fact).gpus)),
    "instances": lambda *_: Range(0.0, 64.0),
    "sampling_interval": lambda context, fact: context.node(fact).interval_s,
    "idle_time": lambda context, fact: context.node(fact).last - context.node(fact).first,
    "work_needed": lambda *_: 60.0,
    "stream_end": lambda context, fact: context.node(fact).last,
    **dict.fromkeys(("patience", "time_left", "needed_time", "watched_time", "patience_points"), _points_time),
    **dict.fromkeys(("window_points", "minutes_measured", "minutes_at_work", "gpus_judged"), _points_time),
}

RULES: dict[str, dict[str, Recompute]] = {
    "LoadBalancing": balance.FACTS,
    "CPUBottleneck": {**bottleneck.FACTS, **phases.FACTS},
    "IOBottleneck": {**bottleneck.FACTS, **phases.FACTS},
    "HungJob": hung.FACTS,
    "StepOutlier": steps.STEP_OUTLIER,
    "Dataloader": steps.DATALOADER,
    "LowGPUUtilization": low.FACTS,
    "BatchSize": memory.BATCH_SIZE,
    "GPUMemoryIncrease": memory.GPU_MEMORY,
    "GPUHealth": memory.GPU_HEALTH,
    "MaxInitializationTime": memory.INITIALIZATION,
    "Straggler": memory.STRAGGLER,
}


def fact_claims(raw: Raw, finding: dict[str, Any], parameters: dict[str, Any]) -> Iterator[Untrue | Unknown | None]:
    """Yield, for each fact of a finding, what is untrue of it, that nobody knows, or None."""
    whole = Context(raw, finding, parameters)
    known = {**_COMMON, **RULES.get(whole.rule, {})}
    for fact in finding["facts"]:
        where = f"{whole.rule}/{finding['finding_kind']}"
        yield from time_claims(raw.job, where, fact)
        yield from _place(raw, where, fact)
        context, recompute = whole, known.get(fact["name"])
        if fact["name"].startswith(UNJUDGED):
            context, recompute = _unjudged(whole, fact)
        if recompute is None:
            yield Unknown(where, f"the fact {fact['name']}")
            continue
        try:
            expected = _closest(context, fact, recompute)
        except (KeyError, IndexError, TypeError, ValueError) as fault:
            yield Untrue(where, fact["name"], f"cannot be recomputed: {type(fault).__name__}: {fault}")
            continue
        yield None if _agrees(context, fact, expected) else Untrue(where, _shown(fact), _truth(expected))


def _unjudged(context: Context, fact: Fact) -> tuple[Context, Recompute | None]:
    """Return the facts of the node without a verdict, as a finding's, and what recomputes one of them."""
    is_now = fact["name"].startswith(UNJUDGED_NOW)
    before = UNJUDGED_NOW if is_now else UNJUDGED
    name = fact["name"].removeprefix(before)
    own = [
        {**each, "name": each["name"].removeprefix(before)}
        for each in context.finding["facts"]
        if each["name"].startswith(before) and each["name"].startswith(UNJUDGED_NOW) == is_now
    ]
    seen = {each["name"]: each for each in own}
    of_rule = RULES.get(context.rule, {}).get(name)
    # A node that waits says how long its stream was; one that was judged earlier says what was found then.
    recompute = of_rule if of_rule and "from" in fact and "idle_since" in seen else _UNJUDGED.get(name, of_rule)
    if is_now:
        recompute = _UNJUDGED.get(name, of_rule)
    return Context(context.raw, {**context.finding, "facts": own}, context.parameters), recompute


def _closest(context: Context, fact: Fact, recompute: Recompute) -> Expected:
    """Return what a fact should say; samplers that take turns write a point's samples up to half an interval apart."""
    expected = recompute(context, fact)
    if _agrees(context, fact, expected):
        return expected
    half = 0.5 * context.raw.job.interval_s
    for before, after in ((0.0, half), (half, 0.0), (half, half)):
        wider = {**fact, "from": _moved(fact.get("from"), -before), "to": _moved(fact.get("to"), after)}
        other = recompute(context, wider)
        if _agrees(context, fact, other):
            return other
    return expected


def _moved(at: float | None, seconds: float) -> float | None:
    return None if at is None else at + seconds


def _place(raw: Raw, where: str, fact: Fact) -> Iterator[Untrue | None]:
    node, device = fact.get("node"), fact.get("device")
    known = {*raw.job.nodes, *(name for name, _ in raw.job.events)}
    if node is not None:
        yield None if node in known else Untrue(where, fact["name"], f"no node is called {node}")
    if device is not None and node in raw.job.nodes:
        devices = {name for name, _ in raw.job.nodes[node].series}
        yield None if device in devices else Untrue(where, fact["name"], f"{node} has no {device}")


def _agrees(context: Context, fact: Fact, expected: Expected) -> bool:
    value = fact["value"]
    if expected is None:
        return True
    if isinstance(expected, str) or isinstance(value, str):
        return str(value) == expected
    least, most = (expected.least, expected.most) if isinstance(expected, Range) else (expected, expected)
    within = WITHIN.get(fact.get("unit", ""), 0.0) + 1e-9
    if fact.get("unit") in {"s", "time"}:
        step = fact["name"] in {"median_step", "outlier_above", "fetch_time"}
        within = 2e-6 if step else context.raw.job.interval_s + 1e-3
    return not math.isnan(least) and least - within <= float(value) <= most + within


def _shown(fact: Fact) -> str:
    where = "/".join(str(fact[name]) for name in ("node", "device") if fact.get(name))
    value = fact["value"] if isinstance(fact["value"], str) else f"{fact['value']:.10g}"
    return f"{fact['name']} = {value} {fact.get('unit', '')} ({where})"


def _truth(expected: Expected) -> str:
    if isinstance(expected, Range):
        return f"it is {expected.least:.10g} to {expected.most:.10g}"
    return f"it is {expected:.10g}" if isinstance(expected, float) else f"it is {expected}"
