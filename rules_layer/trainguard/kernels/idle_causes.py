"""Why a GPU is idle: each gap of it split by what the host did until it had launched the next work.

A gap ends with the next row of the GPU, on whichever stream. Until the call that launched this row ends, the GPU waits
for the host; from then on the host is no cause: the GPU's own latency, an event of another stream, a full queue. Of the
host's part, the time in which it waits for the data loader is the loader's, as a host that waits for data launches
nothing. This is the split of HolisticTraceAnalysis' idle breakdown (host wait, kernel wait, other), made for the GPU
and not for each of its streams, and with the loader as a cause of its own.
"""

from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Bools, Ints, Trace
from trainguard.kernels.gpu_times import GpuTime
from trainguard.kernels.intervals import Spans, difference, gaps, intersection, merged, union
from trainguard.kernels.window import Window


@dataclass(frozen=True, slots=True)
class IdleCauses:
    """The gaps of one GPU by cause: together they are all of its idle time in the window."""

    loader: Spans
    host: Spans
    other: Spans

    @property
    def idle(self) -> Spans:
        """All of them."""
        return union(self.loader, self.host, self.other)


def idle_causes(trace: Trace, window: Window, gpu: GpuTime, loading: Spans) -> IdleCauses:
    """Return the gaps of a GPU by cause.

    Parameters
    ----------
    trace : Trace
    window : Window
    gpu : GpuTime
        One of the trace's.
    loading : Spans
        When the host waits for the data loader.
    """
    idle = gaps(gpu.busy, window.start, window.end)
    launched, known = _launched_at(trace, window, gpu.number, idle)
    until_launch = merged(idle.start, np.clip(launched, idle.start, idle.end))
    # Where nobody knows when the next work was launched, a wait for data still explains the gap, and nothing else does.
    unknown = Spans(idle.start[~known], idle.end[~known])
    loader = intersection(loading, union(until_launch, unknown))
    host = difference(until_launch, loader)
    return IdleCauses(loader, host, difference(idle, union(loader, host)))


def _launched_at(trace: Trace, window: Window, number: int, idle: Spans) -> tuple[Ints, Bools]:
    """Return for each gap when the call ended that launched the work behind it, and whether that is known.

    Where no work follows, nothing was launched in the whole gap, if the trace has launches of this GPU at all.
    """
    mine = np.flatnonzero(trace.gpu.device == number)
    mine = mine[np.argsort(trace.gpu.rows.start[mine], kind="stable")]
    place = np.searchsorted(trace.gpu.rows.start[mine], idle.end, side="left")
    follows = place < len(mine)
    launch = np.full(len(idle.end), -1, dtype=np.int64)
    launch[follows] = window.launch[mine[place[follows]]]
    called = launch >= 0
    ended = idle.start.copy()
    ended[called] = trace.launches.end[launch[called]]
    nothing_follows = ~follows & bool((window.launch[mine] >= 0).any())
    ended[nothing_follows] = idle.end[nothing_follows]
    return ended, called | nothing_follows
