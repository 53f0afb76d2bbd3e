"""Short rows joined by lane and by cell of time, in memory that does not depend on how many there are."""

import numpy as np

from trainguard.kernels.columns import Ints
from trainguard.kernels.timeline.rows import RowTable, Sort

MOST_CELLS = 1 << 12


class Cells:
    """The rows that begin in each cell of each lane: first start, last end, how many, and how long by sort.

    Parameters
    ----------
    lanes : int
    origin, length : int
        The time that the cells divide; what begins before or after it is in the first or last cell.
    """

    def __init__(self, lanes: int, origin: int, length: int) -> None:
        self._origin = origin
        self.cells = MOST_CELLS
        self.width = max(-(-length // MOST_CELLS), 1)
        size = lanes * MOST_CELLS
        self._start = np.full(size, np.iinfo(np.int64).max)
        self._end = np.full(size, np.iinfo(np.int64).min)
        self._count = np.zeros(size, dtype=np.int64)
        self._time = np.zeros((size, len(Sort)), dtype=np.float32)
        self._name = np.full(size, -1, dtype=np.int64)
        self._source = np.full(size, -1, dtype=np.int64)

    def add(self, rows: RowTable) -> None:
        """Add rows."""
        cell = np.clip((rows.start - self._origin) // self.width, 0, self.cells - 1)
        place = rows.lane * self.cells + cell
        np.minimum.at(self._start, place, rows.start)
        np.maximum.at(self._end, place, rows.end)
        np.add.at(self._count, place, rows.count)
        np.add.at(self._time, (place, rows.sort), (rows.end - rows.start + 1).astype(np.float32))
        self._name[place] = rows.name
        self._source[place] = rows.source

    def __len__(self) -> int:
        """Return the number of cells with a row."""
        return int((self._count > 0).sum())

    def double(self) -> None:
        """Make cells twice as wide."""
        self.cells //= 2
        self.width *= 2
        self._name = self._of_the_used(self._name)
        self._source = self._of_the_used(self._source)
        self._start = self._start.reshape(-1, 2).min(axis=1)
        self._end = self._end.reshape(-1, 2).max(axis=1)
        self._count = self._count.reshape(-1, 2).sum(axis=1)
        self._time = self._time.reshape(-1, 2, len(Sort)).sum(axis=1)

    def _of_the_used(self, values: Ints) -> Ints:
        pairs, used = values.reshape(-1, 2), self._count.reshape(-1, 2) > 0
        return np.where(used[:, 0], pairs[:, 0], pairs[:, 1])

    def table(self) -> RowTable:
        """Return a row for each cell; one that holds a single row is that row."""
        place = np.flatnonzero(self._count)
        single = self._count[place] == 1
        lane, cell = place // self.cells, place % self.cells
        last = self._origin + (cell + 1) * self.width
        end = self._end[place]
        return RowTable(
            start=self._start[place],
            end=np.where(single, end, np.maximum(np.minimum(end, last), self._start[place])),
            name=np.where(single, self._name[place], -1),
            sort=self._time[place].argmax(axis=1),
            lane=lane,
            source=np.where(single, self._source[place], -1),
            count=self._count[place],
        )
