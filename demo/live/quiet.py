"""How long nothing has changed: a busy machine is slow, only a stack in which nothing moves is stuck."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

# A cold start, or an evaluation, of an overloaded machine takes a minute and more.
GIVES_UP_AFTER_S = 240.0


@dataclass(slots=True)
class Quiet:
    """Measures for how long the same was seen, in seconds of a clock that only goes forward."""

    clock: Callable[[], float]
    limit_s: float = GIVES_UP_AFTER_S
    _seen: Hashable = field(default=None, init=False)
    _since_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._since_s = self.clock()

    def note(self, seen: Hashable) -> None:
        """Take note of what is seen now: anything else than before is progress."""
        if seen != self._seen:
            self._seen, self._since_s = seen, self.clock()

    @property
    def is_over(self) -> bool:
        """Whether nothing has changed for longer than the limit."""
        return self.clock() - self._since_s > self.limit_s
