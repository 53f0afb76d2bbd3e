"""Numbers for values, in the order in which they are met."""

from typing import Any


class Vocabulary(dict[Any, int]):
    """The number of each value, where a known one costs a look-up; ``known`` are the values by number."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[Any] = []

    def __missing__(self, value: Any) -> int:
        self[value] = len(self.known)
        self.known.append(value)
        return self[value]
