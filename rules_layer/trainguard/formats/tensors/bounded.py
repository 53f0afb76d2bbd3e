"""What keeps memory within bounds: a cache of a number of bytes, and which past steps make room for new ones.

A run saves its loss at every step and its weights at every hundredth: each set of tensors keeps newest steps of its
own.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class ByteCache(Generic[V]):
    """Keeps what was used last, as long as all of it has at most ``most`` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Keep something that takes ``size`` bytes; what is larger than the cache is not kept."""
        if size > self._most or key in self._entries:
            return
        self._entries[key] = (value, size)
        self._held += size
        while self._held > self._most:
            _, (_, dropped) = self._entries.popitem(last=False)
            self._held -= dropped


MOST_OF_A_SET = 64
MOST_OF_ALL = 256

T = TypeVar("T")


def forget(
    steps: list[T], set_of: Callable[[T], Hashable], is_over: Callable[[list[T]], bool], *, most: int = MOST_OF_A_SET
) -> None:
    """Drop steps until ``most`` of each set of tensors and 256 in all are left, and ``is_over`` is False.

    ``steps``, in order, is changed in place; the newest is never dropped. ``set_of`` returns a step's mode and set of
    tensors, ``is_over`` whether steps take more room than there is.
    """
    sets = [set_of(step) for step in steps]
    counts = Counter(sets)
    while len(steps) > 1:
        largest = max(counts.values())
        if largest <= most and len(steps) <= MOST_OF_ALL and not is_over(steps):
            return
        place = next(place for place, each in enumerate(sets) if counts[each] == largest)
        counts[sets[place]] -= 1
        del steps[place], sets[place]
