"""Recomputes the facts of GPUMemoryIncrease: of memory in use where it is collected, else of memory activity."""

import math
from collections.abc import Callable

from tests.claims.context import Context, Expected, Fact, Recompute
from tests.claims.low import FACTS as LOW
from tests.claims.memory_activity import Growth, Jump, activity_of, growths_of, strongest_jump
from tests.claims.memory_use import MINUTE_S, Use, uses_of

USED = ("MemoryUsedBytes", "MemoryUsedPercent")


def _until(context: Context, fact: Fact) -> float:
    """Return up to when the finding was known; a jump that is over says only when it began."""
    last = fact.get("to") or (context.first("increase") or {}).get("to")
    return float(last) if last is not None else context.node(fact).last


def _use(context: Context, fact: Fact) -> Use:
    return uses_of(context, context.node(fact), _until(context, fact))[fact["device"]]


def _growth(context: Context, fact: Fact) -> Growth:
    return growths_of(context, context.node(fact), _until(context, fact))[fact["device"]]


def _of_use(read: Callable[[Use], float]) -> Recompute:
    return lambda context, fact: read(_use(context, fact))


def _of_activity(read: Callable[[Growth], float]) -> Recompute:
    return lambda context, fact: read(_growth(context, fact))


def _of_either(of_use: Callable[[Use], float], of_activity: Callable[[Growth], float]) -> Recompute:
    """Return what tells a fact by its series: of memory in use, or of the activity."""

    def recompute(context: Context, fact: Fact) -> Expected:
        if fact["series"] in USED:
            return of_use(_use(context, fact))
        return of_activity(_growth(context, fact))

    return recompute


def _affected(context: Context, fact: Fact) -> Expected:
    """Return how many GPUs of the node leak, or show an increase."""
    node, until = context.node(fact), _until(context, fact)
    increase = context.first("increase")
    if increase is not None and increase["series"] in USED:
        return float(sum(use.leaks for use in uses_of(context, node, until).values()))
    return float(sum(each.kind is not None for each in growths_of(context, node, until).values()))


def _window(context: Context, fact: Fact) -> Expected:
    return activity_of(context, context.node(fact), _until(context, fact)).window_s


def _of_jump(read: Callable[[Jump], float]) -> Recompute:
    """Return what describes the strongest jump; NaN where the GPU or the beginning that is named is another's."""

    def recompute(context: Context, fact: Fact) -> Expected:
        node = context.node(fact)
        jump = strongest_jump(context, node, _until(context, fact))
        if jump is None or jump.gpu != fact["device"] or abs(jump.at - fact["from"]) > node.gpu_interval_s:
            return math.nan
        return read(jump)

    return recompute


GPU_MEMORY: dict[str, Recompute] = {
    "increase": _of_either(lambda use: use.points, lambda growth: growth.points),
    "rise_time": _of_either(lambda use: MINUTE_S * use.minutes, lambda growth: growth.windows * growth.window_s),
    "window": _window,
    "memory_in_use": _of_use(lambda use: use.percent / 100.0 * use.total),
    "memory_total": _of_use(lambda use: use.total),
    "memory_in_use_share": _of_use(lambda use: use.percent),
    "hourly_increase": _of_either(lambda use: use.hourly, lambda growth: growth.hourly),
    "hourly_bytes": _of_use(lambda use: use.hourly / 100.0 * use.total),
    **dict.fromkeys(
        ("time_left", "time_left_at_end"), _of_either(lambda use: use.left_s, lambda growth: growth.left_s)
    ),
    "gpus_affected": _affected,
    "p5_activity_at_work": _of_activity(lambda growth: growth.newest_floor),
    "highest_mean_activity": _of_activity(lambda growth: growth.measured.highest_mean / 10.0),
    "floor_of_rise": _of_activity(
        lambda growth: float(growth.measured.merged[0][-1]) / 10.0 if growth.is_ramp else growth.newest_floor
    ),
    "level_before": _of_jump(lambda jump: jump.before),
    "level_after": _of_jump(lambda jump: jump.after),
    "strongest_jump": _of_jump(lambda jump: jump.after - jump.before),
    "left_after_another": _of_activity(
        lambda growth: max(100.0 - float(growth.measured.floors[-1]) / 10.0 - growth.points, 0.0)
    ),
    "trend_z": _of_activity(lambda growth: growth.z),
    "stream_end": LOW["stream_end"],
}
