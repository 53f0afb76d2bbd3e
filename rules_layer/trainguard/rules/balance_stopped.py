"""A GPU that worked and then did nothing any more, while the others of its node went on: that is no uneven split."""

from dataclasses import replace

from trainguard.finding import clock_times
from trainguard.rules.balance_times import FINE_S, SILENT_BLOCKS, Stretch
from trainguard.rules.balance_window import WIDE_GAP, Gaps
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import show_number, show_percent, show_percentage_points
from trainguard.timestamps import iso_time

STOPPED = " stopped working at "


def stopped(result: RuleResult, view: NodeView, gaps: Gaps, low: int, since: float | None) -> RuleResult:
    """Return a finding of a GPU that stopped working as one of that, any other as it is.

    Parameters
    ----------
    result : RuleResult
        It has fired.
    view : NodeView
    gaps : Gaps
    low : int
        The GPU that stays behind most.
    since : float or None
        When the imbalance of now began, epoch seconds.
    """
    when = _silence(view, gaps, low, since)
    if when is None:
        return result
    gpu, busiest = view.gpu_names[low], view.gpu_names[gaps.busiest]
    gap = float(gaps.means[gaps.busiest] - gaps.means[low])
    at = iso_time(when.begin or 0.0)
    again = "" if when.end is None else f", and worked again from {_clock(iso_time(when.end))} on"
    return replace(
        result,
        reason=(
            f"{gpu} of {view.node}{STOPPED}{_clock(at)}{again}: it was at 0 % while {busiest} was at "
            f"{show_percent(float(gaps.means[gaps.busiest]))} on average, {show_percentage_points(gap)} behind it over "
            f"{gaps.minutes} min (threshold {show_number(WIDE_GAP)})."
        ),
        measured=gap,
        threshold=WIDE_GAP,
        advice=(
            f"Find out why {gpu} of {view.node} stopped at {_clock(at)}: look at its process's log, and at the GPU "
            "(Xid errors in dmesg, nvidia-smi -q). What the others computed without it may be worth nothing."
        ),
    )


def _silence(view: NodeView, gaps: Gaps, low: int, since: float | None) -> Stretch | None:
    """Return when a GPU that had worked did nothing; None of one that did something, or never worked."""
    if not view.ever_active[low] or view.first_active_at is None:
        return None
    stretch = gaps.fine.stretch(low, [gaps.busiest], WIDE_GAP / 2.0, gaps.variance)
    if stretch is None:
        return None
    begin = since if stretch.begin is None else stretch.begin
    if begin is None or begin - view.first_active_at < SILENT_BLOCKS * FINE_S:
        return None
    return Stretch(begin, stretch.end) if gaps.fine.is_silent(low, begin, stretch.end) else None


def _clock(time: str) -> str:
    return clock_times(time, time)
