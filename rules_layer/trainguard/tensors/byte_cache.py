"""What was read last, within a number of bytes."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class ByteCache(Generic[V]):
    """Keeps what was used last, as long as all of it has at most ``most`` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        """Return what is kept; None where there is nothing."""
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
