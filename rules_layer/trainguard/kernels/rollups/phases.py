"""The part of training that launched a row of the GPU, and the module or range that did."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from trainguard.kernels.columns import Ints, Numbers, Rows, Trace
from trainguard.kernels.times.intervals import Spans, innermost, innermost_rows, inside_rows, merged
from trainguard.kernels.times.metrics import RankMetrics

ENGINE = "autograd::engine::evaluate_function"
_NODE = re.compile(rf"{ENGINE}|\w*Backward\d*$")


def forward_points(trace: Trace, calls: Ints) -> tuple[Numbers, Ints]:
    """Return for each call its thread and time; of one that computes a gradient, those of the forward operator.

    The call keeps its own where several threads use the node's number, as the one that made it is unknown then.
    """
    lanes, times = trace.launches.lane[calls], trace.launches.start[calls]
    numbered = np.flatnonzero(trace.operator_sequences >= 0)
    is_node = np.isin(trace.operators.name[numbered], trace.numbers_of(_NODE.match))
    if not is_node.any() or is_node.all():
        return lanes, times
    nodes, made_by = numbered[is_node], _Forward(trace, numbered[~is_node])
    beside = numbered[np.isin(trace.operators.lane[numbered], np.unique(trace.operators.lane[nodes]))]
    found = innermost_rows(trace.operators, beside, lanes, times)
    node = np.where(np.isin(found, nodes), found, -1)
    forward = np.where(node >= 0, made_by.of(np.maximum(node, 0)), -1)
    known = forward >= 0
    lanes[known], times[known] = trace.operators.lane[forward[known]], trace.operators.start[forward[known]]
    return lanes, times


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


Phase = Literal["forward", "backward", "optimizer", "unknown"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer", "unknown")
FORWARD, BACKWARD, OPTIMIZER, UNKNOWN = range(len(PHASES))

# What PyTorch's profiler writes before a module's class and number, with `with_stack` or `with_modules`.
MODULE = "nn.Module: "

# Modules or ranges that are searched for those around a launch.
MOST_RANGES = 1_000_000

DEEPEST = 64
_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)#|(?i:\W*optimi[sz]er(?:[-_. ]?step)?\W*$)")
_BACKWARD = re.compile(r"(?i)\W*(?:backward|bwd)(?:[-_ ]?(?:pass|compute|step))?\W*$")
_FORWARD = re.compile(r"(?i)\W*(?:forward|fwd)(?:[-_ ]?(?:pass|compute|step))?\W*$")
_GRAPH = re.compile(r"GraphLaunch")
_NO_RANGE = re.compile(r"ProfilerStep|Optimizer\.|enumerate\(DataLoader\)|nccl:|DistributedDataParallel\.")


def phases_of(metrics: RankMetrics) -> Ints:
    """Return for each GPU row the index into `PHASES` of what launched it.

    PyTorch's engine runs the backward pass in operators of its own, and annotates the optimizer; other programs name
    these ranges. Without a backward pass or a named range nothing is known, nor of a graph that one call launches.
    """
    trace, launch = metrics.trace, metrics.window.launch
    found = np.full(len(trace.gpu), UNKNOWN, dtype=np.int64)
    calls = trace.launches
    if not len(calls):
        return found
    graphs = np.isin(calls.name, trace.numbers_of(_GRAPH.match))
    known = np.flatnonzero((launch >= 0) & ~graphs[np.maximum(launch, 0)])
    lanes, at = calls.lane[launch[known]], calls.start[launch[known]]
    in_engine = np.isin(trace.operators.name, trace.numbers_of(lambda name: name.startswith(ENGINE)))
    backward = _ranges(trace, _BACKWARD).holds(at) | inside_rows(trace.operators, in_engine, lanes, at)
    forward, optimizer = (_ranges(trace, pattern).holds(at) for pattern in (_FORWARD, _OPTIMIZER))
    default = FORWARD if backward.any() else UNKNOWN
    found[known] = np.select((optimizer, backward, forward), (OPTIMIZER, BACKWARD, FORWARD), default)
    return found


def _ranges(trace: Trace, pattern: re.Pattern[str]) -> Spans:
    mine = np.isin(trace.annotations.name, trace.numbers_of(pattern.match))
    return merged(trace.annotations.start[mine], trace.annotations.end[mine])


def modules_of(metrics: RankMetrics) -> tuple[list[str], Ints]:
    """Return paths of modules, ``GPT_0/Block_3/Linear_12``, and for each GPU row the index of its own; -1 without one.

    A module is known where PyTorch records it, and then of its forward pass; without modules, named ranges count. What
    computes a gradient belongs to the module whose operator made the node.
    """
    trace, launch = metrics.trace, metrics.window.launch
    ranges = trace.modules if len(trace.modules) else _own_ranges(trace)
    found = np.full(len(trace.gpu), -1, dtype=np.int64)
    if not 0 < len(ranges) <= MOST_RANGES:
        return [], found
    paths = _Paths(trace.names)
    known = np.flatnonzero((launch >= 0) & metrics.in_window)
    lanes, times = forward_points(trace, launch[known])
    for lane in np.unique(ranges.lane).tolist():
        mine = np.flatnonzero(ranges.lane == lane)
        mine = mine[np.lexsort((-ranges.end[mine], ranges.start[mine]))]
        here = np.flatnonzero(lanes == lane)
        around, parent = innermost(ranges.start[mine], ranges.end[mine], times[here])
        inside = np.flatnonzero(around >= 0)
        places, which = np.unique(around[inside], return_inverse=True)
        numbers = paths.numbers(places.tolist(), parent.tolist(), ranges.name[mine].tolist())
        found[known[here[inside]]] = np.array(numbers, dtype=np.int64)[which]
    return paths.texts, found


class _Paths:
    """Paths of nested ranges by number; what lies deeper than `DEEPEST` belongs to the last one above."""

    def __init__(self, names: Sequence[str]) -> None:
        self.texts: list[str] = []
        self._names = names
        self._depths: list[int] = []
        self._known: dict[tuple[int, int], int] = {}

    def numbers(self, places: Iterable[int], parent: Sequence[int], names: Sequence[int]) -> list[int]:
        made = {-1: -1}

        def number(place: int) -> int:
            chain = []
            while place not in made:
                chain.append(place)
                place = parent[place]
            for each in reversed(chain):
                made[each] = self._below(made[parent[each]], names[each])
            return made[chain[0]] if chain else made[place]

        return [number(place) for place in places]

    def _below(self, above: int, name: int) -> int:
        depth = 0 if above < 0 else self._depths[above] + 1
        if depth >= DEEPEST:
            return above
        if (above, name) not in self._known:
            text = self._names[name].removeprefix(MODULE)
            self._known[above, name] = len(self.texts)
            self.texts.append(text if above < 0 else f"{self.texts[above]}/{text}")
            self._depths.append(depth)
        return self._known[above, name]


def _own_ranges(trace: Trace) -> Rows:
    marks = trace.annotations
    kept = ~np.isin(marks.name, trace.numbers_of(_NO_RANGE.match))
    return Rows(
        start=marks.start[kept],
        end=marks.end[kept],
        name=marks.name[kept],
        lane=marks.lane[kept],
        correlation=marks.correlation[kept],
        operator=marks.operator[kept],
    )
