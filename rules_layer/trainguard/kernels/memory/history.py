"""The allocations of one device as columns, and what they say: kinds, peak, holders, growth, what could be saved."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import numpy as np

from trainguard.core.text import one_line
from trainguard.kernels.columns import Bools, Ints
from trainguard.kernels.memory.entries import (
    KINDS,
    GpuMemory,
    MemoryCurve,
    MemoryEstimate,
    MemoryFragments,
    MemoryHolder,
    MemoryPurpose,
    OutOfMemory,
    StepMemoryGrowth,
)

# Events of allocators in a recording; those behind them are counted.
MOST_EVENTS = 4_000_000

MOST_POINTS = 200
MOST_HOLDERS = 10
MOST_FRAMES = 16
LONGEST_FRAME = 200
MOST_MARKS = 500
# Steps in which gradients and optimizer state are allocated for the first time.
WARM_UP = 2


class MemoryPhase(IntEnum):
    UNKNOWN = 0
    SETUP = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4


# A stack, innermost first.
Place = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHistory:
    """N events and M allocations of one device; sizes in bytes.

    at: When each event was, in nanoseconds, or its number where ``clock`` is ``events``; int64[N], rising.
    allocated, reserved: After each event, int64[N]; ``reserved`` is -1 where unknown.
    begins_with: Allocated before the first event.
    size, phase, place: Of each allocation; int64[M]; ``place`` is an index into ``places``.
    born, died: Its events; -1 before the first, N where it is held at the end.
    context: The phase of each event, int64[N]: `Phase.UNKNOWN` where nothing says it.
    marks: For each step, how many events were before its start; int64.
    failed_at: The event of ``ran_out``; -1 without.
    """

    device: int
    source: Literal["trace", "snapshot"]
    at: Ints
    allocated: Ints
    reserved: Ints
    size: Ints
    born: Ints
    died: Ints
    phase: Ints
    context: Ints
    place: Ints
    places: Sequence[Place]
    clock: Literal["time", "events"] = "time"
    begins_with: int = 0
    marks: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    limit: int | None = None
    is_relative: bool = False
    fragments: MemoryFragments | None = None
    ran_out: OutOfMemory | None = None
    failed_at: int = -1
    expandable_segments: bool | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.at)


def memory_entry(history: MemoryHistory) -> GpuMemory:
    kinds = kinds_of(history)
    held = by_kind(history, kinds)
    peak = int(np.argmax(history.allocated))
    knows_reserved = bool((history.reserved >= 0).all())
    moment = peak if history.failed_at < 0 else history.failed_at
    holders = holders_of(history, kinds, moment)
    rest = holders[MOST_HOLDERS:]
    return GpuMemory(
        device=history.device,
        source=history.source,
        clock=history.clock,
        limit=history.limit,
        is_relative=history.is_relative,
        peak=int(history.allocated[peak]),
        peak_at_ns=int(history.at[peak] - history.at[0]),
        peak_reserved=int(history.reserved[peak]) if knows_reserved else None,
        most_reserved=int(history.reserved.max()) if knows_reserved else None,
        moment="peak" if history.failed_at < 0 else "failure",
        held=int(history.allocated[moment]),
        kinds={kind.value: int(held[place, moment]) for place, kind in enumerate(KINDS)},
        curve=curve_of(history.at, history.allocated, history.reserved if knows_reserved else None, held),
        holders=holders[:MOST_HOLDERS],
        holders_left_out=len(rest),
        holders_left_out_bytes=sum(each.bytes for each in rest),
        fragments=history.fragments,
        estimates=estimates_of(history, kinds, held),
        growth=growth_of(history),
        ran_out=history.ran_out,
        expandable_segments=history.expandable_segments,
        counts={"events": len(history), **{what: count for what, count in history.counts.items() if count}},
    )


def _stretches(history: MemoryHistory) -> Ints:
    """Return for each event its stretch of one phase: it lasts until an event is of another one, or a step begins."""
    last = np.maximum.accumulate(np.where(history.context > 0, np.arange(len(history)), 0))
    filled = history.context[last]
    changes = np.diff(filled, prepend=filled[:1]) != 0
    changes[history.marks[history.marks < len(history)]] = True
    counted: Ints = np.cumsum(changes)
    return counted


def kinds_of(history: MemoryHistory) -> Ints:
    """Return for what each allocation is held, as an index into `KINDS`, by phase and by how long it is held.

    What is freed in the stretch of a phase that allocates it is workspace. What backward leaves is gradients, what the
    optimizer leaves is its state, what forward leaves for backward is activations; what forward leaves and nothing
    frees, although three stretches follow, is unattributed.
    """
    stretch, count = _stretches(history), len(history)
    begun = np.where(history.born >= 0, stretch[np.maximum(history.born, 0)], -1)
    ended = np.where(history.died < count, stretch[np.minimum(history.died, count - 1)], stretch[-1] + 1)
    kept = (history.died == count) & (begun < int(stretch[-1]) - 2)
    left = {
        MemoryPhase.UNKNOWN: MemoryPurpose.UNATTRIBUTED,
        MemoryPhase.SETUP: MemoryPurpose.PARAMETERS,
        MemoryPhase.FORWARD: MemoryPurpose.ACTIVATIONS,
        MemoryPhase.BACKWARD: MemoryPurpose.GRADIENTS,
        MemoryPhase.OPTIMIZER: MemoryPurpose.OPTIMIZER_STATE,
    }
    kinds = np.array([KINDS.index(left[phase]) for phase in MemoryPhase], dtype=np.int64)[history.phase]
    kinds[(history.phase == MemoryPhase.FORWARD) & kept] = KINDS.index(MemoryPurpose.UNATTRIBUTED)
    passing = (history.phase != MemoryPhase.UNKNOWN) & (begun == ended) & ~_perhaps_gradients(history, stretch, ended)
    kinds[passing] = KINDS.index(MemoryPurpose.WORKSPACE)
    return kinds


def _perhaps_gradients(history: MemoryHistory, stretch: Ints, ended: Ints) -> Bools:
    """Return what backward allocates and somebody unknown frees when backward allocates nothing more.

    An optimizer that allocates nothing leaves no sign of where backward ends.
    """
    last = np.full(int(stretch[-1]) + 2, -1, dtype=np.int64)
    born = history.born[history.born >= 0]
    np.maximum.at(last, stretch[born], born)
    freed_by = history.context[np.minimum(history.died, len(history) - 1)]
    found: Bools = (
        (history.phase == MemoryPhase.BACKWARD) & (history.died > last[ended]) & (freed_by == MemoryPhase.UNKNOWN)
    )
    return found


def by_kind(history: MemoryHistory, kinds: Ints) -> Ints:
    """Return the bytes of each of `KINDS` after each event; together what is allocated, so none is negative."""
    held = np.array([_held(history, kinds == place) for place in range(len(KINDS))])
    other = KINDS.index(MemoryPurpose.UNATTRIBUTED)
    left = history.allocated.copy()
    for place in range(len(KINDS)):
        if place != other:
            held[place] = np.minimum(held[place], left)
            left = left - held[place]
    held[other] = left
    return held


def curve_of(at: Ints, allocated: Ints, reserved: Ints | None, held: Ints) -> MemoryCurve:
    """Return memory over time; ``held`` are the bytes of each of `KINDS` at each of the N times, int64[K, N]."""
    moments = chosen_moments(at, allocated)
    return MemoryCurve(
        at_ns=(at[moments] - at[0]).tolist(),
        allocated=allocated[moments].tolist(),
        reserved=[] if reserved is None else reserved[moments].tolist(),
        kinds={kind.value: held[place, moments].tolist() for place, kind in enumerate(KINDS)},
    )


def chosen_moments(at: Ints, allocated: Ints) -> Ints:
    """Return of each of 200 equal parts of the time the event with most memory: the first of several."""
    span = int(at[-1] - at[0]) + 1
    # Whole numbers alone: times of the epoch in nanoseconds, two hundredfold, do not fit.
    width = -(-span // MOST_POINTS)
    part = (at - at[0]) // width
    order = np.lexsort((np.arange(len(at)), -allocated, part))
    _, first = np.unique(part[order], return_index=True)
    return order[first]


def holders_of(history: MemoryHistory, kinds: Ints, moment: int) -> list[MemoryHolder]:
    """Return what is held after an event by kind and place, the largest first."""
    alive = np.flatnonzero((history.born <= moment) & (history.died > moment))
    key = kinds[alive] * max(len(history.places), 1) + history.place[alive]
    groups, place = np.unique(key, return_inverse=True)
    total = np.zeros(len(groups), dtype=np.int64)
    np.add.at(total, place, history.size[alive])
    blocks = np.bincount(place, minlength=len(groups))
    order = np.argsort(-total, kind="stable")
    return [
        MemoryHolder(
            kind=KINDS[int(groups[each]) // max(len(history.places), 1)].value,
            bytes=int(total[each]),
            blocks=int(blocks[each]),
            where=shown_place(history.places[int(groups[each]) % max(len(history.places), 1)]),
        )
        for each in order.tolist()
    ]


def shown_place(place: Place) -> list[str]:
    return [one_line(frame, LONGEST_FRAME) for frame in place[:MOST_FRAMES]]


def estimates_of(history: MemoryHistory, kinds: Ints, held: Ints) -> list[MemoryEstimate]:
    """Return what could be saved at most: when an allocation failed all that a change acts on, as all else did fit.

    Of a peak it is the peak, less the most that is left at any moment.
    """
    allocated, failed = history.allocated, history.failed_at
    moment = int(np.argmax(allocated)) if failed < 0 else failed
    activations = held[KINDS.index(MemoryPurpose.ACTIVATIONS)]
    passing = (kinds == KINDS.index(MemoryPurpose.WORKSPACE)) & np.isin(
        history.phase, (MemoryPhase.FORWARD, MemoryPhase.BACKWARD)
    )
    of_batch = np.minimum(activations + _held(history, passing), allocated)
    found = []
    changes: tuple[tuple[Literal["recompute", "half_batch"], Ints, Ints], ...] = (
        ("recompute", activations, activations),
        ("half_batch", of_batch, of_batch // 2),
    )
    for change, acts_on, saved in changes:
        saves = int(saved[moment]) if failed >= 0 else int(allocated[moment]) - int((allocated - saved).max())
        if saves > 0:
            found.append(MemoryEstimate(change=change, acts_on=int(acts_on[moment]), saves_at_most=saves))
    return found


def _held(history: MemoryHistory, mask: Bools) -> Ints:
    """Return the bytes of some allocations after each event."""
    held = np.zeros(len(history) + 1, dtype=np.int64)
    np.add.at(held, np.maximum(history.born[mask], 0), history.size[mask])
    np.add.at(held, history.died[mask], -history.size[mask])
    return np.cumsum(held[:-1], dtype=np.int64)


def growth_of(history: MemoryHistory) -> StepMemoryGrowth | None:
    """Return memory at the start of each step behind the first two; None of fewer than four."""
    marks = history.marks[WARM_UP:][-MOST_MARKS:]
    if len(marks) < 4:
        return None
    before = np.concatenate((np.array([history.begins_with]), history.allocated))
    kept = (history.born >= marks[0]) & (history.born < marks[-2]) & (history.died >= marks[-1])
    where, size = _largest(history, kept)
    return StepMemoryGrowth(at_steps=before[marks].tolist(), kept=size, where=where)


def _largest(history: MemoryHistory, mask: Bools) -> tuple[list[str], int]:
    if not mask.any():
        return [], 0
    total = np.zeros(len(history.places), dtype=np.int64)
    np.add.at(total, history.place[mask], history.size[mask])
    most = int(np.argmax(total))
    return shown_place(history.places[most]), int(total[most])
