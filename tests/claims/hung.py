"""Recomputes the facts of HungJob."""

import math

import numpy as np

from tests.claims.context import Context, Expected, Fact, Recompute, mean_of
from tests.claims.minutes import minutes_of
from tests.claims.power import power_at_work
from tests.claims.raw import ACTIVE, Node

SILENT_S = 120.0


def _span(context: Context) -> tuple[float, float]:
    standing = context.first("standstill_time")
    return (math.nan, math.nan) if standing is None else (standing["from"], standing["to"])


def _standstill(context: Context, fact: Fact) -> Expected:
    return float(fact["to"] - fact["from"])


def _present(context: Context) -> list[Node]:
    nodes = [node for node in context.raw.job.nodes.values() if node.gpus]
    newest = max(node.last for node in nodes)
    return [node for node in nodes if newest - node.last <= SILENT_S + 60.0 + node.interval_s]


def _looks(context: Context) -> tuple[list[tuple[Node, str]], list[tuple[Node, str]]]:
    """Return the GPUs that look busy at the end of the standstill, and those that are idle then."""
    _, end = _span(context)
    busy: list[tuple[Node, str]] = []
    idle: list[tuple[Node, str]] = []
    for node in _present(context):
        for gpu in node.used_gpus:
            values = node.of("GPUUtilization")[gpu].between(end - 60.0, end)
            last = values[values >= 0.0][-20:]
            (busy if last.size and float(np.median(last)) >= ACTIVE else idle).append((node, gpu))
    return busy, idle


def _power(context: Context, fact: Fact) -> Expected:
    """Return the mean of the newest readings of power of the GPUs that wait, else of those that are idle."""
    busy, idle = _looks(context)
    _, end = _span(context)
    drawn = [_newest_power(context, node, gpu, end, waits=bool(busy)) for node, gpu in busy or idle]
    return mean_of(np.array(drawn))


def _newest_power(context: Context, node: Node, gpu: str, end: float, *, waits: bool) -> float:
    """Return a GPU's last reading of a minute, watts: of those that wait not of one in which their process is gone."""
    for minute in reversed(minutes_of(context.raw, node, end + node.interval_s)):
        power = minute.of("PowerWatts").get(gpu)
        if power is None or not minute.rows.size:
            continue
        if not waits or np.nanmax(node.points.gpus[minute.rows]) >= ACTIVE:
            return float(power.values[-1])
    return math.nan


def _power_at_work(context: Context, fact: Fact) -> Expected:
    busy, idle = _looks(context)
    _, end = _span(context)
    near_idle = float(context.parameters["near_idle"]) / 100.0
    known = [power_at_work(context.raw, node, near_idle, end + node.interval_s)[gpu] for node, gpu in busy or idle]
    return mean_of(np.array(known))


def _limit(context: Context, fact: Fact) -> Expected:
    busy, idle = _looks(context)
    found = [float(node.of("PowerLimitWatts")[gpu].values[-1]) for node, gpu in busy or idle]
    return float(np.mean(found)) if found else math.nan


def _last_step(context: Context, fact: Fact) -> Expected:
    """Return when the last step ended that did end: one that goes on until the process does has not."""
    ends = sorted(
        (each.end for events in context.raw.job.events.values() for each in events if "Step:" in each.phase),
        reverse=True,
    )
    value = float(fact["value"])
    near = [end for end in ends[: 4 * len(context.raw.job.events)] if abs(end - value) < 1e-3]
    return value if near else (ends[0] if ends else math.nan)


def _silent(context: Context, fact: Fact) -> Expected:
    present = {node.name for node in _present(context)}
    return float(sum(node.name not in present for node in context.raw.job.nodes.values() if node.gpus))


def _silent_node(context: Context, fact: Fact) -> Expected:
    present = {node.name for node in _present(context)}
    gone = fact["value"] in context.raw.job.nodes and fact["value"] not in present
    return str(fact["value"]) if gone else "this node still writes"


def _idle_gpu(context: Context, fact: Fact) -> Expected:
    _, idle = _looks(context)
    return str(fact["value"]) if fact["value"] in {f"{node.name}/{gpu}" for node, gpu in idle} else "it is not idle"


def _reached(context: Context) -> dict[str, int]:
    found = {}
    for (node, process), events in context.raw.job.events.items():
        steps = [each for each in events if each.phase.startswith("Step:")]
        if steps:
            newest = max(steps, key=lambda each: each.end)
            found[f"{node}-{process}"] = int(newest.arguments.get("step_num", -1))
    return found


def _ranks_behind(context: Context, fact: Fact) -> Expected:
    reached = _reached(context)
    most = max(reached.values(), default=0)
    return float(sum(number < most for number in reached.values()))


def _rank_behind(context: Context, fact: Fact) -> Expected:
    reached = _reached(context)
    most = max(reached.values(), default=0)
    late = reached.get(str(fact["value"]), most) < most
    return str(fact["value"]) if late else "it is as far as the furthest"


FACTS: dict[str, Recompute] = {
    "standstill_time": _standstill,
    "gpus_waiting": lambda context, _: float(len(_looks(context)[0])),
    "gpus_idle": lambda context, _: float(len(_looks(context)[1])),
    "power": _power,
    "power_at_work": _power_at_work,
    "power_limit": _limit,
    "last_step_end": _last_step,
    "silent_nodes": _silent,
    "silent_node": _silent_node,
    "idle_gpu": _idle_gpu,
    "ranks_behind": _ranks_behind,
    "rank_behind": _rank_behind,
}
