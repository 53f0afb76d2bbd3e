"""A GPU that worked and then did nothing any more, while the others of its node went on: that is no uneven split."""

from trainguard.rules.balance_times import FINE_S, SILENT_BLOCKS, Stretch
from trainguard.rules.balance_window import WIDE_GAP, Gaps
from trainguard.rules.rule_inputs import NodeView


def silence(view: NodeView, gaps: Gaps, low: int, since: float | None, worked: float | None = None) -> Stretch | None:
    """Return when a GPU that had worked did nothing; None of one that did something, or never worked.

    Parameters
    ----------
    view : NodeView
    gaps : Gaps
    low : int
        The GPU that stays behind most.
    since : float or None
        When the imbalance of now began, epoch seconds.
    worked : float or None
        Up to when it did something, epoch seconds; None where nobody knows.
    """
    if not view.ever_active[low] or view.first_active_at is None:
        return None
    stretch = gaps.fine.stretch(low, [gaps.busiest], WIDE_GAP / 2.0, gaps.variance)
    if stretch is None:
        return None
    begin = since if stretch.begin is None else stretch.begin
    if begin is None or begin - view.first_active_at < SILENT_BLOCKS * FINE_S:
        return None
    if not gaps.fine.is_silent(low, begin, stretch.end):
        return None
    # It worked up to a pause of the whole node, and not after it: so it did nothing in the pause either.
    stopped = gaps.fine.seen_until(low, begin)
    # The others may have done little when it stopped, or nothing at all: it is behind them from later on.
    return Stretch(stopped if worked is None or stretch.end is not None else min(stopped, worked), stretch.end)
