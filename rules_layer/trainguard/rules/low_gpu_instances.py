"""Low use of instances of partitioned GPUs (MIG), whose utilization is not measured: by their SM activity.

Source: NVIDIA, NVML API reference, "GPM Functions": under MIG, activity is that of the instance's own multiprocessors.
"""

import math
from collections.abc import Mapping

import msgspec
import numpy as np

from trainguard.finding import Fact, Progress
from trainguard.records import Status
from trainguard.rules.low_gpu_devices import EFFECTIVE_PERCENT, MINUTE_S, MOST_GPUS, MOST_MINUTES
from trainguard.rules.low_gpu_node import IDLE_FINDING_S
from trainguard.rules.low_gpu_results import SM_P95
from trainguard.rules.low_gpu_text import text
from trainguard.rules.low_gpu_usage import Kind, of_node, stream_end
from trainguard.rules.paid_time import share_of_paid
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.telemetry import devices as names

USED_PERCENT = 1.0
"""An instance that is less active in each of its minutes was never used: no kernel of the job ran on it."""


class InstanceMinutes(msgspec.Struct, array_like=True):
    """Mean SM activity of an instance's newest minutes, tenths of a percent each.

    ``low`` is how many of the newest in a row were low, since epoch seconds ``since``; ``lost`` is what they left
    undone, in minutes of the instance. ``used`` says that the instance has worked. ``begun`` are the minutes' starts,
    epoch seconds.
    """

    activity: list[int] = msgspec.field(default_factory=list)
    low: int = 0
    since: float | None = None
    lost: float = 0.0
    used: bool = False
    begun: list[int] = msgspec.field(default_factory=list)

    def p95(self, minutes: int) -> float:
        """Return the 95th percentile of the newest minutes, percent."""
        return float(np.quantile(np.array(self.activity[-minutes:], dtype=np.float64) / 10.0, 0.95))


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
    """Judge the instances that were used, or all of them where none was.

    An instance fires that was low in every minute for ``lasting_s`` seconds; for 20 minutes where none was used.
    """
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
    p95 = {name: held.p95(max(needed, held.low)) for name, held in judged.items()}
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
    """Return the activity of the least active instance over its newest minutes, and how many are low."""
    held = judged[worst]
    newest = held.activity[-minutes:]
    times = {
        "series": names.SM_ACTIVITY,
        "start": float(held.begun[-len(newest)]) if held.begun else view.first_sample_at,
    }
    highest = max(max(each.activity[-len(newest) :]) for each in judged.values()) / 10.0
    facts = (
        of_node(view, "p95_sm_activity", held.p95(minutes), "%", device=worst, threshold=threshold, **times),
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
