"""NVML's bindings of a machine with one GPU, which is busy while the training computes.

The file that ``DEMO_DEVICE`` names has two doubles: seconds computed, and since when. Utilization is the share of about
the last second.
"""

import os
import struct
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

_OVER_S = 1.0
_seen: deque[tuple[float, float]] = deque([(time.monotonic(), 0.0)])


def nvmlInit() -> None: ...


def nvmlDeviceGetCount() -> int:
    return 1


def nvmlDeviceGetHandleByIndex(number: int) -> int:
    return number


def nvmlDeviceGetUtilizationRates(_: int) -> SimpleNamespace:
    """Return the share of the last second, in percent."""
    now = time.monotonic()
    computed_s, since = struct.unpack("dd", Path(os.environ["DEMO_DEVICE"]).read_bytes())
    computed_s += now - since if since else 0.0
    _seen.append((now, computed_s))
    while len(_seen) > 2 and now - _seen[1][0] >= _OVER_S:
        _seen.popleft()
    began, before = _seen[0]
    share = (computed_s - before) / (now - began) if now > began else 0.0
    return SimpleNamespace(gpu=round(100.0 * min(max(share, 0.0), 1.0)), memory=0)
