"""Holds each fact of a finding against the raw data: one recomputation per rule and name, and times within the job."""

import math
from collections.abc import Iterator
from typing import Any

from tests.claims import (
    balance,
    batch,
    bottleneck,
    growth,
    hang_dumps,
    health,
    hung,
    loading,
    low,
    nodes,
    phases,
    startup,
    steps,
    straggler,
)
from tests.claims.claim import UNCHECKED, Claim, Untrue
from tests.claims.context import Context, Expected, Fact, Range, Raw, Recompute
from tests.claims.times import time_claims

# How far a value may be from the truth, by unit: 0.1 percentage points; counts not at all, times an interval.
WITHIN = {"%": 0.1, "share": 1e-3, "points": 0.1, "points/h": 0.1, "W": 0.1, "min": 0.1, "bytes": 1.0, "bytes/h": 1.0}

# Durations that are given for events: those do not depend on the sampling.
EXACT_TIMES = {
    "median_step",
    "outlier_above",
    "fetch_time",
    "mean_step",
    "own_work",
    "own_work_of_peers",
    "lost_gpu_time",
}


RULES: dict[str, dict[str, Recompute]] = {
    "LoadBalancing": balance.FACTS,
    "CPUBottleneck": {**bottleneck.FACTS, **phases.FACTS},
    "IOBottleneck": {**bottleneck.FACTS, **phases.FACTS},
    "HungJob": {**hung.FACTS, **hang_dumps.FACTS},
    "StepOutlier": steps.STEP_OUTLIER,
    "Dataloader": loading.DATALOADER,
    "LowGPUUtilization": low.FACTS,
    "BatchSize": batch.FACTS,
    "GPUMemoryIncrease": growth.GPU_MEMORY,
    "GPUHealth": health.GPU_HEALTH,
    "MaxInitializationTime": startup.FACTS,
    "Straggler": straggler.STRAGGLER,
}


def fact_claims(raw: Raw, finding: dict[str, Any], parameters: dict[str, Any]) -> Iterator[Claim | None]:
    """Yield, for each fact of a finding, what is untrue of it, that it is unknown, or None."""
    whole = Context(raw, finding, parameters)
    known = {**nodes.COMMON, **RULES.get(whole.rule, {})}
    for fact in finding["facts"]:
        where = f"{whole.rule}/{finding['finding_kind']}"
        yield from time_claims(raw.job, where, fact)
        yield from _place(raw, where, fact)
        recompute = known.get(fact["name"])
        if recompute is None:
            yield Untrue(where, fact["name"], UNCHECKED)
            continue
        try:
            expected = _closest(whole, fact, recompute)
        except (KeyError, IndexError, TypeError, ValueError) as fault:
            yield Untrue(where, fact["name"], f"cannot be recomputed: {type(fault).__name__}: {fault}")
            continue
        if not _agrees(whole, fact, expected):
            yield Untrue(where, _shown(fact), _truth(expected))
        else:
            yield Untrue(where, fact["name"], UNCHECKED) if isinstance(expected, Range) else None


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
    if isinstance(expected, str) or isinstance(value, str):
        return str(value) == expected
    least, most = (expected.least, expected.most) if isinstance(expected, Range) else (expected, expected)
    within = WITHIN.get(fact.get("unit", ""), 0.0) + 1e-9
    if fact.get("unit") in {"s", "time"}:
        exactly = fact["name"] in EXACT_TIMES
        within = 2e-6 if exactly else context.raw.job.interval_s + 1e-3
    return not math.isnan(least) and least - within <= float(value) <= most + within


def _shown(fact: Fact) -> str:
    where = "/".join(str(fact[name]) for name in ("node", "device") if fact.get(name))
    value = fact["value"] if isinstance(fact["value"], str) else f"{fact['value']:.10g}"
    return f"{fact['name']} = {value} {fact.get('unit', '')} ({where})"


def _truth(expected: Expected) -> str:
    if isinstance(expected, Range):
        return f"it is {expected.least:.10g} to {expected.most:.10g}"
    return f"it is {expected:.10g}" if isinstance(expected, float) else f"it is {expected}"
