"""When a node's GPUs do nothing, or next to nothing: never used, stopped, or nearly idle on average.

A GPU that is never active, at 10 % or more, and has a mean of 5 % or more still works: it is under-used.
"""

import math
from dataclasses import dataclass
from typing import Literal

from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import IdleNode
from trainguard.state.idle_evidence import QUIET_PERCENT

IDLE_FINDING_S = 1_200.0
"""A node that is idle for so long is a finding of its own; up to here it is start-up, a pause or the tail."""

CHANCE = 0.001
"""A run of idle snapshots that the node's other snapshots make this likely is chance, and no sign that it stopped."""

ONE_RUN = 0.8
"""Of the time in which a node was nearly idle, so much in one run of idle snapshots is silence after the last work."""

Look = Literal["unused", "silent", "quiet", "weak"]


@dataclass(frozen=True, slots=True)
class Idleness:
    """How a node idles, for how many ``seconds``, and since when, epoch seconds.

    ``look`` is "unused" where no GPU was ever active, "silent" where none has been since the last work, and "quiet"
    where they are nearly idle on average. With "weak" they work, and are under-used.
    """

    look: Look
    seconds: float
    at_start: bool
    since: float

    @property
    def kind(self) -> IdleNode | None:
        """What the finding is called: a node without work since its start was never used; None of one that works."""
        if self.look == "weak":
            return None
        return "never used" if self.at_start else "idle"


def idleness_of(view: NodeView) -> Idleness | None:
    """Say how a node idles; None where it works, or has not idled for long enough."""
    if view.watermark_s is None:
        return None
    at_start = view.first_active_at is None
    silent_s = view.idle_run_s if at_start or not _plausible_by_chance(view) else 0.0
    resumed = not view.closed and view.idle_time.newest_mean >= QUIET_PERCENT
    quiet_s = 0.0 if resumed else view.idle_time.quiet_s
    if max(silent_s, quiet_s) <= 0.0:
        return None
    silent = silent_s >= ONE_RUN * quiet_s
    # A snapshot stands for the time until the next one.
    seconds = (silent_s if silent else quiet_s) + view.interval_s
    if seconds < IDLE_FINDING_S:
        return None
    look: Look = "silent" if silent and not at_start else "quiet"
    if silent and view.idle_time.run_mean >= QUIET_PERCENT:
        look = "weak"
    elif at_start and not view.ever_active.any():
        look = "unused"
    return Idleness(look, seconds, at_start, view.watermark_s + view.interval_s - seconds)


def _plausible_by_chance(view: NodeView) -> bool:
    """Tell whether a node that is idle in as many snapshots as this one would show such a run by chance.

    Each snapshot is taken as independent of the others, as single readings of a counter a minute are.
    """
    idle, seen = view.idle_time.samples, view.kept_total + view.idle_time.paused
    share = (idle + 1.0) / (seen + 2.0)
    return view.idle_run_s / view.interval_s * math.log(share) > math.log(CHANCE)
