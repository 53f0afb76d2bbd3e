"""Low use of instances of partitioned GPUs (MIG), whose utilization is not measured: by their SM activity.

Source: NVIDIA, NVML API reference, "GPM Functions": under MIG, activity is that of the instance's own multiprocessors.
"""

import math

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules.low_gpu_activity import EFFECTIVE_PERCENT, MINUTE_S, MOST_GPUS, MOST_MINUTES
from trainguard.rules.low_gpu_idle import IDLE_FINDING_S
from trainguard.rules.low_gpu_output import SM_P95
from trainguard.rules.paid_time import share_of_paid
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import counted, show_duration, show_percent
from trainguard.rules.windowing import no_utilization
from trainguard.telemetry import devices as names

USED_PERCENT = 1.0
"""An instance that is less active in each of its minutes was never used: no kernel of the job ran on it."""


class InstanceMinutes(msgspec.Struct, array_like=True):
    """Mean SM activity of an instance's newest minutes, tenths of a percent each.

    ``low`` is how many of the newest in a row were low, since epoch seconds ``since``; ``lost`` is what they left
    undone, in minutes of the instance. ``used`` says that the instance has worked.
    """

    activity: list[int] = msgspec.field(default_factory=list)
    low: int = 0
    since: float | None = None
    lost: float = 0.0
    used: bool = False

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
        reason = f"{no_utilization(view)} SM activity of the instances, which stands in for it, was not collected."
        return RuleResult(Status.NOT_APPLICABLE, reason)
    used = {name: held for name, held in instances.items() if held.used}
    judged = used or instances
    needed = min(math.ceil((lasting_s if used else IDLE_FINDING_S) / MINUTE_S), MOST_MINUTES)
    seen = max(len(held.activity) for held in judged.values())
    if seen < needed:
        reason = f"the instances (MIG) of {view.node} have {seen} of {counted(needed, 'minute')} with SM activity."
        return RuleResult(Status.WARMING_UP, reason, data_points=seen)
    lost_s = MINUTE_S * sum(held.lost for held in judged.values() if held.low >= needed) / len(judged)
    p95 = {name: held.p95(max(needed, held.low)) for name, held in judged.items()}
    low = sorted((name for name, held in judged.items() if held.low >= needed), key=lambda name: (p95[name], name))
    worst = low[0] if low else min(p95, key=lambda name: (p95[name], name))
    return RuleResult(
        Status.FIRED if low else Status.OK,
        _sentence(worst, p95[worst], judged[worst], low, view, threshold_sm, used=bool(used)),
        measured=p95[worst],
        threshold=threshold_sm,
        measure=SM_P95,
        worst=worst,
        data_points=seen,
        advice=_advice(worst, p95[worst], view, used=bool(used)) if low else None,
        affected_share=share_of_paid(view, MINUTE_S * judged[worst].low) if low else None,
        wasted_share=share_of_paid(view, lost_s) if low else None,
        onset=min(judged[name].since or 0.0 for name in low) if low else None,
        gpus=tuple(low),
    )


def _sentence(
    worst: str, p95: float, held: InstanceMinutes, low: list[str], view: NodeView, threshold: float, *, used: bool
) -> str:
    unmeasured = "; utilization is not measured, since its GPUs are partitioned (MIG)"
    allowed = f"(threshold {show_percent(threshold)})"
    if not low:
        return (
            f"{worst} on {view.node}, the least active instance: the 95th percentile of its SM activity is "
            f"{show_percent(p95)} {allowed}{unmeasured}."
        )
    more = f"; {len(low)} instances of {view.node} are low" if len(low) > 1 else ""
    lasted = show_duration(MINUTE_S * min(held.low, MOST_MINUTES))
    if not used:
        idle = f"for {lasted} the SM activity of each was below {show_percent(USED_PERCENT)}"
        return f"no instance (MIG) of {view.node} was used: {idle}{unmeasured}."
    return (
        f"{worst} on {view.node}: for {lasted} 95 % of its minutes have an SM activity of at most {show_percent(p95)} "
        f"{allowed}{more}{unmeasured}."
    )


def _advice(worst: str, p95: float, view: NodeView, *, used: bool) -> str:
    if not used:
        return f"Check whether the job hangs on {view.node} or computes on the CPU, and stop it if it does."
    return (
        "Raise the batch size, fuse small kernels (torch.compile, CUDA graphs), or give the job a smaller instance "
        f"than {worst} on {view.node}: its kernels leave {show_percent(100.0 - p95)} of its multiprocessors unused."
    )
