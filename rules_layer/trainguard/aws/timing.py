"""The clock of a function for the core."""

import secrets
import time
from typing import Protocol

from trainguard.core.ports import Timing

RESERVE_MS = 15_000
"""For one more write of up to 120 objects, and the report of the batch."""

_PAUSE_S = 0.05


class RemainingTime(Protocol):
    """The part of a Lambda context about the time that is left."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function is stopped."""
        ...


def lambda_timing(context: RemainingTime) -> Timing:
    """Return the timing of one invocation: conflicts back off with full jitter, work stops short of the timeout."""
    return Timing(
        now=time.time,
        pause=lambda attempt: time.sleep(_PAUSE_S * 2**attempt * secrets.randbelow(1_000) / 1_000),
        has_time=lambda: context.get_remaining_time_in_millis() > RESERVE_MS,
    )
