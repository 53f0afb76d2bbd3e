"""Which part of a trace is judged: its steps, the window that they span, and which launch started what."""

import re
from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Ints, Rows, Trace

_STEP = re.compile(r"ProfilerStep#?\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Steps:
    """The profiler's steps in order of time: number, and start and end on the host."""

    number: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What is judged.

    Attributes
    ----------
    start, end : int
        The host's start of the first step, and the later of the last step's end and the end of the last work that it
        launched. Without steps: from the first GPU row to the end of the last one.
    steps : Steps
    launch : ndarray of int64
        For each GPU row the row of its launch; -1 where the trace has none.
    step : ndarray of int64
        For each GPU row the step in which it was launched; -1 outside of steps.
    """

    start: int
    end: int
    steps: Steps
    launch: Ints
    step: Ints

    @property
    def length(self) -> int:
        """Its nanoseconds."""
        return self.end - self.start


def find_window(trace: Trace) -> Window:
    """Return the window of a trace; of no length where it has no row with a time."""
    steps = _steps(trace)
    launch = _joined(trace.gpu.rows, trace.launches)
    launched_at = np.where(launch >= 0, _taken(trace.launches.start, launch), np.iinfo(np.int64).min)
    step = _step_of(steps, launched_at)
    rows = trace.gpu.rows
    if len(steps):
        last = rows.end[step == len(steps) - 1]
        end = max(int(steps.end[-1]), int(last.max()) if len(last) else 0)
        return Window(start=int(steps.start[0]), end=end, steps=steps, launch=launch, step=step)
    judged = rows if len(rows) else trace.operators
    start, end = (int(judged.start.min()), int(judged.end.max())) if len(judged) else (0, 0)
    return Window(start=start, end=end, steps=steps, launch=launch, step=step)


def inner(trace: Trace, window: Window) -> Window | None:
    """Return a window without its first and its last step; None with fewer than three steps.

    These two are often cut, slowed down by the start of the profiler, or without launches that came before it.
    """
    if len(window.steps) < 3:
        return None
    steps = Steps(window.steps.number[1:-1], window.steps.start[1:-1], window.steps.end[1:-1])
    kept = (window.step > 0) & (window.step < len(window.steps) - 1)
    step = np.where(kept, window.step - 1, -1)
    last = trace.gpu.rows.end[step == len(steps) - 1]
    end = max(int(steps.end[-1]), int(last.max()) if len(last) else 0)
    return Window(start=int(steps.start[0]), end=end, steps=steps, launch=window.launch, step=step)


def find_operators(trace: Trace, launch: Ints) -> tuple[Ints, Ints]:
    """Return for each GPU row the operator that launched it: its row among the operators, and its external id.

    The GPU row says the id; where it does not, as on AMD, its launching call does. -1 where neither is known.
    """
    rows, operators = trace.gpu.rows, trace.operators
    called = np.where(launch >= 0, _taken(trace.launches.operator, launch), -1)
    wanted = np.where(rows.operator > 0, rows.operator, called)
    known = np.flatnonzero(operators.operator >= 0)
    order = known[np.argsort(operators.operator[known], kind="stable")]
    ids = operators.operator[order]
    place = np.searchsorted(ids, wanted, side="left")
    found = (place < len(ids)) & (wanted >= 0)
    place = np.minimum(place, max(len(ids) - 1, 0))
    found &= _taken(ids, place) == wanted
    return np.where(found, _taken(order, place), -1), wanted


def _steps(trace: Trace) -> Steps:
    numbers = {}
    for place, name in enumerate(trace.names):
        if match := _STEP.fullmatch(name):
            numbers[place] = int(match[1][:18])
    marks = trace.annotations
    chosen = np.flatnonzero(np.isin(marks.name, np.array(list(numbers), dtype=np.int64)))
    order = chosen[np.argsort(marks.start[chosen], kind="stable")]
    number = np.array([numbers[int(name)] for name in marks.name[order]], dtype=np.int64)
    _, first = np.unique(number, return_index=True)
    kept = np.sort(first)
    return Steps(number[kept], marks.start[order][kept], marks.end[order][kept])


def _joined(rows: Rows, launches: Rows) -> Ints:
    """Return for each row the launch with its correlation: the last one, as a wrapper's inner call does the work."""
    known = np.flatnonzero(launches.correlation >= 0)
    order = known[np.argsort(launches.correlation[known], kind="stable")]
    numbers = launches.correlation[order]
    place = np.searchsorted(numbers, rows.correlation, side="right") - 1
    found = (place >= 0) & (rows.correlation >= 0)
    found &= _taken(numbers, place) == rows.correlation
    return np.where(found, _taken(order, place), -1)


def _taken(values: Ints, places: Ints) -> Ints:
    """Return values at places; anything where a place is negative."""
    return values[np.maximum(places, 0)] if len(values) else np.full(len(places), -1, dtype=np.int64)


def _step_of(steps: Steps, times: Ints) -> Ints:
    if not len(steps):
        return np.full(len(times), -1, dtype=np.int64)
    place = np.searchsorted(steps.start, times, side="right") - 1
    inside = (place >= 0) & (times < steps.end[np.maximum(place, 0)])
    return np.where(inside, place, -1)
