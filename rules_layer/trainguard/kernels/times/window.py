"""The judged part of a trace: its steps, the window that they span, and which launch started what."""

import re
from dataclasses import dataclass, replace

import numpy as np

from trainguard.kernels.columns import Ints, Rows, Trace
from trainguard.kernels.times.intervals import Spans, innermost_rows
from trainguard.kernels.times.lost import starting_work, worked

_OPTIMIZER = "Optimizer.step#"
_STEP = re.compile(r"ProfilerStep#?\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Steps:
    """The profiler's steps in order of time: number, and start and end on the host."""

    number: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.number)

    @property
    def spans(self) -> Spans:
        return Spans(self.start, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWindow:
    """The judged window: from the host's start of the first step to the end of the last step and of its work.

    Without steps it is from the first GPU row to the end of the last one. ``launch`` and ``step`` have, for each GPU
    row, the row of its launch and its step, int64, -1 without. ``steps_lost`` are steps behind the last judged one that
    a cut file does not hold whole; ``is_whole`` is false of a cut file without a step that is known to be whole.
    """

    start: int
    end: int
    steps: Steps
    launch: Ints
    step: Ints
    steps_lost: int = 0
    is_whole: bool = True

    @property
    def length(self) -> int:
        return self.end - self.start


def find_window(trace: Trace) -> TraceWindow:
    """Return the window of a trace; of no length where it has no row with a time.

    That of a cut file ends with the last whole step, as PyTorch writes the GPU's rows behind the host's; without one it
    has all rows.
    """
    steps = _steps(trace)
    launch = _joined(trace.gpu, trace.launches)
    launch = np.where(launch >= 0, launch, _by_external_id(trace.gpu, trace.launches))
    lost, is_whole = 0, True
    if trace.is_cut:
        kept = _whole_steps(trace, steps, launch)
        is_whole = kept > 0
        if kept:
            lost, steps = len(steps) - kept, Steps(steps.number[:kept], steps.start[:kept], steps.end[:kept])
    launched_at = np.where(launch >= 0, _taken(trace.launches.start, launch), np.iinfo(np.int64).min)
    step = steps.spans.place_of(launched_at)
    rows = trace.gpu
    if len(steps):
        last = rows.end[step == len(steps) - 1]
        end = max(int(steps.end[-1]), int(last.max()) if len(last) else 0)
        start = int(steps.start[0])
    else:
        judged = rows if len(rows) else trace.operators
        start, end = (int(judged.start.min()), int(judged.end.max())) if len(judged) else (0, 0)
    return TraceWindow(start=start, end=end, steps=steps, launch=launch, step=step, steps_lost=lost, is_whole=is_whole)


def _whole_steps(trace: Trace, steps: Steps, launch: Ints) -> int:
    """Return how many steps of a cut file are whole, from the first one on.

    Each of a step's calls that start work has a row of the GPU, and both end before the last row of the GPU, by as much
    as the rows of the file go back in time: some files have them in order, some by streams.
    """
    calls, rows = trace.launches, trace.gpu
    if not len(steps) or not len(calls) or not len(rows):
        return 0
    wanted = starting_work(trace)
    at = steps.spans.place_of(calls.start)
    known = np.bincount(at[wanted & (at >= 0)], minlength=len(steps))
    without = np.bincount(at[wanted & ~worked(trace) & (at >= 0)], minlength=len(steps))
    latest = np.maximum.accumulate(rows.start)
    sure_until = int(latest[-1] - (latest - rows.start).max())
    ends = steps.end.copy()
    row_step = np.where(launch >= 0, steps.spans.place_of(_taken(calls.start, launch)), -1)
    np.maximum.at(ends, row_step[row_step >= 0], rows.end[row_step >= 0])
    whole = (known > 0) & (without == 0) & (ends <= sure_until)
    return len(steps) if whole.all() else int(np.argmin(whole))


def inner(trace: Trace, window: TraceWindow) -> TraceWindow | None:
    """Return a window without its first and its last step; None with fewer than three steps.

    These two are often cut, slowed down by the start of the profiler, or without launches that came before it. Where
    the host is ahead of the GPU, the window begins behind the work of the first step.
    """
    if len(window.steps) < 3:
        return None
    steps = Steps(window.steps.number[1:-1], window.steps.start[1:-1], window.steps.end[1:-1])
    kept = (window.step > 0) & (window.step < len(window.steps) - 1)
    step = np.where(kept, window.step - 1, -1)
    last = trace.gpu.end[step == len(steps) - 1]
    end = max(int(steps.end[-1]), int(last.max()) if len(last) else 0)
    return replace(window, start=_behind_first(trace, window, steps), end=end, steps=steps, step=step)


def _behind_first(trace: Trace, window: TraceWindow, steps: Steps) -> int:
    """Return when the second step has the GPU: at its start, or where the work before its own ends."""
    rows, start = trace.gpu, int(steps.start[0])
    own = rows.start[window.step == 1]
    before = rows.end[(window.step == 0) & (rows.start < own.min())] if len(own) else own
    return max(start, min(int(before.max()), int(own.min()))) if len(before) else start


def find_operators(trace: Trace, launch: Ints) -> tuple[Ints, Ints]:
    """Return for each GPU row its operator: its row among the operators, and its external id; -1 where unknown.

    The GPU row says the id; where it does not, as on AMD, its launching call does. Operators without ids are found by
    their thread and time.
    """
    rows, operators = trace.gpu, trace.operators
    called = np.where(launch >= 0, _taken(trace.launches.operator, launch), -1)
    wanted = np.where(rows.operator > 0, rows.operator, called)
    known = np.flatnonzero(operators.operator >= 0)
    order = known[np.argsort(operators.operator[known], kind="stable")]
    ids = operators.operator[order]
    place = np.searchsorted(ids, wanted, side="left")
    found = (place < len(ids)) & (wanted >= 0)
    place = np.minimum(place, max(len(ids) - 1, 0))
    found &= _taken(ids, place) == wanted
    return np.where(found, _taken(order, place), _around(trace, launch)), wanted


def _around(trace: Trace, launch: Ints) -> Ints:
    """Return for each GPU row the innermost operator with shapes but no id that its thread ran at the launch, or -1."""
    operators, found = trace.operators, np.full(len(launch), -1, dtype=np.int64)
    without = np.flatnonzero((operators.operator < 0) & (trace.operator_inputs >= 0))
    called = np.flatnonzero(launch >= 0)
    if not len(without) or not len(called):
        return found
    calls = launch[called]
    found[called] = innermost_rows(operators, without, trace.launches.lane[calls], trace.launches.start[calls])
    return found


def _steps(trace: Trace) -> Steps:
    numbers = {}
    for place, name in enumerate(trace.names):
        if match := _STEP.fullmatch(name):
            numbers[place] = int(match[1][:18])
    marks = trace.annotations
    if not numbers:
        return _optimizer_steps(trace)
    chosen = np.flatnonzero(np.isin(marks.name, np.array(list(numbers), dtype=np.int64)))
    order = chosen[np.argsort(marks.start[chosen], kind="stable")]
    number = np.array([numbers[int(name)] for name in marks.name[order]], dtype=np.int64)
    _, first = np.unique(number, return_index=True)
    kept = np.sort(first)
    return Steps(number[kept], marks.start[order][kept], marks.end[order][kept])


def _optimizer_steps(trace: Trace) -> Steps:
    """Return steps from one end of the optimizer's step to the next, as Dynolog's traces have no other mark.

    Of several optimizers the one that steps most often counts, of equal ones the first.
    """
    marks = trace.annotations
    named = [place for place, name in enumerate(trace.names) if name.startswith(_OPTIMIZER)]
    mine = [np.flatnonzero(marks.name == name) for name in named]
    chosen = max(mine, key=len, default=np.empty(0, dtype=np.int64))
    ends = np.unique(marks.end[chosen])
    return Steps(np.arange(1, max(len(ends), 1), dtype=np.int64), ends[:-1], ends[1:])


def _joined(rows: Rows, launches: Rows) -> Ints:
    """Return for each row the launch with its correlation: the last one, as a wrapper's inner call does the work."""
    known = np.flatnonzero(launches.correlation >= 0)
    order = known[np.argsort(launches.correlation[known], kind="stable")]
    numbers = launches.correlation[order]
    place = np.searchsorted(numbers, rows.correlation, side="right") - 1
    found = (place >= 0) & (rows.correlation >= 0)
    found &= _taken(numbers, place) == rows.correlation
    return np.where(found, _taken(order, place), -1)


def _by_external_id(rows: Rows, launches: Rows) -> Ints:
    """Return for each row without a correlation the one launch with its external id; -1 without one."""
    ids, first, count = np.unique(launches.operator, return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(ids, rows.operator), max(len(ids) - 1, 0))
    found = (rows.correlation < 0) & (rows.operator >= 0) & (_taken(ids, place) == rows.operator)
    found &= _taken(count, place) == 1
    return np.where(found, _taken(first, place), -1)


def _taken(values: Ints, places: Ints) -> Ints:
    """Return values at places; anything where a place is negative."""
    return values[np.maximum(places, 0)] if len(values) else np.full(len(places), -1, dtype=np.int64)
