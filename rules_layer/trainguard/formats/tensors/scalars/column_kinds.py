"""Whether rows of a table still mean what its header says: a second trainer may append rows with other columns.

Rows are compared where their number of cells changes or their step goes back. A restart of the same trainer writes
values of the same kind; under other columns counts get fractions and scales change in several columns at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

# Rows by which the kind of a column is known.
FEWEST_ROWS = 3

# A value is of another scale beyond so many times the largest, or below that part of the smallest, so far.
ORDERS = 10.0

# So many columns, and this share of them, differ where a row has other columns: one loss may always jump.
FEWEST_ODD, SHARE_ODD = 3, 0.4


@dataclass(slots=True)
class _Kind:
    whole: bool = True
    least: float = math.inf
    most: float = 0.0

    def add(self, value: float) -> None:
        self.whole = self.whole and value == int(value)
        if value:
            self.least, self.most = min(self.least, abs(value)), max(self.most, abs(value))

    def is_odd(self, value: float) -> bool:
        if self.whole and value != int(value):
            return True
        return bool(value and self.most) and not self.least / ORDERS <= abs(value) <= self.most * ORDERS


@dataclass(slots=True)
class ColumnKinds:
    """The kinds of the columns under one header, by their places; ``step`` is the place of what counts."""

    step: int | None = None
    fits: bool = True
    _kinds: dict[int, _Kind] = field(default_factory=dict)
    _rows: int = 0
    _width: int = 0
    _newest: float = -math.inf

    def take(self, numbers: Sequence[float | None]) -> bool:
        """Return whether a row, None where a cell is no number, is of the columns so far; then they learn from it."""
        step = None if self.step is None or self.step >= len(numbers) else _finite(numbers[self.step])
        goes_back = step is not None and step < self._newest
        if self._rows >= FEWEST_ROWS and (goes_back or len(numbers) != self._width):
            self.fits = not self._are_others(numbers, step)
        self._width = len(numbers)
        self._newest = self._newest if step is None else step
        if self.fits:
            self._learn(numbers)
        return self.fits

    def _are_others(self, numbers: Sequence[float | None], step: float | None) -> bool:
        counts = None if self.step is None else self._kinds.get(self.step)
        if counts is not None and (step is None or (counts.whole and step != int(step))):
            return True
        values = [(self._kinds.get(at), _finite(each)) for at, each in enumerate(numbers) if at != self.step]
        odd = [kind.is_odd(each) for kind, each in values if kind is not None and each is not None]
        return sum(odd) >= FEWEST_ODD and sum(odd) >= SHARE_ODD * len(odd)

    def _learn(self, numbers: Sequence[float | None]) -> None:
        self._rows += 1
        for at, each in enumerate(numbers):
            if (value := _finite(each)) is not None:
                self._kinds.setdefault(at, _Kind()).add(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
