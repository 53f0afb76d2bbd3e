"""Pauses of a node's GPUs that come back regularly, as saving a checkpoint, evaluating or preprocessing makes them."""

from dataclasses import dataclass

import numpy as np

from trainguard.rules.rule_inputs import NodeView

MIN_BREAKS, MIN_PERIOD_S = 3, 120.0

REGULAR, ALIKE_SHARE = 0.25, 0.7
"""Breaks are regular where most of the times between them are within a quarter of their median."""


@dataclass(frozen=True, slots=True)
class RegularBreaks:
    """Length and period in seconds; ``of_paid`` is the share, 0 to 1, that all breaks had of the node's paid time."""

    since: float
    length_s: float
    period_s: float
    of_paid: float
    go_on: bool

    @property
    def share(self) -> float:
        """Share of a period in which the GPUs pause, 0 to 1."""
        return self.length_s / self.period_s


def regular_breaks(view: NodeView) -> RegularBreaks | None:
    """Return the breaks of a node where they come back regularly; None where they do not."""
    newest = view.idle_time.breaks
    if len(newest) < MIN_BREAKS or view.watermark_s is None or view.first_sample_at is None:
        return None
    starts, lengths = np.array(newest).T
    periods = np.diff(starts)
    period_s, length_s = float(np.median(periods)), float(np.median(lengths))
    alike = np.abs(periods - period_s) <= REGULAR * period_s
    if period_s < MIN_PERIOD_S or np.count_nonzero(alike) < ALIKE_SHARE * len(periods):
        return None
    return RegularBreaks(
        since=float(starts[0]),
        length_s=length_s,
        period_s=period_s,
        of_paid=min(view.idle_time.breaks_s / (view.watermark_s - view.first_sample_at + view.interval_s), 1.0),
        go_on=view.watermark_s - float(starts[-1]) <= 2.0 * period_s,
    )
