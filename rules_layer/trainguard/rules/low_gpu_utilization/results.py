"""The rule's state, and findings on single GPUs and instances (MIG): too little or unsteady work, or memory held.

Low use of instances is seen by SM activity, else by engine activity, which is never below it. Sources: NVIDIA, NVML
API, "GPM Functions"; DCGM, "Profiling Metrics".
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from trainguard.core.finding import MOST_FACTS, Fact, Patience
from trainguard.formats.profile import snapshots as names
from trainguard.rules.low_gpu_utilization.devices import (
    EFFECTIVE_PERCENT,
    MEMORY,
    MINUTE_S,
    MOST_GPUS,
    MOST_MINUTES,
    SM,
    BusyMinutes,
    GpuSigns,
    Held,
    HeldMemory,
    held_while_idle,
    low_activity_gpus,
    p95_of,
    threshold_of,
)
from trainguard.rules.low_gpu_utilization.node import IDLE_FINDING_S, InPart, break_facts, memory_facts, regular_breaks
from trainguard.rules.low_gpu_utilization.text import HOLDING_SUFFIX, NAMES, text
from trainguard.rules.low_gpu_utilization.usage import (
    COSTLY_SHARE,
    ENGINE_P95,
    HELD_TIME,
    MEMORY_P95,
    P5,
    P95,
    SM_P95,
    TENSOR_P95,
    UTILIZATION,
    Kind,
    Streak,
    Usage,
    UsagePart,
    mean_facts,
    noted,
    stream_end,
)
from trainguard.rules.rule_inputs import NodeMinute, NodeView, share_of_paid
from trainguard.rules.rule_result import RuleResult

# An instance that is less active in each of its minutes was never used: no kernel of the job ran on it.
USED_PERCENT = 1.0


class InstanceMinutes(msgspec.Struct, array_like=True):
    """Mean activity of an instance's newest minutes, tenths of a percent each: of its SMs, or ``by_engine``.

    ``low`` of the newest in a row were low, since epoch seconds ``since``; ``lost`` is in minutes of the instance.
    ``begun`` are the minutes' starts, epoch seconds.
    """

    activity: list[int] = msgspec.field(default_factory=list)
    low: int = 0
    since: float | None = None
    lost: float = 0.0
    used: bool = False
    begun: list[int] = msgspec.field(default_factory=list)
    by_engine: bool = False

    @property
    def series(self) -> str:
        return names.ENGINE_ACTIVITY if self.by_engine else names.SM_ACTIVITY


def fold_instances(instances: dict[str, InstanceMinutes], minute: NodeMinute, threshold_sm: float) -> None:
    """Add the minute of each instance that has SM or engine activity; one below ``threshold_sm`` percent is low.

    An instance stays with the measure that it was seen by first.
    """
    measured = [
        (by_engine, name, series)
        for by_engine in (False, True)
        for name, series in minute.devices.of(names.ENGINE_ACTIVITY if by_engine else names.SM_ACTIVITY).items()
    ]
    for by_engine, name, series in measured:
        if name not in minute.view.mig_names or (name not in instances and len(instances) >= MOST_GPUS):
            continue
        held = instances.setdefault(name, InstanceMinutes(by_engine=by_engine))
        if held.by_engine != by_engine:
            continue
        held.activity = [*held.activity, round(10.0 * series.mean)][-MOST_MINUTES:]
        held.begun = [*held.begun, int(series.times[0])][-MOST_MINUTES:]
        if series.mean >= USED_PERCENT and not held.used:
            held.used, held.low, held.since, held.lost = True, 0, None, 0.0
        if series.mean >= threshold_sm:
            held.low, held.since, held.lost = 0, None, 0.0
            continue
        held.low += 1
        held.since = float(series.times[0]) if held.since is None else held.since
        held.lost += 1.0 - min(series.mean / EFFECTIVE_PERCENT, 1.0)


def judge_instances(
    instances: dict[str, InstanceMinutes], view: NodeView, threshold_sm: float, lasting_s: float
) -> RuleResult:
    """Judge used instances, or all where none was; they fire after ``lasting_s`` seconds, unused ones after 20 min."""
    if not instances:
        facts = (view.fact("instances", len(view.mig_names), "instances"),)
        return RuleResult.of_kind(text, Kind.INSTANCES_UNKNOWN, facts)
    used = {name: held for name, held in instances.items() if held.used}
    judged = used or instances
    needed = min(math.ceil((lasting_s if used else IDLE_FINDING_S) / MINUTE_S), MOST_MINUTES)
    seen = max(len(held.activity) for held in judged.values())
    streak = max(held.low for held in judged.values())
    progress = Patience(seen=seen, needed=needed, counts="minutes", streak=streak)
    if seen < needed:
        facts = (view.fact("minutes_measured", seen, "minutes", threshold=float(needed)),)
        more = {"data_points": seen, "progress": progress}
        return RuleResult.of_kind(text, Kind.INSTANCES_WARMING_UP, facts, **more)
    lost_s = MINUTE_S * sum(held.lost for held in judged.values() if held.low >= needed) / len(judged)
    p95 = {name: p95_of(held.activity[-max(needed, held.low) :]) for name, held in judged.items()}
    low = sorted((name for name, held in judged.items() if held.low >= needed), key=lambda name: (p95[name], name))
    worst = low[0] if low else min(p95, key=lambda name: (p95[name], name))
    return RuleResult.of_kind(
        text,
        Kind.INSTANCES_FINE if not low else Kind.INSTANCES_LOW if used else Kind.INSTANCES_UNUSED,
        _facts(worst, judged, max(needed, judged[worst].low), low, view, threshold_sm),
        measured=p95[worst],
        threshold=threshold_sm,
        measure=ENGINE_P95 if judged[worst].by_engine else SM_P95,
        worst=worst,
        data_points=seen,
        progress=progress,
        affected_share=share_of_paid(view, MINUTE_S * judged[worst].low) if low else None,
        wasted_share=share_of_paid(view, lost_s) if low else None,
        onset=min(judged[name].since or 0.0 for name in low) if low else None,
        gpus=tuple(low),
    )


def _facts(
    worst: str, judged: Mapping[str, InstanceMinutes], minutes: int, low: list[str], view: NodeView, threshold: float
) -> tuple[Fact, ...]:
    held = judged[worst]
    newest = held.activity[-minutes:]
    times = {
        "series": held.series,
        "start": float(held.begun[-len(newest)]) if held.begun else view.first_sample_at,
    }
    highest = max(max(each.activity[-len(newest) :]) for each in judged.values()) / 10.0
    facts: tuple[Fact, ...] = (
        view.fact("p95_sm_activity", p95_of(newest), "%", device=worst, threshold=threshold, **times),
        view.fact("instances", len(judged), "instances"),
    )
    if held.by_engine:
        facts = (*facts, view.fact("activity", "engine activity", device=worst))
    if not low:
        return facts
    return (
        *facts,
        view.fact("highest_sm_activity", highest, "%", threshold=USED_PERCENT, **times),
        view.fact("low_time", MINUTE_S * min(held.low, MOST_MINUTES), "s", device=worst, **times),
        view.fact("gpus_affected", len(low), "instances"),
        *stream_end(view),
    )


class LowGPUUtilizationState(msgspec.Struct, array_like=True):
    """One streak for each GPU that is of some kind now, in the GPUs' order.

    ``judged`` and ``low`` count kept points at evaluations that judged a GPU, and found one. ``wasted`` is each GPU's
    loss at those, in points; ``found`` the loss of all GPUs in streaks that were a finding. ``parts`` sum up all
    samples of the newest hour, ``in_part`` says whether the node idled in it.
    """

    streaks: dict[str, Streak] = msgspec.field(default_factory=dict)
    judged: int = 0
    low: int = 0
    wasted: dict[str, float] = msgspec.field(default_factory=dict)
    activity: dict[str, BusyMinutes] = msgspec.field(default_factory=dict)
    held: dict[str, HeldMemory] = msgspec.field(default_factory=dict)
    signs: dict[str, GpuSigns] = msgspec.field(default_factory=dict)
    instances: dict[str, InstanceMinutes] = msgspec.field(default_factory=dict)
    found: float = 0.0
    parts: list[UsagePart] = msgspec.field(default_factory=list)
    in_part: InPart = msgspec.field(default_factory=InPart)

    def uncounted(self, gpu: str) -> float:
        return max(self.wasted.get(gpu, 0.0) - self.streaks[gpu].counted, 0.0)

    def lost_share(self, view: NodeView, points: float) -> float | None:
        """Return the loss of GPUs, in points, as a share, 0 to 1, of the paid time of all that were ever active."""
        return share_of_paid(view, points * view.interval_s / int(np.count_nonzero(view.ever_active)))


# So much of the points left out as pauses is said beside the verdict on the others.
LEFT_OUT_SHARE = 0.2
# How long a GPU must be low, and the window, in points; the thresholds of the 95th and the 5th percentile.
Limits = tuple[int, int, tuple[float, float]]

_SERIES = {SM: names.SM_ACTIVITY, MEMORY: "GPUMemoryUtilization"}


def judge_usages(
    state: LowGPUUtilizationState,
    view: NodeView,
    judged: Sequence[Usage],
    fired: Sequence[Usage],
    limits: Limits,
    common: Mapping[str, Any],
) -> RuleResult:
    """Judge GPUs one by one; the lowest of those that are a finding is shown, else of those that are low, or of all."""
    needed, _, thresholds = limits
    low = [usage for usage in judged if usage.gpu in state.streaks]
    lasted = [usage for usage in low if state.streaks[usage.gpu].lasting(view) >= needed]
    worst = min(fired or lasted or low or judged, key=lambda usage: (usage.p95, usage.p5))
    streak, fluctuating = state.streaks.get(worst.gpu), worst.kind == "fluctuating"
    holding = held_while_idle(state.held, view, worst.gpu, IDLE_FINDING_S) if fired else None
    onsets = [state.streaks[usage.gpu].onset for usage in fired]
    uncounted = sum(state.uncounted(usage.gpu) for usage in fired)
    kind = Kind.FINE
    if streak is not None and fired:
        kind = Kind.FLUCTUATES if fluctuating else Kind.UNDER_USED
    elif streak is not None:
        kind = Kind.SMALL_DIPS if worst in lasted and fluctuating else Kind.LOW_FOR_SHORT
    affected = (view.fact("gpus_affected", len(fired), "GPUs"),) if fired else ()
    counts = (view.fact("gpus_judged", len(judged), "GPUs"), view.fact("gpus", len(view.gpu_names), "GPUs"))
    facts = (
        *_usage_facts(worst, view, limits),
        *(counts if streak is None else (*_streak_facts(worst, streak, needed, view), *affected)),
        *stream_end(view),
    )
    if holding is not None:
        kind = Kind.GPU_HOLDS_MEMORY
        facts = (*_held_facts(*holding, worst.gpu, view), *affected, *stream_end(view))
        common = noted(common, finding=f"{NAMES[Kind.STOPPED]}{HOLDING_SUFFIX}", memory="held")
    else:
        facts = (*facts, *mean_facts(state.parts, view, worst.gpu), *pause_facts(view))
        room = activity_facts(state.activity, worst.gpu, view)
        facts = (*facts, *room) if len(facts) + len(room) <= MOST_FACTS else facts
    return RuleResult.of_kind(
        text,
        kind,
        facts,
        measured=worst.p5 if fluctuating else worst.p95,
        threshold=thresholds[1] if fluctuating else thresholds[0],
        measure=P5 if fluctuating else P95,
        worst=worst.gpu,
        affected_share=state.low / state.judged if state.judged else None,
        wasted_share=state.lost_share(view, state.found + uncounted) if fired else None,
        onset=min((onset for onset in onsets if onset is not None), default=None),
        gpus=tuple(usage.gpu for usage in fired),
        **common,
    )


def _usage_facts(worst: Usage, view: NodeView, limits: Limits) -> tuple[Fact, ...]:
    _, window, thresholds = limits
    times = view.kept_times[-window:]
    of_window = {"series": UTILIZATION, "device": worst.gpu, "start": float(times[0]), "end": float(times[-1])}
    return (
        view.fact("p95_utilization_at_work", worst.p95, "%", threshold=thresholds[0], **of_window),
        view.fact("p5_utilization_at_work", worst.p5, "%", threshold=thresholds[1], **of_window),
        view.fact("samples_at_work", len(times), "samples", **of_window),
    )


def _streak_facts(worst: Usage, streak: Streak, needed: int, view: NodeView) -> tuple[Fact, ...]:
    newest = float(view.kept_times[-1])
    onset = newest if streak.onset is None else min(streak.onset, newest)
    times = {"series": UTILIZATION, "device": worst.gpu, "start": onset, "end": newest}
    low = view.fact("low_time", newest - onset, "s", **times)
    points = view.fact("low_points", streak.lasting(view), "points", threshold=float(needed))
    dips = view.fact("dip_share", streak.cost, "share", threshold=COSTLY_SHARE, **times)
    return low, points, *([dips] if streak.kind == "fluctuating" else [])


def judge_taken(held: Mapping[str, HeldMemory], view: NodeView, common: Mapping[str, Any]) -> RuleResult | None:
    """Say that GPUs have never worked while others of the node do, and hold memory; None where none does."""
    names = [name for name, ever in zip(view.gpu_names, view.ever_active.tolist(), strict=True) if not ever]
    found = {gpu: known for gpu in names if (known := held_while_idle(held, view, gpu, IDLE_FINDING_S)) is not None}
    if not found:
        return None
    worst = max(found, key=lambda gpu: found[gpu][0].used)
    holding, idle_s = found[worst]
    affected = view.fact("gpus_affected", len(found), "GPUs")
    lost_s = sum(lasted for _, lasted in found.values()) / len(view.gpu_names)
    return RuleResult.of_kind(
        text,
        Kind.GPU_TAKEN,
        (*_held_facts(holding, idle_s, worst, view), affected, *stream_end(view)),
        measured=idle_s / 60.0,
        threshold=IDLE_FINDING_S / 60.0,
        measure=HELD_TIME,
        worst=worst,
        affected_share=share_of_paid(view, idle_s),
        wasted_share=share_of_paid(view, lost_s),
        onset=max((view.watermark_s or 0.0) + view.interval_s - idle_s, view.first_sample_at or 0.0),
        gpus=tuple(found),
        **noted(common, finding=f"{NAMES[Kind.NEVER_USED]}{HOLDING_SUFFIX}", memory="held"),
    )


def _held_facts(held: Held, idle_s: float, gpu: str, view: NodeView) -> tuple[Fact, ...]:
    since = max((view.watermark_s or 0.0) + view.interval_s - idle_s, view.first_sample_at or 0.0)
    idle = {"series": UTILIZATION, "device": gpu, "start": since, "threshold": IDLE_FINDING_S}
    return (view.fact("idle_time", idle_s, "s", **idle), *memory_facts(view, held, gpu))


def pause_facts(view: NodeView) -> tuple[Fact, ...]:
    """Return how the node pauses, where regularly, and how much of its time was left out for that, where much."""
    breaks, paused = regular_breaks(view), view.idle_time.paused
    facts = () if breaks is None else tuple(each for each in break_facts(view, breaks) if each.name != "pause_share")
    if not paused or paused < LEFT_OUT_SHARE * (view.kept_total + paused):
        return facts
    share = float(paused / (view.kept_total + paused))
    since = {"series": UTILIZATION, "start": view.first_active_at}
    return (*facts, view.fact("paused_share", share, "share", **since))


def activity_facts(minutes: Mapping[str, BusyMinutes], gpu: str, view: NodeView) -> tuple[Fact, ...]:
    known = minutes.get(gpu)
    if known is None or not known.activity:
        return ()
    mean = sum(known.activity) / len(known.activity) / 10.0
    return _of_minutes(view, gpu, known.measure, "mean_activity_at_work", mean, known.begun, known.until)


def _of_minutes(
    view: NodeView, gpu: str, measure: str, name: str, value: float, begun: Sequence[float], until: float, **more: Any
) -> tuple[Fact, ...]:
    series = _SERIES.get(measure, names.TENSOR_ACTIVITY)
    times = {"device": gpu, "start": float(begun[0]) if begun else None, "end": until or view.watermark_s}
    return (
        view.fact(name, value, "%", series=series, **times, **more),
        view.fact("activity", measure, device=gpu),
        view.fact("minutes_at_work", len(begun), "minutes", **times),
    )


def judge_low_activity(
    minutes: Mapping[str, BusyMinutes], view: NodeView, lasting_s: float, threshold_sm: float, common: Mapping[str, Any]
) -> RuleResult | None:
    """Say that GPUs look busy and use little of themselves; None where none does."""
    low = low_activity_gpus(minutes, lasting_s)
    if not low:
        return None
    gpu, worst, p95 = low[0]
    lost_s = 60.0 * sum(held.lost for _, held, _ in low) / max(int(np.count_nonzero(view.ever_active)), 1)
    onset = min(held.since for _, held, _ in low if held.since is not None)
    threshold = threshold_of(worst.measure, threshold_sm)
    affected = view.fact("gpus_affected", len(low), "GPUs")
    return RuleResult.of_kind(
        text,
        Kind.LOW_ACTIVITY,
        (*_low_activity_facts(view, gpu, worst, p95, threshold), affected, *stream_end(view)),
        measured=p95,
        threshold=threshold,
        measure={SM: SM_P95, MEMORY: MEMORY_P95}.get(worst.measure, TENSOR_P95),
        worst=gpu,
        affected_share=None if view.watermark_s is None else share_of_paid(view, view.watermark_s - onset),
        # Memory and power alone do not tell how much of the GPU was not used.
        wasted_share=None if worst.measure == MEMORY else share_of_paid(view, lost_s),
        onset=onset,
        gpus=tuple(name for name, _, _ in low),
        **noted(common, measure=worst.measure),
    )


def _low_activity_facts(view: NodeView, gpu: str, held: BusyMinutes, p95: float, threshold: float) -> tuple[Fact, ...]:
    begun, busy = held.begun[-held.low_sm :], held.utilization[-held.low_sm :]
    times = {"device": gpu, "start": float(begun[0]), "end": held.until}
    activity = _of_minutes(view, gpu, held.measure, "p95_activity_at_work", p95, begun, held.until, threshold=threshold)
    utilization = view.fact("mean_utilization_at_work", sum(busy) / len(busy), "%", series=UTILIZATION, **times)
    if held.measure == SM or not held.power:
        return *activity, utilization
    newest = {**times, "start": float(begun[-1])}
    return *activity, utilization, view.fact("power", held.power, "W", series=names.POWER, **newest)
