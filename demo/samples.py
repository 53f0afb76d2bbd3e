"""What the samplers and hooks of a job saw, as arrays: the parts of a recording."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

MICROSECONDS = 1_000_000
MINUTE_S = 60
MINUTE_US = MINUTE_S * MICROSECONDS
# Each group is read by itself, and has its own timestamp.
GROUPS = ("cpu", "gpu", "memory", "i/o", "network")

Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSamples:
    """N snapshots of a node with C cores and G GPUs, over M minutes; times in microseconds since the recording's start.

    ``ticks_us`` int64[N], ``lags_us`` int32[N, 5] by `GROUPS`. ``jiffies``, integer[N], are clock ticks (10 ms) since
    the last snapshot, of which each core was ``busy`` or in ``io_wait``, integer[N, C]: at 500 ms a core can be 2 or 4
    % busy, never 3 %. ``gpu`` and ``gpu_memory``, uint8[N, G], are percents, ``host_memory``, uint16[N], hundredths of
    a percent. ``disk``, int32[N, 3], are operations, pages of 4 KiB read and written; ``network``, int32[N, 2], KiB
    received and sent, since the last snapshot. ``uploads_us`` is int64[M].
    """

    ticks_us: NDArray[np.int64]
    lags_us: NDArray[np.int32]
    jiffies: Integers
    busy: Integers
    io_wait: Integers
    gpu: NDArray[np.uint8]
    gpu_memory: NDArray[np.uint8]
    host_memory: NDArray[np.uint16]
    disk: NDArray[np.int32]
    network: NDArray[np.int32]
    uploads_us: NDArray[np.int64]

    @property
    def minutes(self) -> range:
        return range(int(self.ticks_us[0] // MINUTE_US), int(self.ticks_us[-1] // MINUTE_US) + 1)

    def rows(self, minute: int) -> slice:
        first, last = np.searchsorted(self.ticks_us, [minute * MINUTE_US, (minute + 1) * MINUTE_US])
        return slice(int(first), int(last))

    def until(self, stop_us: int) -> "NodeSamples":
        """Return what was sampled before ``stop_us``; what had not been uploaded by then is, one second later."""
        count = int(np.searchsorted(self.ticks_us, stop_us))
        sampled = {name: column[:count] for name, column in columns(self).items() if name != "uploads_us"}
        minutes = int(self.ticks_us[count - 1] // MINUTE_US) - self.minutes.start + 1
        return NodeSamples(uploads_us=np.minimum(self.uploads_us[:minutes], stop_us + MICROSECONDS), **sampled)


@dataclass(frozen=True, slots=True)
class Phase:
    """A kind of framework event: its phase, its name, and what its arguments hold beside the process id."""

    phase: str
    name: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTimeline:
    """E framework events of one process, ordered by their end; times in microseconds since the recording's start.

    ``opened_us`` is when its hook opened the first file. ``starts_us`` int64[E], ``durations_us`` int32[E]; ``phases``,
    uint8[E], indexes `Recording.phases`; ``steps``, int32[E], is -1 without a step.
    """

    node: int
    pid: int
    opened_us: int
    starts_us: NDArray[np.int64]
    durations_us: NDArray[np.int32]
    phases: NDArray[np.uint8]
    steps: NDArray[np.int32]

    def until(self, stop_us: int) -> "ProcessTimeline":
        ended = self.starts_us + self.durations_us < stop_us
        return replace(self, **{name: column[ended] for name, column in columns(self).items()})


def columns(values: NodeSamples | ProcessTimeline) -> dict[str, Any]:
    named = {item.name: getattr(values, item.name) for item in fields(values)}
    return {name: value for name, value in named.items() if isinstance(value, np.ndarray)}
