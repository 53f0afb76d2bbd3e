"""The clock of a function, and limits within which it reads hostile or huge input: it reports what did not fit."""

import resource
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, Protocol

from trainguard.core.errors import KernelTraceError
from trainguard.core.ports import Timing

# For one more write of up to 120 objects, and the report of the batch.
RESERVE_MS = 15_000

_PAUSE_S = 0.05


class RemainingTime(Protocol):
    """The part of a Lambda context about the time that is left."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function is stopped."""


def lambda_timing(context: RemainingTime) -> Timing:
    """Return the timing of one invocation: conflicts back off with full jitter, work stops short of the timeout."""
    return Timing(
        now=time.time,
        pause=lambda attempt: time.sleep(_PAUSE_S * 2**attempt * secrets.randbelow(1_000) / 1_000),
        has_time=lambda: context.get_remaining_time_in_millis() > RESERVE_MS,
    )


_MIB = 1024 * 1024
# Of a function's memory; the rest is the runtime's.
USED_SHARE = 0.92
# The alarm repeats: Python drops an exception that a signal raises in a callback of its garbage collector.
REPEAT_S = 1.0


@contextmanager
def function_limits(*, memory_mib: int, seconds: float, what: str) -> Iterator[None]:
    """Raise MemoryError when memory runs short, KernelTraceError after ``seconds``, in the main thread alone."""

    def out_of_time(signal_number: int, frame: FrameType | None) -> NoReturn:
        del signal_number, frame
        raise KernelTraceError(what, f"it was not read within {max(seconds, 0.0):,.0f} s, which is what a function has")

    if seconds <= 0.0:
        out_of_time(signal.SIGALRM, None)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = int(memory_mib * _MIB * USED_SHARE)
    bounded = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    handler = signal.signal(signal.SIGALRM, out_of_time)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (bounded, hard))
        signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        signal.signal(signal.SIGALRM, handler)
