"""What sources of scalars record at a step, and when such a step is complete.

A step is complete when its source writes a later one, or ends.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainguard.formats.tensors.bounded import MOST_OF_A_SET, forget
from trainguard.formats.tensors.scalars.names import LOSSES, METRICS, ScalarNames, scalar_name
from trainguard.formats.tensors.scalars.segments import SAME, Segments
from trainguard.formats.tensors.step_view import Mode

# A scalar's steps (int64[S], in order, each once) and values (float64[S]).
Series = tuple[NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class ScalarColumns:
    """Scalars in the order of the file: ``tag`` and ``step`` int64[S], ``at`` and ``value`` float64[S].

    ``tag`` is a place in ``tags``, ``at`` in epoch seconds, ``end`` the offset after what was read. ``bad`` counts
    events that could not be read.
    """

    tags: tuple[str, ...]
    tag: NDArray[np.int64]
    step: NDArray[np.int64]
    at: NDArray[np.float64]
    value: NDArray[np.float64]
    end: int
    bad: int = 0
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """What a source recorded at a step by name, and when, epoch seconds; ``timed`` as in `ScalarRow`.

    ``place`` grows from one recording of a file to the next.
    """

    step: int
    at: float
    values: Mapping[str, float]
    timed: bool = True
    place: int = 0


class RecordedRows:
    """The rows of a file in its order; each is made when it is asked for.

    An epoch is a step where the file counts no others. No row has a time of its own.
    """

    def __init__(self) -> None:
        self._steps, self._ends = array("q"), array("q")
        self._columns, self._values = array("I"), array("d")
        self._places: dict[str, int] = {}
        self._names: list[str] = []

    @property
    def names(self) -> Sequence[str]:
        return self._names

    @property
    def numbers(self) -> int:
        return len(self._values)

    def would_name(self, values: Mapping[str, float]) -> int:
        """Return how many names there would be with those of one more row."""
        return len(self._names) + len(set(values).difference(self._places))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        for name in set(values).difference(self._places):
            self._places[name] = len(self._names)
            self._names.append(name)
        self._columns.extend([self._places[name] for name in values])
        self._values.extend(values.values())
        self._steps.append(step)
        self._ends.append(len(self._values))

    def renumber(self, steps: "array[int]") -> None:
        """Give the rows other steps, one each."""
        self._steps = steps

    def __len__(self) -> int:
        return len(self._steps)

    def between(self, start: int, stop: int, at: float) -> list[Recording]:
        """Return the rows from one place to another; ``at`` is when the file was saved, epoch seconds."""
        found = []
        for place in range(start, min(stop, len(self))):
            numbers = range(self._ends[place - 1] if place else 0, self._ends[place])
            values = {self._names[self._columns[number]]: self._values[number] for number in numbers}
            found.append(Recording(self._steps[place], at, values, timed=False, place=place))
        return found

    def series(self, names: Iterable[str]) -> dict[str, Series]:
        """Return scalars that the rows have, by name; of a step that comes again, the last value counts."""
        columns, values = np.array(self._columns, np.int64), np.array(self._values, np.float64)
        ends = np.array(self._ends, np.int64)
        steps = np.repeat(np.array(self._steps, np.int64), ends - np.append(0, ends)[:-1])
        order = np.argsort(columns, kind="stable")
        starts = np.searchsorted(columns[order], np.arange(len(self._names) + 1))
        found = {}
        for name in names:
            place = self._places[name]
            # The newest first: of equal steps the first one is taken.
            at = order[starts[place] : starts[place + 1]][::-1]
            distinct, first = np.unique(steps[at], return_index=True)
            found[name] = (distinct, values[at][first])
        return found


MOST_SCALARS = 2_000

MOST_SOURCES = 64
MOST_PAST_ROWS = MOST_OF_A_SET
MOST_PAST_VALUES = 4_096
LARGEST_STEP = 2**53
_ORDER = {Mode.TRAIN: 0, Mode.EVAL: 1, Mode.PREDICT: 2, Mode.GLOBAL: 3}


class ScalarRow(msgspec.Struct, array_like=True):
    """The scalars of one step and mode by name; ``at`` is when the first was saved, epoch seconds.

    ``timed`` says that the source says so of the step; else ``at`` is when the file was saved.
    """

    step: int
    mode: Mode
    at: float
    values: dict[str, float]
    timed: bool = True

    def join(self, other: "ScalarRow") -> None:
        """Take in what another source recorded at the same step; a time of the step goes before one of a file."""
        self.values.update(other.values)
        if self.timed == other.timed:
            self.at = min(self.at, other.at)
        elif other.timed:
            self.at, self.timed = other.at, True


class ScalarRows(msgspec.Struct):
    """The steps of a run's scalar sources; its fields are what is stored.

    ``newest`` is by source and mode. ``dropped`` counts scalars out of order, ``refused`` those of more sources or
    names than are used. ``segments`` are by file; ``begun`` is where one has begun: the files are to be read once more.
    """

    newest: dict[str, dict[Mode, int]] = msgspec.field(default_factory=dict)
    open: dict[str, list[ScalarRow]] = msgspec.field(default_factory=dict)
    dropped: int = 0
    refused: int = 0
    segments: dict[str, Segments] = msgspec.field(default_factory=dict)
    begun: int | None = None

    def again(self) -> "ScalarRows":
        """Return the rows before the sources are read once more."""
        known = {source: each.again() for source, each in self.segments.items() if each.has_learned}
        return ScalarRows(refused=self.refused, segments=known)

    @property
    def overwritten(self) -> int:
        return sum(each.overwritten for each in self.segments.values())

    @property
    def disordered(self) -> int:
        return self.dropped + sum(each.disordered for each in self.segments.values())

    def add(
        self, source: str, recording: Recording, names: ScalarNames, *, folder: str = "", file: str = ""
    ) -> list[ScalarRow]:
        """Take what a source recorded at a step; return the steps that are complete by this, in order.

        ``source`` is a file, or the folder of several that follow each other; ``folder`` may say the mode.
        """
        if source not in self.newest:
            if len(self.newest) >= MOST_SOURCES:
                self.refused += len(recording.values)
                return []
            self.newest[source] = {}
        placed = self.follow(source, recording, names, folder=folder, file=file)
        complete: list[ScalarRow] = []
        for step, values in placed.items() or {recording.step: {}}.items():
            complete += self._close(source, before=step)
            by_mode: dict[Mode, dict[str, float]] = {}
            for name, value in values.items():
                mode = names.mode(name, folder)
                if mode is not None:
                    by_mode.setdefault(mode, {})[name] = value
            for mode, found in by_mode.items():
                self._put(source, ScalarRow(step, mode, recording.at, found, recording.timed))
        return complete

    def follow(
        self, source: str, recording: Recording, names: ScalarNames, *, folder: str, file: str
    ) -> Mapping[int, dict[str, float]]:
        """Return the values of a recording that count, by their step; notes in ``begun`` where a segment begins."""
        segments = self.segments.setdefault(file or source, Segments())
        used = {name: value for name, value in recording.values.items() if names.mode(name, folder) is not None}
        is_events = file != source
        placed, self.begun = segments.place(file, recording.place, recording.step, used, one_writer=is_events)
        return placed

    def finish(self, source: str | None = None) -> list[ScalarRow]:
        """Return the steps of a source, or of all, that wait for a later one: there is none."""
        sources = list(self.open) if source is None else [source]
        return in_order(row for each in sources for row in self._close(each, before=None))

    def _put(self, source: str, row: ScalarRow) -> None:
        rows = self.open.setdefault(source, [])
        same = next((each for each in rows if each.mode == row.mode), None)
        if same is None and row.step > self.newest[source].get(row.mode, -1):
            rows.append(same := ScalarRow(row.step, row.mode, row.at, {}, row.timed))
        if same is None or same.step != row.step:
            self.dropped += len(row.values)
            return
        for name, value in row.values.items():
            if len(same.values) < MOST_SCALARS or name in same.values:
                same.values[name] = value
            else:
                self.refused += 1

    def _close(self, source: str, *, before: int | None) -> list[ScalarRow]:
        rows = self.open.get(source, [])
        complete = [row for row in rows if before is None or row.step < before]
        if complete:
            self.open[source] = [row for row in rows if before is not None and row.step >= before]
            for row in complete:
                self.newest[source][row.mode] = row.step
        return sorted(complete, key=_place)


def in_order(rows: Iterable[ScalarRow]) -> list[ScalarRow]:
    """Return rows in the order of their steps, training before evaluation; rows of one step and mode are joined."""
    joined: dict[tuple[int, Mode], ScalarRow] = {}
    for row in rows:
        known = joined.get((row.step, row.mode))
        if known is None:
            joined[row.step, row.mode] = ScalarRow(row.step, row.mode, row.at, dict(row.values), row.timed)
        else:
            known.join(row)
    return sorted(joined.values(), key=_place)


def _place(row: ScalarRow) -> tuple[int, int]:
    return row.step, _ORDER[row.mode]


class ScalarHistory(msgspec.Struct):
    """Past rows: the last 64 of each mode and set of scalars, 256 in all, with at most 4,096 numbers."""

    rows: list[ScalarRow] = msgspec.field(default_factory=list)

    def add(self, row: ScalarRow) -> None:
        self.rows.append(row)
        self.shorten(MOST_PAST_ROWS)

    def shorten(self, most: int) -> bool:
        """Forget all but the newest ``most`` rows of each mode and set of scalars; return whether any was."""
        before = len(self.rows)
        forget(
            self.rows,
            lambda each: (each.mode, frozenset(each.values)),
            lambda rows: sum(len(each.values) for each in rows) > MOST_PAST_VALUES,
            most=most,
        )
        return len(self.rows) < before

    def before(self, row: ScalarRow) -> Iterator[ScalarRow]:
        """Iterate over the rows of the same mode and an earlier step, the newest first."""
        return (each for each in reversed(self.rows) if each.mode == row.mode and each.step < row.step)


def recordings(columns: ScalarColumns, folder: str, saved_at: float, seen: int = 0) -> Iterator[Recording]:
    """Iterate over what event files recorded, step after step in the order of the file.

    A time that is none is replaced by ``saved_at``; scalars of negative steps are left out. ``seen`` counts the
    scalars of the file before these.
    """
    names = [scalar_name(tag, folder) for tag in columns.tags]
    borders = [0, *(np.flatnonzero(np.diff(columns.step)) + 1).tolist(), columns.step.size]
    tags, values = columns.tag.tolist(), columns.value.tolist()
    for first, last in pairwise(borders):
        step = int(columns.step[first]) if first < last else -1
        if not 0 <= step <= LARGEST_STEP:
            continue
        for start, end in _without_repeats(tags, first, last):
            at = float(columns.at[start])
            found = {names[tag]: value for tag, value in zip(tags[start:end], values[start:end], strict=True)}
            yield Recording(step, at if math.isfinite(at) else saved_at, found, place=seen + start)


def _without_repeats(tags: Sequence[int], first: int, last: int) -> list[tuple[int, int]]:
    """Return the parts of a step's scalars in which none comes twice."""
    if len(set(tags[first:last])) == last - first:
        return [(first, last)]
    parts, met, start = [], set[int](), first
    for place in range(first, last):
        if tags[place] in met:
            parts.append((start, place))
            start, met = place, set()
        met.add(tags[place])
    return [*parts, (start, last)]


# Fewer steps of a scalar have no range that says something.
FEWEST = 2

RunValues = Mapping[str, Series]


def values_of(rows: RecordedRows, names: ScalarNames) -> RunValues:
    """Return the losses and metrics that a file records; all its scalars where it has none of these."""
    used = {name for name in rows.names if names.mode(name) is not None}
    meant = names.members(LOSSES, used) | names.members(METRICS, used)
    return rows.series(sorted(meant or used))


def rows_before(run: RunValues, until: int | None) -> RunValues:
    """Return what a file records before a step; all of it where that is None."""
    if until is None:
        return run
    return {name: (steps[steps < until], values[steps < until]) for name, (steps, values) in run.items()}


def recorded_apart(newer: RunValues, older: RunValues) -> str | None:
    """Return a scalar that two files record over the same steps with other values; None where there is none."""
    for name in sorted(newer.keys() & older.keys()):
        steps, values = newer[name]
        earlier, others = older[name]
        if min(steps.size, earlier.size) < FEWEST or earlier[-1] < steps[0] or earlier[0] > steps[-1]:
            continue
        shared, here, there = np.intersect1d(steps, earlier, assume_unique=True, return_indices=True)
        if not shared.size or not np.allclose(values[here], others[there], rtol=SAME, atol=0.0, equal_nan=True):
            return name
    return None


def resumed_at(run: RunValues) -> int:
    """Return the first step of a resumed run; 0 of one whose first step is within one interval of its steps."""
    firsts = [(int(steps[0]), int(steps[1] - steps[0])) for steps, _ in run.values() if steps.size >= FEWEST]
    first, interval = min(firsts, default=(0, 0))
    return first if first > interval else 0
