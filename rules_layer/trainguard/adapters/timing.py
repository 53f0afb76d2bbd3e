"""The clock of a function, as the core is given it."""

import secrets
import time
from typing import Protocol

from trainguard.ports import Timing

RESERVE_MS = 15_000
"""What one more write of up to 120 objects, and the report of the batch, may take."""

_PAUSE_S = 0.05


class RemainingTime(Protocol):
    """What a Lambda context says of the time that is left."""

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
