"""A node's view that holds little: what is large of it is read when a rule asks for it."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np

from trainguard.rules.rule_inputs import NodeView
from trainguard.telemetry.snapshots import FloatArray, IntArray

_READ_LATE = frozenset({"kept_times", "kept_gpu_utilization", "kept_gpu_memory", "kept_cpu_mean", "gpu_histogram"})


class LateView(NodeView):
    """A view without kept points, for jobs whose nodes do not all fit into memory; its arrays cannot be written to.

    Parameters
    ----------
    view : NodeView
        What it is a view of.
    closed : bool
        In place of what ``view`` says.
    again : callable
        Returns the whole view once more; called at each access to kept points.
    """

    __slots__ = ("_again", "counts")

    _again: Callable[[], NodeView]
    counts: IntArray

    def __init__(self, view: NodeView, *, closed: bool, again: Callable[[], NodeView]) -> None:
        held = {each.name: getattr(view, each.name) for each in fields(NodeView) if each.name not in _READ_LATE}
        counts = view.counts if isinstance(view, LateView) else view.gpu_histogram.astype(np.uint32)
        held |= {"ever_active": _fixed(view.ever_active), "closed": closed, "_again": again, "counts": counts}
        for name, value in held.items():
            object.__setattr__(self, name, value)

    def as_of(self, *, closed: bool) -> "LateView":
        """Return the view for a stream that has ended, or not."""
        return self if closed is self.closed else LateView(self, closed=closed, again=self._again)

    @property
    def kept_times(self) -> FloatArray:
        """As of `NodeView`."""
        return _fixed(self._again().kept_times)

    @property
    def kept_gpu_utilization(self) -> FloatArray:
        """As of `NodeView`."""
        return _fixed(self._again().kept_gpu_utilization)

    @property
    def kept_gpu_memory(self) -> FloatArray:
        """As of `NodeView`."""
        return _fixed(self._again().kept_gpu_memory)

    @property
    def kept_cpu_mean(self) -> FloatArray:
        """As of `NodeView`."""
        return _fixed(self._again().kept_cpu_mean)

    @property
    def gpu_histogram(self) -> IntArray:
        """As of `NodeView`."""
        return _fixed(self.counts.astype(np.int64))


def _fixed(values: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> "np.ndarray":
    view = values.view()
    view.flags.writeable = False
    return view
