"""What rules over samples say before their first verdict: what is missing, how far they are, how long it takes."""

from collections.abc import Mapping
from typing import Any

from trainguard.finding import Progress
from trainguard.records import Status
from trainguard.rules.details import Details
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import counted, show_duration
from trainguard.state.sample_window import WORK_S

LONG_PATIENCE_S = 3_600.0
"""Where patience that was given in points lasts longer, seconds are the better choice, and the reason says so."""


def warming_up(
    points: int, needed: int, view: NodeView, details: Details | Mapping[str, Any], reason: str | None = None
) -> RuleResult:
    """Return the judgement of a node with ``points`` of the ``needed`` ones; ``reason`` None stands for the usual."""
    return RuleResult(
        Status.WARMING_UP,
        warming_up_reason(points, needed, view) if reason is None else reason,
        data_points=points,
        progress=Progress(seen=points, needed=needed),
        details=details,
    )


def never_active_reason(view: NodeView) -> str:
    """Why there is no verdict on a node that had not worked before its watermark, or before its stream ended."""
    if view.ever_active.any():
        until = "until its stream ended" if view.closed else "yet"
        return f"{view.node} has not finished its start-up: its GPUs were not active for {WORK_S:g} s in all {until}."
    if _lacks_utilization(view):
        return f"no GPU of {view.node} was seen active, and its newest points have no sample of GPU utilization."
    idle = show_duration(view.idle_run_s)
    if view.closed:
        return f"no GPU of {view.node} was active in the {idle} until its stream ended."
    return f"no GPU of {view.node} has been active yet, {idle} after its first sample."


def _lacks_utilization(view: NodeView) -> bool:
    """Tell whether a node whose GPUs were never active has none of their samples at its watermark."""
    if view.watermark_s is None or view.first_sample_at is None:
        return False
    return view.idle_run_s <= 0.0 and view.watermark_s - view.first_sample_at >= view.interval_s


def never_collected(metric: str, view: NodeView) -> RuleResult:
    """Say that the rule cannot judge a node of which a metric has no sample."""
    reason = f"no {metric} of {view.node} was collected, which the rule needs."
    return RuleResult(Status.NOT_APPLICABLE, reason, data_points=view.kept_total)


def warming_up_reason(points: int, patience: int, view: NodeView) -> str:
    """How far a node is from its first verdict, which comes with more than ``patience`` points."""
    if view.first_active_at is None:
        return never_active_reason(view)
    if points > patience:
        return f"too few of the newest points of {view.node} have GPU samples."
    progress = f"{view.node} has {points:,} of the {counted(patience, 'point')} of patience"
    if not patience:
        progress = f"{view.node} has no point that can be judged"
    if view.closed:
        return f"{progress}; its stream has ended, too early for a verdict."
    reason = f"{progress}, about {show_duration((patience + 1 - points) * view.interval_s)} left"
    if patience * view.interval_s <= LONG_PATIENCE_S:
        return f"{reason}."
    return (
        f"{reason} ({counted(patience, 'point')} are {show_duration(patience * view.interval_s)} at a sampling "
        f"interval of {view.interval_s:g} s: better give patience_s, and window_s where the rule has one, in seconds)."
    )
