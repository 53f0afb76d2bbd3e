"""A column that grows as rows are read."""

from mmap import mmap
from typing import Any

import numpy as np

_FIRST_BYTES = 64 * 1024


class GrownColumn:
    """Values of one type in memory of their own: what grows on the heap leaves holes there that nothing else fits in.

    Room that is not used yet costs no memory, as no page of it was written.
    """

    def __init__(self, kind: type[np.generic]) -> None:
        self._room = np.frombuffer(mmap(-1, _FIRST_BYTES), dtype=kind)
        self._count = 0

    def add(self, values: Any) -> None:
        until = self._count + len(values)
        if until > len(self._room):
            size = max(2 * len(self._room), until) * self._room.itemsize
            larger = np.frombuffer(mmap(-1, size), dtype=self._room.dtype)
            larger[: self._count] = self.values()
            self._room = larger
        self._room[self._count : until] = values
        self._count = until

    def unknown(self, count: int) -> None:
        """Add values that are not known: -1, NaN of a float."""
        self.add(np.full(count, np.nan if self._room.dtype.kind == "f" else -1, dtype=self._room.dtype))

    def values(self) -> Any:
        return self._room[: self._count]
