"""Wall-clock time that never goes back, and the ticks that are aligned to it."""

import math
import time
from collections.abc import Callable

_SLEW = 0.01
"""A clock that was set back is followed at this rate."""


class Clock:
    """Epoch seconds: jumps ahead with the system's clock, and follows it back slowly."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._at = monotonic()
        self._offset = wall() - self._at

    def now(self) -> float:
        """Return the time now, never earlier than before."""
        at, wall = self._monotonic(), self._wall()
        behind = at + self._offset - wall
        self._offset -= min(behind, _SLEW * (at - self._at)) if behind > 0.0 else behind
        self._at = at
        return at + self._offset

    def monotonic(self) -> float:
        """Return seconds of a clock that nobody sets, for rates."""
        return self._monotonic()


def next_tick(now: float, interval_s: float) -> float:
    """Return the first whole multiple of the interval after ``now``."""
    return (math.floor(now / interval_s + 1e-6) + 1) * interval_s
