"""What a trainer's file recorded, row by row, in columns of numbers: a file of many columns fits into memory.

A number takes 12 bytes, and a row 16. As dictionaries of Python's numbers they would take ten times as much.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

Series = tuple[NDArray[np.int64], NDArray[np.float64]]
"""A scalar's steps (int64[S], in order, each once) and values (float64[S])."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a file recorded at a step, by name; an epoch is a step where the file counts no others."""

    step: int
    values: Mapping[str, float]


class RecordedRows(Sequence[Recorded]):
    """The rows of a file in its order; each is made when it is asked for."""

    def __init__(self) -> None:
        self._steps, self._ends = array("q"), array("q")
        self._columns, self._values = array("I"), array("d")
        self._places: dict[str, int] = {}
        self._names: list[str] = []

    @property
    def names(self) -> Sequence[str]:
        """The names of all scalars, in no order."""
        return self._names

    @property
    def numbers(self) -> int:
        """How many numbers the rows hold."""
        return len(self._values)

    def would_name(self, values: Mapping[str, float]) -> int:
        """Return how many names there would be with those of one more row."""
        return len(self._names) + len(set(values).difference(self._places))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add a row."""
        for name in set(values).difference(self._places):
            self._places[name] = len(self._names)
            self._names.append(name)
        self._columns.extend([self._places[name] for name in values])
        self._values.extend(values.values())
        self._steps.append(step)
        self._ends.append(len(self._values))

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self._steps)

    @overload
    def __getitem__(self, place: int) -> Recorded: ...

    @overload
    def __getitem__(self, place: slice) -> list[Recorded]: ...

    def __getitem__(self, place: int | slice) -> Recorded | list[Recorded]:
        """Return a row, or some of them."""
        if isinstance(place, slice):
            return [self._row(each) for each in range(*place.indices(len(self)))]
        return self._row(range(len(self))[place])

    def _row(self, place: int) -> Recorded:
        numbers = range(self._ends[place - 1] if place else 0, self._ends[place])
        return Recorded(self._steps[place], {self._names[self._columns[at]]: self._values[at] for at in numbers})

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
