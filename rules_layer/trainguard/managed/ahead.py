"""Files parsed once and in order, a bounded number ahead of their use."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, Protocol, TypeVar

FILES_A_BATCH = 16
BATCHES_AHEAD = 2

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


class FileMap(Protocol):
    """What ``map`` is: ordered results of a function over items, for example the ``map`` of a process pool."""

    def __call__(self, function: Callable[[A], B], items: Iterable[A], /) -> Iterable[B]:
        """Return an iterable of ``function(item)`` in order; function, items and results can be pickled."""
        ...


class FilesAhead(Generic[T, A]):
    """A sequence of parsed files, of which only a part exists at any time.

    Each of ``tasks`` reads its file and returns what ``parse`` takes; ``arrived`` is called once with each file.
    ``file_map`` is given 16 files at a time, 32 at most before the first is used.
    """

    def __init__(
        self,
        tasks: Sequence[Callable[[], A]],
        parse: Callable[[A], T],
        file_map: FileMap,
        arrived: Callable[[T], None],
    ) -> None:
        self._waiting = iter(tasks)
        self._parse = parse
        self._map = file_map
        self._arrived = arrived
        self._batches: deque[Iterator[T]] = deque()
        self._start = 0
        self._kept: deque[T] = deque()

    def span(self, start: int, stop: int) -> list[T]:
        """Return the files ``start`` to ``stop`` (exclusive), and forget those before ``start``; neither goes back."""
        while self._start + len(self._kept) < stop:
            self._kept.append(self._next())
        while self._start < start:
            self._kept.popleft()
            self._start += 1
        return list(islice(self._kept, stop - start))

    def _next(self) -> T:
        while True:
            while len(self._batches) < BATCHES_AHEAD:
                bodies = [task() for task in islice(self._waiting, FILES_A_BATCH)]
                if not bodies:
                    break
                self._batches.append(iter(self._map(self._parse, bodies)))
            for file in self._batches[0]:
                self._arrived(file)
                return file
            self._batches.popleft()
