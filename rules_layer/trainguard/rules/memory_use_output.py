"""What is said of memory in use: a leak with its rate and the time that is left, or that there is none."""

from collections.abc import Sequence

from trainguard.records import Status
from trainguard.rules.memory_output import KEPT_TENSORS, GpuMemory, MemoryDetails
from trainguard.rules.memory_use import HUNDREDTHS, LEAST_S, MINUTE_S, UseLevels, UseRise, rises_of
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.units import show_duration, show_number, show_percent, show_percentage_points

IN_USE = Measure("increase of GPU memory in use", "percentage points")
LEAK = "leak"
GIGA = 1e9


def judge_use(in_use: dict[str, UseLevels], view: NodeView, increase: float) -> RuleResult:
    """Return what memory in use says of a node, against ``increase`` percentage points."""
    rises = rises_of(in_use)
    details = _details(rises, increase) if view.detailed else MemoryDetails({})
    leaks = [rise for rise in rises if is_leak(rise, increase)]
    if not leaks and max(rise.use.stride * len(rise.use.levels) for rise in rises) * MINUTE_S < LEAST_S:
        reason = f"memory in use of {view.node} is judged after {show_duration(LEAST_S)} of training."
        return RuleResult(Status.WARMING_UP, reason, data_points=view.kept_total, needs_longer=True, details=details)
    worst = max(leaks or rises, key=lambda rise: (-rise.time_left_s if leaks else rise.points, rise.device))
    return RuleResult(
        Status.FIRED if leaks else Status.OK,
        f"{_sentence(worst, view, increase, leaks)}.",
        measured=worst.points,
        threshold=increase,
        measure=IN_USE,
        worst=worst.device,
        data_points=view.kept_total,
        advice=_advice(worst, view) if leaks else None,
        affected_share=_affected(worst, view) if leaks else None,
        onset=worst.since if leaks else None,
        until=worst.until if leaks else None,
        gpus=tuple(rise.device for rise in leaks),
        time_left_s=worst.time_left_s if leaks else None,
        past_reason=_past_sentence(worst, view.node, increase, leaks) if leaks else None,
        past_advice=_past_advice(worst, view.node) if leaks else None,
        details=details,
    )


def _affected(worst: UseRise, view: NodeView) -> float | None:
    """Return in which share, 0 to 1, of the node's time the memory leaked."""
    if view.watermark_s is None or view.first_sample_at is None:
        return None
    return min((view.watermark_s - worst.since) / (view.watermark_s - view.first_sample_at), 1.0)


def is_leak(rise: UseRise, increase: float) -> bool:
    """Tell whether a rise is one of a leak, and larger than ``increase`` percentage points."""
    return rise.is_steady and rise.points > increase


def _sentence(worst: UseRise, view: NodeView, increase: float, leaks: Sequence[UseRise]) -> str:
    node = view.node
    where = f"{worst.device} on {node}"
    allowed = f"threshold {show_number(increase)}"
    now = _in_use(worst)
    if not leaks:
        used = show_percent(worst.use.percent)
        return f"no GPU of {node} leaks memory: of {where} {now} are in use, {used} ({allowed} percentage points more)"
    more = f"; {len(leaks)} GPUs of {node} leak" if len(leaks) > 1 else ""
    left = worst.time_left_s
    rate = f"{show_duration(worst.minutes * MINUTE_S)}, {_gigabytes(worst.bytes_of(worst.hourly))} an hour"
    risen = f"{show_percentage_points(worst.points)} ({allowed}) in {rate}"
    if view.closed:
        full = f", and at that rate would have been full {show_duration(left)} later" if left else ""
        return f"{where} leaks memory: what is in use rose by {risen}, up to the end; it was {now} then{full}{more}"
    full = f", and full in {show_duration(left)} at that rate" if left else ""
    return f"{where} leaks memory: what is in use rose by {risen}; it is {now} now{full}{more}"


def _past_sentence(worst: UseRise, node: str, increase: float, leaks: Sequence[UseRise]) -> str:
    """Say that memory in use rose, once it rises no more."""
    more = f"; {len(leaks)} GPUs of {node} did so" if len(leaks) > 1 else ""
    return (
        f"memory in use of {worst.device} on {node} rose and stopped: by {show_percentage_points(worst.points)} "
        f"(threshold {show_number(increase)}) in {show_duration(worst.minutes * MINUTE_S)}, to {_in_use(worst)}{more}."
    )


def _in_use(worst: UseRise) -> str:
    return f"{_gigabytes(worst.bytes_of(worst.use.percent))} of {_gigabytes(worst.use.total)}"


def _advice(worst: UseRise, view: NodeView) -> str:
    left, where = worst.time_left_s, f"{worst.device} on {view.node}"
    look = f"ook for {KEPT_TENSORS}: memory in use "
    hourly = f"{show_percentage_points(worst.hourly)} an hour"
    if view.closed:
        return f"L{look}of {where} rose by {hourly} and was never given back."
    within = f" within {show_duration(left)}, before {where} is full" if left else ""
    return f"Save a checkpoint{within}, and l{look}rises by {hourly} and is never given back."


def _past_advice(worst: UseRise, node: str) -> str:
    return (
        f"Nothing needs to be changed if a cache, or a pool of memory, filled up to its size on {worst.device} of "
        f"{node}: what is in use stopped rising. If nothing did, look for {KEPT_TENSORS}."
    )


def _gigabytes(amount: float) -> str:
    return f"{show_number(amount / GIGA)} GB"


def _details(rises: Sequence[UseRise], increase: float) -> MemoryDetails:
    return MemoryDetails(
        {
            rise.device: GpuMemory(
                increase=rise.points,
                gpu_max=rise.use.largest / HUNDREDTHS,
                p05=None,
                p25=None,
                p50=None,
                p75=None,
                p95=None,
                upper=None,
                lower=None,
                kind=LEAK if is_leak(rise, increase) else None,
                floors=[level / HUNDREDTHS for level in rise.use.levels],
                floor_s=rise.use.stride * MINUTE_S,
            )
            for rise in rises
        },
        in_use=True,
    )
