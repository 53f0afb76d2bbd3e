"""What memory in use says: a leak with its rate and the time that is left, or that there is none."""

from collections.abc import Iterator, Sequence

from trainguard.finding import Fact, Progress
from trainguard.records import Status
from trainguard.rules.gpu_memory_increase_text import text
from trainguard.rules.memory_details import GpuMemory, MemoryDetails
from trainguard.rules.memory_facts import MemoryKind, closed_facts
from trainguard.rules.memory_use import HUNDREDTHS, LEAST_S, MINUTE_S, UseLevels, UseRise, rises_of
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.warm_up import node_fact
from trainguard.telemetry import devices as names

IN_USE = Measure("increase of GPU memory in use", "percentage points")
LEAK = "leak"


def judge_use(in_use: dict[str, UseLevels], view: NodeView, increase: float) -> RuleResult:
    """Return what memory in use says of a node, against ``increase`` percentage points."""
    rises = rises_of(in_use)
    details = _details(rises, increase) if view.detailed else MemoryDetails({})
    leaks = [rise for rise in rises if is_leak(rise, increase)]
    seen_s = MINUTE_S * max(rise.use.stride * len(rise.use.levels) for rise in rises)
    progress = Progress(seen=round(seen_s / MINUTE_S), needed=round(LEAST_S / MINUTE_S), counts="minutes")
    if not leaks and seen_s < LEAST_S:
        return RuleResult.of(
            text,
            Status.WARMING_UP,
            MemoryKind.TOO_SHORT_FOR_LEAK,
            (node_fact("watched_time", seen_s, view, unit="s", threshold=LEAST_S),),
            data_points=view.kept_total,
            progress=progress,
            needs_longer=True,
            details=details,
        )
    worst = max(leaks or rises, key=lambda rise: (-rise.time_left_s if leaks else rise.points, rise.device))
    return RuleResult.of(
        text,
        Status.FIRED if leaks else Status.OK,
        MemoryKind.LEAK if leaks else MemoryKind.NO_LEAK,
        (*_facts_of(worst, view, increase, leaks), *closed_facts(view)),
        measured=worst.points,
        threshold=increase,
        measure=IN_USE,
        worst=worst.device,
        data_points=view.kept_total,
        progress=progress,
        affected_share=_affected(worst, view) if leaks else None,
        onset=worst.since if leaks else None,
        until=worst.until if leaks else None,
        gpus=tuple(rise.device for rise in leaks),
        time_left_s=worst.time_left_s if leaks else None,
        details=details,
    )


def _facts_of(worst: UseRise, view: NodeView, increase: float, leaks: Sequence[UseRise]) -> Iterator[Fact]:
    """Yield how one GPU's memory in use rose, and how many GPUs leak."""

    def fact(name: str, value: float, unit: str, **more: float) -> Fact:
        return node_fact(name, value, view, unit=unit, series=names.MEMORY_USED, device=worst.device, **more)

    yield fact("increase", worst.points, "points", threshold=increase)
    yield fact("memory_in_use", worst.bytes_of(worst.use.percent), "bytes")
    yield fact("memory_total", worst.use.total, "bytes")
    yield fact("memory_in_use_share", worst.use.percent, "%")
    if leaks:
        yield fact("rise_time", worst.minutes * MINUTE_S, "s")
        yield fact("hourly_increase", worst.hourly, "points/h")
        yield fact("hourly_bytes", worst.bytes_of(worst.hourly), "bytes/h")
        yield node_fact("gpus_affected", len(leaks), view, unit="GPUs")
        if worst.time_left_s:
            yield fact("time_left", worst.time_left_s, "s")


def _affected(worst: UseRise, view: NodeView) -> float | None:
    """Return in which share, 0 to 1, of the node's time the memory leaked."""
    if view.watermark_s is None or view.first_sample_at is None:
        return None
    return min((view.watermark_s - worst.since) / (view.watermark_s - view.first_sample_at), 1.0)


def is_leak(rise: UseRise, increase: float) -> bool:
    """Tell whether a rise is one of a leak, and larger than ``increase`` percentage points."""
    return rise.is_steady and rise.points > increase


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
