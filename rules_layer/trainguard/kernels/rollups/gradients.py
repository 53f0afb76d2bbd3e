"""Whose gradient a launch computes: autograd's sequence numbers join the operators of both passes.

An operator that makes a node of the graph has the node's number, and so have the operators around it; the backward
pass calls the node by that number. Sources: ``Sequence number`` in Kineto's traces, ``seq`` of `emit_nvtx`, and
``generateForwardBackwardLinks`` in PyTorch's ``torch/csrc/profiler/collection.cpp``.
"""

import re

import numpy as np

from trainguard.kernels.columns import Bools, Ints, Numbers, Trace
from trainguard.kernels.times.intervals import innermost

ENGINE = "autograd::engine::evaluate_function"
_NODE = re.compile(rf"{ENGINE}|\w*Backward\d*$")


def forward_points(trace: Trace, calls: Ints) -> tuple[Numbers, Ints]:
    """Return for each call its thread and time; of one that computes a gradient, those of the forward operator.

    The call keeps its own where several threads use the node's number, as the one that made it is unknown then.
    """
    lanes, times = trace.launches.lane[calls], trace.launches.start[calls]
    numbered = np.flatnonzero(trace.operator_sequences >= 0)
    is_node = _nodes(trace, numbered)
    if not is_node.any() or is_node.all():
        return lanes, times
    nodes, made_by = numbered[is_node], _Forward(trace, numbered[~is_node])
    node = np.full(len(calls), -1, dtype=np.int64)
    for lane in np.unique(trace.operators.lane[nodes]).tolist():
        mine = numbered[trace.operators.lane[numbered] == lane]
        mine = mine[np.lexsort((-trace.operators.end[mine], trace.operators.start[mine]))]
        here = np.flatnonzero(lanes == lane)
        place, _ = innermost(trace.operators.start[mine], trace.operators.end[mine], times[here])
        found = np.where(place >= 0, mine[np.maximum(place, 0)], -1)
        node[here] = np.where(np.isin(found, nodes), found, -1)
    forward = np.where(node >= 0, made_by.of(np.maximum(node, 0)), -1)
    known = forward >= 0
    lanes[known], times[known] = trace.operators.lane[forward[known]], trace.operators.start[forward[known]]
    return lanes, times


def _nodes(trace: Trace, rows: Ints) -> Bools:
    """Return which operators are nodes of the backward pass."""
    named = [place for place, name in enumerate(trace.names) if _NODE.match(name)]
    found: Bools = np.isin(trace.operators.name[rows], np.array(named, dtype=np.int64))
    return found


class _Forward:
    """Operators of the forward pass by number: the last one to have it made the node."""

    def __init__(self, trace: Trace, rows: Ints) -> None:
        self._trace = trace
        sequence, start = trace.operator_sequences[rows], trace.operators.start[rows]
        self._rows = rows[np.lexsort((start, sequence))]
        self._numbers = trace.operator_sequences[self._rows]
        lanes = trace.operators.lane[self._rows]
        first = np.flatnonzero(np.diff(self._numbers, prepend=-1))  # all numbers are from 0 on
        several = np.minimum.reduceat(lanes, first) < np.maximum.reduceat(lanes, first) if len(first) else first
        self._shared = self._numbers[first[several]]

    def of(self, nodes: Ints) -> Ints:
        """Return for each node the operator that made it; -1 where that is not known."""
        wanted = self._trace.operator_sequences[nodes]
        place = np.searchsorted(self._numbers, wanted, side="right") - 1
        found = self._rows[np.maximum(place, 0)]
        sure = (place >= 0) & (self._trace.operator_sequences[found] == wanted) & ~np.isin(wanted, self._shared)
        sure &= self._trace.operators.start[found] < self._trace.operators.start[nodes]
        return np.where(sure, found, -1)
