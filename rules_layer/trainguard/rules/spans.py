"""Patience and window: given in points or in seconds, counted in points, and told while they last."""

from trainguard.errors import RuleConfigError
from trainguard.rules.protocol import MAX_WINDOW_POINTS, MIN_WINDOW_POINTS
from trainguard.rules.units import points_in, show_duration
from trainguard.rules.views import NodeView

LONG_PATIENCE_S = 3_600.0
"""Where patience in points lasts longer than this, seconds are the better choice, and the reason says so."""


def patience_in_points(patience: int, patience_s: float | None, interval_s: float) -> int:
    """``patience_s`` in points where it is given, else ``patience``."""
    return patience if patience_s is None else points_in(patience_s, interval_s)


def window_in_points(rule: str, window: int, window_s: float | None, interval_s: float) -> int:
    """``window_s`` in points where it is given, else ``window``; RuleConfigError unless it is 20 to 2,000 points."""
    if window_s is None:
        return window
    points = points_in(window_s, interval_s)
    if MIN_WINDOW_POINTS <= points <= MAX_WINDOW_POINTS:
        return points
    expected = (
        f"{MIN_WINDOW_POINTS * interval_s:g} to {MAX_WINDOW_POINTS * interval_s:g} s, which are {MIN_WINDOW_POINTS} to "
        f"{MAX_WINDOW_POINTS:,} points at the sampling interval of {interval_s:g} s"
    )
    raise RuleConfigError(rule, "window_s", window_s, expected)


def warming_up_reason(points: int, patience: int, view: NodeView) -> str:
    """How far a node is from its first verdict, which comes with more than ``patience`` points."""
    progress = f"{view.node} has {points:,} of the {patience:,} points of patience"
    if view.closed:
        return f"{progress}; its stream has ended, too early for a verdict."
    if view.first_active_at is None:
        return f"no GPU of {view.node} has been active yet, {show_duration(view.idle_run_s)} after its first sample."
    if points > patience:
        return f"{progress}, but too few of the newest have GPU samples."
    reason = f"{progress}, about {show_duration((patience + 1 - points) * view.interval_s)} left"
    if patience * view.interval_s <= LONG_PATIENCE_S:
        return f"{reason}."
    return (
        f"{reason} ({patience:,} points are {show_duration(patience * view.interval_s)} at a sampling interval of "
        f"{view.interval_s:g} s: better give patience_s, and window_s where the rule has one, in seconds)."
    )
