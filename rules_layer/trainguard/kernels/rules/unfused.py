"""Operators that would be one kernel, each not slow itself: attention by single products, chains over a tensor."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Bools, Ints, Kind
from trainguard.kernels.entries import OperatorEntry
from trainguard.kernels.formulas.moved import POINTWISE
from trainguard.kernels.operators import BYTES_OF, CACHED
from trainguard.kernels.rollup_entries import PeaksEntry
from trainguard.kernels.rules.finding import Judged
from trainguard.kernels.times.intervals import merged

MATH_ATTENTION = "aten::_scaled_dot_product_attention_math"
SHORTEST_CHAIN = 3
SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True)
class Chains:
    """Chains of operators, all that are alike: their names, the GPU's rows, and what one kernel would save."""

    names: str
    shapes: str
    rows: Ints
    saved_ns: float


def math_attention(judged: Judged) -> Ints:
    """Return the GPU's rows of attention that runs as single operators."""
    trace = judged.trace
    wanted = [place for place, name in enumerate(trace.names) if name == MATH_ATTENTION]
    mine = np.isin(trace.operators.name, np.array(wanted, dtype=np.int64))
    rows = np.flatnonzero(judged.in_window & (trace.gpu.kind == Kind.COMPUTE) & (judged.window.launch >= 0))
    calls = judged.window.launch[rows]
    inside: Bools = np.zeros(len(rows), dtype=np.bool_)
    for lane in np.unique(trace.operators.lane[mine]).tolist():
        own = mine & (trace.operators.lane == lane)
        spans = merged(trace.operators.start[own], trace.operators.end[own])
        started = trace.launches.start[calls]
        inside |= (trace.launches.lane[calls] == lane) & (spans.within(started, started + 1) > 0)
    return rows[inside]


@dataclass(frozen=True, slots=True)
class _Link:
    """A call of an operator on single elements: how many it has, and how many tensors of that size it moves."""

    entry: OperatorEntry
    elements: int
    tensors: float
    row: int


def chains_of(judged: Judged, peaks: PeaksEntry) -> list[Chains]:
    """Return chains of operators on single elements over tensors that no cache holds, those first that would save most.

    A link reads what the one before it wrote: one kernel would move two tensors less for each link but the first.
    """
    links = _links(judged, peaks)
    found: dict[str, list[list[_Link]]] = {}
    for chain in _runs(judged, links):
        if len(chain) >= SHORTEST_CHAIN:
            found.setdefault(_names(chain), []).append(chain)
    every = [_chains(judged, names, alike) for names, alike in found.items()]
    return sorted(every, key=lambda each: -each.saved_ns)


def _links(judged: Judged, peaks: PeaksEntry) -> Mapping[int, _Link]:
    links = {}
    for called in judged.operators:
        entry, size = called.entry, BYTES_OF.get(called.entry.precision, 0)
        held = entry.name in POINTWISE and (entry.held_bytes or 0) > CACHED * peaks.cache_mb * 1e6
        held &= entry.unrated != "not_moved"
        if held and size and entry.flops and entry.bytes and len(called.rows) == entry.count:
            tensors = entry.bytes / (entry.flops * size)
            for row in called.rows.tolist():
                links[row] = _Link(entry, entry.flops // entry.count, tensors, row)
    return links


def _runs(judged: Judged, links: Mapping[int, _Link]) -> list[list[_Link]]:
    """Return links that follow each other."""
    gpu = judged.trace.gpu
    rows = np.flatnonzero(judged.in_window & (gpu.kind <= Kind.COMMUNICATION))
    order = rows[np.lexsort((gpu.start[rows], gpu.lane[rows], gpu.device[rows]))]
    linked = np.zeros(len(gpu), dtype=np.bool_)
    linked[list(links)] = True
    runs: list[list[_Link]] = []
    last = -1
    for place in np.flatnonzero(linked[order]).tolist():
        link = links[int(order[place])]
        if last == place - 1 and runs and _follows(judged, runs[-1][-1], link):
            runs[-1].append(link)
        else:
            runs.append([link])
        last = place
    return runs


def _follows(judged: Judged, one: _Link, other: _Link) -> bool:
    """Whether a link may read what the other wrote; the same operator again is more likely one over another tensor."""
    gpu, rows = judged.trace.gpu, (one.row, other.row)
    same_stream = len({(int(gpu.lane[row]), int(gpu.device[row])) for row in rows}) == 1
    return same_stream and one.elements == other.elements and one.entry.name != other.entry.name


def _names(chain: list[_Link]) -> str:
    names = [link.entry.name for link in chain]
    return ", ".join(names[:SHOWN_NAMES]) + (", …" if len(names) > SHOWN_NAMES else "")


def _chains(judged: Judged, names: str, alike: list[list[_Link]]) -> Chains:
    gpu = judged.trace.gpu
    saved = 0.0
    for chain in alike:
        rows = np.array([link.row for link in chain])
        moved = sum(link.tensors for link in chain)
        saved += float((gpu.end[rows] - gpu.start[rows]).sum()) * min(2 * (len(chain) - 1) / moved, 1.0)
    every = np.array([link.row for chain in alike for link in chain], dtype=np.int64)
    return Chains(names, alike[0][0].entry.shapes, every, saved)
