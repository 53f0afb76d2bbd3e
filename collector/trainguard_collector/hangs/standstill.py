"""When the training processes of a node have stopped: by what they append to their timelines, without any clock."""

from collections.abc import Mapping
from typing import Optional

LEAST_S = 60.0
# Nothing is waited for longer; while a checkpoint or an evaluation is open, as long.
LONGEST_S = 1_800.0

# A standstill is longer than the longest pause that ended by this ratio.
PAUSE_RATIO = 1.5

# Steps that a process must have ended: the first ones compile, tune and fill memory.
LEAST_STEPS = 5


class Standstill:
    """Decides at each look; ``is_open`` from its beginning until a process appends again.

    Pauses between appends are measured from look to look, so they are never too short.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._sizes: dict[str, int] = {}
        self._changed_at: Optional[float] = None
        self._longest_s = 0.0
        self._was_excused = False

    def look(self, at: float, sizes: "Mapping[str, int]", *, has_begun: bool, is_excused: bool) -> bool:
        """Take note of the timelines' sizes at ``at`` (seconds, monotonic); whether a standstill begins now.

        ``has_begun`` says that a process which runs has ended LEAST_STEPS steps, ``is_excused`` that one is in a
        checkpoint or an evaluation.
        """
        progressed = any(size > self._sizes.get(name, 0) for name, size in sizes.items())
        self._sizes = dict(sizes)
        self._was_excused |= is_excused
        if progressed or self._changed_at is None:
            self._end_pause(at, has_begun=has_begun)
            return False
        bound_s = LONGEST_S if is_excused else min(max(LEAST_S, PAUSE_RATIO * self._longest_s), LONGEST_S)
        if self.is_open or not has_begun or at - self._changed_at < bound_s:
            return False
        self.is_open = True
        return True

    def _end_pause(self, at: float, *, has_begun: bool) -> None:
        """Begin the next pause; of those before LEAST_STEPS the last one alone counts, as the first ones compile."""
        if self._changed_at is not None and not self._was_excused:
            pause_s = at - self._changed_at
            self._longest_s = max(self._longest_s, pause_s) if has_begun else pause_s
        self._changed_at, self._was_excused, self.is_open = at, False, False
