"""Searches with a job owner's regular expressions: an alarm's signal ends one of exponential time."""

import re
import signal
import threading
from time import perf_counter
from types import FrameType

from trainguard.formats.runs.scalar_lines import SlowSearchError

LONGEST_S = 1.0

MOST_S = 20.0
"""Of all searches of one poll."""


class GuardedSearch:
    """`re.Pattern.search` with a limit of time; ``longest_s`` is of one search, ``most_s`` of all, seconds."""

    def __init__(self, longest_s: float = LONGEST_S, most_s: float = MOST_S) -> None:
        self._longest_s = longest_s
        self._left_s = most_s

    def __call__(self, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
        """Search; raises SlowSearchError when it takes too long, or where nothing could end it."""
        within_s = min(self._longest_s, self._left_s)
        if within_s <= 0.0 or threading.current_thread() is not threading.main_thread():
            raise SlowSearchError
        before = signal.signal(signal.SIGALRM, _ended)
        begun = perf_counter()
        try:
            signal.setitimer(signal.ITIMER_REAL, within_s)
            return pattern.search(text)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
            self._left_s -= perf_counter() - begun


def _ended(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise SlowSearchError
