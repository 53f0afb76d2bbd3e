"""What is said of a whole node: that it idles, pauses too often, or looks busier than it is."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules import low_gpu_held_output as held_output
from trainguard.rules import low_gpu_output as output
from trainguard.rules.low_gpu_activity import SM, Hollow
from trainguard.rules.low_gpu_held import HeldMemory, held_memory
from trainguard.rules.low_gpu_idle import IDLE_FINDING_S, Idleness
from trainguard.rules.low_gpu_output import LowGpuDetails
from trainguard.rules.low_gpu_pauses import RegularBreaks
from trainguard.rules.paid_time import share_of_paid
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import show_percent
from trainguard.state.idle_evidence import QUIET_PERCENT
from trainguard.state.sample_window import ACTIVE_PERCENT


def judge_breaks(view: NodeView, breaks: RegularBreaks, costly: float, details: LowGpuDetails | None) -> RuleResult:
    """Say that all GPUs pause regularly, for more than the ``costly`` share, 0 to 1, of their time."""
    return RuleResult(
        Status.FIRED,
        f"{output.breaks_sentence(breaks, view)} (threshold {show_percent(100.0 * costly)}).",
        measured=100.0 * breaks.share,
        threshold=100.0 * costly,
        measure=output.PAUSED,
        data_points=view.kept_total,
        advice=output.breaks_advice(breaks, view),
        affected_share=breaks.of_paid,
        wasted_share=breaks.of_paid,
        onset=breaks.since,
        gpus=view.gpu_names,
        details=details or {},
    )


def judge_hollow(view: NodeView, hollow: list[Hollow], details: LowGpuDetails | None) -> RuleResult:
    """Say that GPUs look busy and use little of themselves."""
    worst = hollow[0]
    lost_s = 60.0 * sum(each.lost_min for each in hollow) / max(int(np.count_nonzero(view.ever_active)), 1)
    onset = min(each.since for each in hollow)
    return RuleResult(
        Status.FIRED,
        f"{output.hollow_sentence(hollow, view)}.",
        measured=worst.p95,
        threshold=worst.threshold,
        measure=output.SM_P95 if worst.measure == SM else output.TENSOR_P95,
        worst=worst.gpu,
        data_points=view.kept_total,
        advice=output.hollow_advice(worst, view),
        affected_share=None if view.watermark_s is None else share_of_paid(view, view.watermark_s - onset),
        wasted_share=share_of_paid(view, lost_s),
        onset=onset,
        gpus=tuple(each.gpu for each in hollow),
        details={} if details is None else msgspec.structs.replace(details, measure=worst.measure),
    )


def judge_weak(view: NodeView, idleness: Idleness, sign: str | None, details: LowGpuDetails | None) -> RuleResult:
    """Say that a node without an active GPU works a little; ``sign`` is by what else than utilization that is seen."""
    used = view.idle_time.run_mean / 100.0
    seen = "" if sign is None else f", and {sign}"
    weak = replace(idleness, look="weak")
    return RuleResult(
        Status.FIRED,
        output.idle_sentence(weak, view, more=seen),
        measured=view.idle_time.run_mean,
        threshold=ACTIVE_PERCENT,
        measure=output.WEAK_MEAN,
        data_points=view.kept_total,
        advice=output.idle_advice(weak, view),
        affected_share=share_of_paid(view, idleness.seconds),
        wasted_share=share_of_paid(view, (1.0 - used) * idleness.seconds),
        onset=idleness.since,
        gpus=view.gpu_names,
        details={} if details is None else msgspec.structs.replace(details, finding=output.FINDINGS["weak"]),
    )


def judge_idle(
    view: NodeView, idleness: Idleness, held: Mapping[str, HeldMemory], details: LowGpuDetails | None
) -> RuleResult:
    """Say that a node idles, and what memory its GPUs hold the while, where that is known."""
    idle_share = share_of_paid(view, idleness.seconds)
    holding = held_memory(held, view)
    by_mean = idleness.look == "quiet" and holding is None
    measure = output.QUIET_MEAN if by_mean else output.IDLE_TIME
    return RuleResult(
        Status.FIRED,
        output.idle_sentence(idleness, view)
        if holding is None
        else output.idle_sentence(idleness, view, held_output.HOLDING_SUFFIX, held_output.node_holds(holding, view)),
        measured=view.idle_time.highest_mean if by_mean else idleness.seconds / 60.0,
        threshold=QUIET_PERCENT if by_mean else IDLE_FINDING_S / 60.0,
        measure=measure if holding is None else held_output.HELD_TIME,
        data_points=view.kept_total,
        advice=output.idle_advice(idleness, view) if holding is None else held_output.node_advice(view, idleness),
        affected_share=idle_share,
        wasted_share=idle_share,
        idle_node=idleness.kind,
        past_reason=output.idle_sentence(idleness, view, past=True),
        past_advice=output.idle_advice(idleness, view, past=True),
        onset=idleness.since,
        gpus=view.gpu_names,
        details=held_output.noted(details, held_output.memory_of(held, view), output.FINDINGS[idleness.look]),
    )
