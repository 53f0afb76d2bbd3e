"""The rows of one file as they are taken, within limits; what cannot be used is counted by kind, and named."""

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainguard.formats.tensors.scalars.positions import Positions
from trainguard.formats.tensors.scalars.rows import LARGEST_STEP, MOST_SCALARS, RecordedRows

MOST_ROWS = 1_000_000
# A file of 32 MiB has fewer of them, with their digits.
MOST_NUMBERS = 4_000_000

MOST_NAMES = 10_000

# A line of which nothing is used, or a cell alone.
Kind = Literal["line", "cell"]


@dataclass(slots=True)
class TakenRows:
    """What a file holds, in its order; ``why`` describes the first of the ``bad_lines`` and ``bad_cells``."""

    rows: RecordedRows = field(default_factory=RecordedRows)
    bad_lines: int = 0
    bad_cells: int = 0
    why: str | None = None
    _positions: Positions = field(default_factory=Positions)

    @property
    def bad(self) -> int:
        return self.bad_lines + self.bad_cells

    @property
    def next_number(self) -> int:
        """The step of a row where no column counts them."""
        return len(self.rows)

    def refuse(self, kind: Kind, why: str, count: int = 1) -> None:
        if kind == "cell":
            self.bad_cells += count
        else:
            self.bad_lines += count
        self.why = self.why or why

    def is_full(self, line: int) -> bool:
        if len(self.rows) < MOST_ROWS:
            return False
        self.refuse("line", f"more than {MOST_ROWS:,} rows, from line {line:,} on")
        return True

    def add(self, where: str, step: object, values: Mapping[str, float], *, epoch: float | None = None) -> None:
        """Take in a row without its counts; ``where`` names it."""
        if not isinstance(step, int | float) or isinstance(step, bool) or not 0 <= step <= LARGEST_STEP:
            if values:
                self.refuse("line", f"{where}: its step is {step!r:.40}, expected a number from 0 on")
        elif len(values) > MOST_SCALARS:
            self.refuse("line", f"{where} has {len(values):,} numbers, expected at most {MOST_SCALARS:,}")
        elif len(self.rows) >= MOST_ROWS:
            self.refuse("line", f"more than {MOST_ROWS:,} rows, from {where} on")
        elif self.rows.numbers + len(values) > MOST_NUMBERS:
            self.refuse("line", f"more than {MOST_NUMBERS:,} numbers, from {where} on")
        elif self.rows.would_name(values) > MOST_NAMES:
            self.refuse("line", f"more than {MOST_NAMES:,} names of scalars, from {where} on")
        elif values:
            self.rows.add(int(step), values)
            self._positions.add(float(step), epoch)

    def finish(self) -> "TakenRows":
        """Give each row its one position; the file has no more of them."""
        self.rows.renumber(self._positions.whole())
        self._positions = Positions(array("q"))
        return self


def number_of(value: object) -> float | None:
    """Return a number of JSON; one that is too large for a float is infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) or abs(value) < 1e308:
        return float(value)
    return math.inf if value > 0 else -math.inf
