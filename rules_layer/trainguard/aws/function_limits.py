"""Limits within which a function reads hostile or huge input: it reports what did not fit, and is not killed."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from trainguard.core.errors import KernelTraceError

_MIB = 1024 * 1024
USED_SHARE = 0.92
"""Of a function's memory; the rest is the runtime's."""
REPEAT_S = 1.0
"""The alarm repeats: Python drops an exception that a signal raises in a callback of its garbage collector."""


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
