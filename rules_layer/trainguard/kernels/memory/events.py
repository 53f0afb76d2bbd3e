"""Events of allocators in a trace, to histories: who allocates is the operator and the function around the event."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from trainguard.kernels.columns import Ints, MemoryRows, Rows, Trace
from trainguard.kernels.memory.history import MOST_EVENTS, MOST_FRAMES, MemoryHistory, MemoryPhase, Place

_STEP = re.compile(r"ProfilerStep#?\s*\d+")
_LOADER = "enumerate(DataLoader)"
_BACKWARD = re.compile(r"autograd::engine::evaluate_function|\w+Backward\d*\b|.*AccumulateGrad")
_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)#")

# Operators, annotations and functions of a thread that are looked at; who allocates behind them is unknown.
MOST_NESTED = 2_000_000

# So many of what is around an operator are looked at.
DEEPEST = 127


def histories_of(trace: Trace, step_starts: Ints) -> list[MemoryHistory]:
    """Return the history of each GPU that events are of; of the host where they are of no GPU."""
    rows = trace.memory
    devices = [device for device in np.unique(rows.device).tolist() if device >= 0] or [-1] * bool(len(rows))
    return [_history(trace, device, step_starts) for device in devices]


def _history(trace: Trace, device: int, step_starts: Ints) -> MemoryHistory:
    rows = trace.memory
    chosen = np.flatnonzero(rows.device == device)
    chosen = chosen[np.argsort(rows.at[chosen], kind="stable")]
    left_out, chosen = len(chosen[MOST_EVENTS:]), chosen[:MOST_EVENTS]
    born, died, counts = _lives(rows.address[chosen].tolist(), rows.size[chosen].tolist())
    places, context, place = _callers(trace, chosen)
    allocated, begins_with, is_relative = _allocated(rows, chosen)
    at = rows.at[chosen]
    return MemoryHistory(
        device=device,
        source="trace",
        at=at,
        allocated=allocated,
        reserved=rows.reserved[chosen],
        size=rows.size[chosen][born],
        born=born,
        died=died,
        phase=context[born],
        context=context,
        place=place[born],
        places=places,
        begins_with=begins_with,
        marks=np.searchsorted(at, step_starts, side="left").astype(np.int64),
        limit=(trace.gpus[device].memory or None) if 0 <= device < len(trace.gpus) else None,
        is_relative=is_relative,
        counts=counts | {"left_out": left_out},
    )


def _allocated(rows: MemoryRows, chosen: Ints) -> tuple[Ints, int, bool]:
    """Return what is allocated after each event and before the first; old traces say neither, so it begins with 0."""
    size, said = rows.size[chosen], rows.allocated[chosen]
    if (said >= 0).all():
        return said, max(int(said[0] - size[0]), 0), False
    summed = np.cumsum(size)
    least = min(int(summed.min()), 0)
    return summed - least, -least, True


def _lives(addresses: Sequence[int], sizes: Sequence[int]) -> tuple[Ints, Ints, dict[str, int]]:
    """Return the events in which each allocation begins and ends; without addresses there are none.

    What ends and did not begin is from before the trace; an address that is given out twice was freed unseen.
    """
    held: dict[int, int] = {}
    born: list[int] = []
    died: list[int] = []
    counts = {"earlier": 0, "lost_frees": 0}
    for event, (address, size) in enumerate(zip(addresses, sizes, strict=True)):
        if address < 0 or size == 0:
            continue
        known = held.pop(address, None)
        if known is not None:
            died[known] = event
        if size > 0:
            counts["lost_frees"] += known is not None
            held[address] = len(born)
            born.append(event)
            died.append(len(sizes))
        else:
            counts["earlier"] += known is None
    return np.array(born, dtype=np.int64), np.array(died, dtype=np.int64), counts


def _callers(trace: Trace, events: Ints) -> tuple[list[Place], Ints, Ints]:
    """Return the places of some events, the phase of each, and its place."""
    rows = trace.memory
    numbers: dict[tuple[Place, Place], int] = {}
    places: list[Place] = []
    phase = np.zeros(len(events), dtype=np.int64)
    found = np.zeros(len(events), dtype=np.int64)
    for lane in np.unique(rows.lane[events]).tolist():
        mine = np.flatnonzero(rows.lane[events] == lane)
        mine = mine[np.argsort(rows.at[events[mine]], kind="stable")]
        at = rows.at[events[mine]].tolist()
        operators = _around(trace, (trace.operators, trace.annotations), lane, at)
        functions = _around(trace, (trace.functions,), lane, at)
        for event, calls, stack in zip(mine.tolist(), operators, functions, strict=True):
            key = (calls[:MOST_FRAMES], stack[:MOST_FRAMES])
            if key not in numbers:
                numbers[key] = len(places)
                places.append((*key[0][: MOST_FRAMES // 2], *_shown(key[1])))
            found[event] = numbers[key]
            phase[event] = _phase(calls)
        if set(phase[mine].tolist()) == {MemoryPhase.UNKNOWN, MemoryPhase.BACKWARD}:
            # A thread of backward alone: it also frees between its operators.
            phase[mine] = MemoryPhase.BACKWARD
    return places or [()], phase, found


def _phase(calls: Place) -> MemoryPhase:
    if any(_OPTIMIZER.match(name) for name in calls):
        return MemoryPhase.OPTIMIZER
    if any(_BACKWARD.match(name) for name in calls):
        return MemoryPhase.BACKWARD
    return MemoryPhase.FORWARD if calls else MemoryPhase.UNKNOWN


_FUNCTION = re.compile(r"(?P<file>.+\.py)\((?P<line>\d+)\): (?P<name>.+)", re.DOTALL)


def _shown(stack: Place) -> Place:
    """Return the functions of a stack that have a file, as ``file:line function``."""
    found = (_FUNCTION.fullmatch(name) for name in stack)
    return tuple(f"{each['file']}:{each['line']} {each['name']}" for each in found if each)


def _around(trace: Trace, sorts: Sequence[Rows], lane: int, at: Sequence[int]) -> Iterator[Place]:
    """Yield for each time, rising, the names of what is around it on a thread, innermost first."""
    left_out = trace.numbers_of(lambda name: _STEP.fullmatch(name) or name.startswith(_LOADER))
    start, end, name = (
        np.concatenate([getattr(rows, field)[_of_lane(rows, lane, left_out)] for rows in sorts])
        for field in ("start", "end", "name")
    )
    order = np.lexsort((-end, start))[:MOST_NESTED]
    starts, ends, names = start[order].tolist(), end[order].tolist(), name[order].tolist()
    open_ends: list[int] = []
    path: Place = ()
    paths: list[Place] = []
    next_row = 0
    for time in at:
        while next_row < len(starts) and starts[next_row] <= time:
            while open_ends and open_ends[-1] <= starts[next_row]:
                open_ends.pop()
                path = paths.pop()
            paths.append(path)
            open_ends.append(ends[next_row])
            path = (trace.names[names[next_row]], *path[:DEEPEST])
            next_row += 1
        while open_ends and open_ends[-1] <= time:
            open_ends.pop()
            path = paths.pop()
        yield path


def _of_lane(rows: Rows, lane: int, left_out: Ints) -> Ints:
    mine = np.flatnonzero(rows.lane == lane)
    return mine[~np.isin(rows.name[mine], left_out)]
