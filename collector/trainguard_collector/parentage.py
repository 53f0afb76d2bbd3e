"""Children that end with the process that started them, however that ends."""

import signal
from contextlib import suppress
from typing import Any

_PR_SET_PDEATHSIG = 1

_LIBC: Any = None
with suppress(Exception):
    import ctypes  # some images have a Python without it

    _LIBC = ctypes.CDLL(None)


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends; for ``preexec_fn``."""
    signal_when_parent_ends(signal.SIGKILL)


def signal_when_parent_ends(number: int) -> None:
    """Have the kernel send this process a signal when the thread that started it ends, where it can."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
