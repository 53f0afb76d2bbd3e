"""Low use of instances of partitioned GPUs (MIG), by SM activity. Source: NVIDIA, NVML API, "GPM Functions"."""

import math
from collections.abc import Mapping

import msgspec
import numpy as np

from trainguard.core.finding import Fact, Progress
from trainguard.core.records import Status
from trainguard.formats.profile import snapshots as names
from trainguard.rules.low_gpu_utilization.devices import (
    EFFECTIVE_PERCENT,
    MINUTE_S,
    MOST_GPUS,
    MOST_MINUTES,
    BusyMinutes,
    GpuSigns,
    HeldMemory,
    p95_of,
)
from trainguard.rules.low_gpu_utilization.node import IDLE_FINDING_S, InPart
from trainguard.rules.low_gpu_utilization.text import text
from trainguard.rules.low_gpu_utilization.usage import SM_P95, Kind, Part, Streak, of_node, stream_end
from trainguard.rules.rule_inputs import NodeMinute, NodeView, share_of_paid
from trainguard.rules.rule_result import RuleResult

USED_PERCENT = 1.0
"""An instance that is less active in each of its minutes was never used: no kernel of the job ran on it."""


class InstanceMinutes(msgspec.Struct, array_like=True):
    """Mean SM activity of an instance's newest minutes, tenths of a percent each.

    ``low`` of the newest in a row were low, since epoch seconds ``since``; ``lost`` is in minutes of the instance.
    ``begun`` are the minutes' starts, epoch seconds.
    """

    activity: list[int] = msgspec.field(default_factory=list)
    low: int = 0
    since: float | None = None
    lost: float = 0.0
    used: bool = False
    begun: list[int] = msgspec.field(default_factory=list)


def fold_instances(instances: dict[str, InstanceMinutes], minute: NodeMinute, threshold_sm: float) -> None:
    """Add the minute of each instance that has SM activity; one below ``threshold_sm`` percent is low."""
    for name, series in minute.devices.of(names.SM_ACTIVITY).items():
        if name not in minute.view.mig_names or (name not in instances and len(instances) >= MOST_GPUS):
            continue
        held = instances.setdefault(name, InstanceMinutes())
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
        facts = (of_node(view, "instances", len(view.mig_names), "instances"),)
        return RuleResult.of(text, Status.NOT_APPLICABLE, Kind.INSTANCES_UNKNOWN, facts)
    used = {name: held for name, held in instances.items() if held.used}
    judged = used or instances
    needed = min(math.ceil((lasting_s if used else IDLE_FINDING_S) / MINUTE_S), MOST_MINUTES)
    seen = max(len(held.activity) for held in judged.values())
    streak = max(held.low for held in judged.values())
    progress = Progress(seen=seen, needed=needed, counts="minutes", streak=streak)
    if seen < needed:
        facts = (of_node(view, "minutes_measured", seen, "minutes", threshold=float(needed)),)
        more = {"data_points": seen, "progress": progress}
        return RuleResult.of(text, Status.WARMING_UP, Kind.INSTANCES_WARMING_UP, facts, **more)
    lost_s = MINUTE_S * sum(held.lost for held in judged.values() if held.low >= needed) / len(judged)
    p95 = {name: p95_of(held.activity[-max(needed, held.low) :]) for name, held in judged.items()}
    low = sorted((name for name, held in judged.items() if held.low >= needed), key=lambda name: (p95[name], name))
    worst = low[0] if low else min(p95, key=lambda name: (p95[name], name))
    return RuleResult.of(
        text,
        Status.FIRED if low else Status.OK,
        Kind.INSTANCES_FINE if not low else Kind.INSTANCES_LOW if used else Kind.INSTANCES_UNUSED,
        _facts(worst, judged, max(needed, judged[worst].low), low, view, threshold_sm),
        measured=p95[worst],
        threshold=threshold_sm,
        measure=SM_P95,
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
        "series": names.SM_ACTIVITY,
        "start": float(held.begun[-len(newest)]) if held.begun else view.first_sample_at,
    }
    highest = max(max(each.activity[-len(newest) :]) for each in judged.values()) / 10.0
    facts = (
        of_node(view, "p95_sm_activity", p95_of(newest), "%", device=worst, threshold=threshold, **times),
        of_node(view, "instances", len(judged), "instances"),
    )
    if not low:
        return facts
    return (
        *facts,
        of_node(view, "highest_sm_activity", highest, "%", threshold=USED_PERCENT, **times),
        of_node(view, "low_time", MINUTE_S * min(held.low, MOST_MINUTES), "s", device=worst, **times),
        of_node(view, "gpus_affected", len(low), "instances"),
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
    parts: list[Part] = msgspec.field(default_factory=list)
    in_part: InPart = msgspec.field(default_factory=InPart)

    def uncounted(self, gpu: str) -> float:
        return max(self.wasted.get(gpu, 0.0) - self.streaks[gpu].counted, 0.0)

    def lost_share(self, view: NodeView, points: float) -> float | None:
        """Return the loss of GPUs, in points, as a share, 0 to 1, of the paid time of all that were ever active."""
        return share_of_paid(view, points * view.interval_s / int(np.count_nonzero(view.ever_active)))
