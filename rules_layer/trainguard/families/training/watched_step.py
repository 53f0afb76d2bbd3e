"""A step as the stream shows it to rules: with a time that can be believed, and an ear for tensors that are broken."""

import math
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeVar

from trainguard.errors import TelemetryFormatError
from trainguard.layout import FUTURE_S
from trainguard.tensors.step_view import Mode, ReductionKind, StepView, Tensor

T = TypeVar("T")


def believed(at: float, listed_at: float) -> float:
    """Return when a step was saved, epoch seconds; when S3 got its file where the time in that cannot be."""
    return at if math.isfinite(at) and 0.0 < at <= listed_at + FUTURE_S else listed_at


@dataclass(slots=True)
class WatchedStep:
    """A `StepView` of ``inner`` at the time ``at``, epoch seconds.

    ``faults`` says of each tensor that some rule asked for and that cannot be read why it cannot.
    """

    inner: StepView
    at: float
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Number of the step over all modes."""
        return self.inner.step

    @property
    def mode(self) -> Mode:
        """The mode of all tensors of the step."""
        return self.inner.mode

    @property
    def mode_step(self) -> int:
        """Number of the step within its mode."""
        return self.inner.mode_step

    @property
    def timed(self) -> bool:
        """Whether the step says itself when it was saved."""
        return self.inner.timed

    @property
    def names(self) -> Sequence[str]:
        """Names of the tensors saved at the step, sorted."""
        return self.inner.names

    def members(self, collection: str) -> Set[str]:
        """Return those of ``names`` that a collection holds."""
        return self.inner.members(collection)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return a tensor's shape."""
        return self._asked(name, lambda: self.inner.shape(name))

    def has_value(self, name: str) -> bool:
        """Whether the step holds all entries of a tensor."""
        return self.inner.has_value(name)

    def value(self, name: str) -> Tensor:
        """Return all entries of a tensor."""
        return self._asked(name, lambda: self.inner.value(name))

    def blocks(self, name: str) -> Iterator[Tensor]:
        """Iterate over the entries of a tensor in blocks."""
        blocks = self._asked(name, lambda: self.inner.blocks(name))
        while True:
            block = self._asked(name, lambda: next(blocks, None))
            if block is None:
                return
            yield block

    def reduction(self, name: str, kind: ReductionKind, *, absolute: bool = False) -> float | None:
        """Return a reduction that was saved of a tensor."""
        return self._asked(name, lambda: self.inner.reduction(name, kind, absolute=absolute))

    def earlier(self, name: str, count: int) -> Sequence[StepView]:
        """Return the last steps of the same mode before this one that hold a tensor, the newest first."""
        return self._asked(name, lambda: self.inner.earlier(name, count))

    def other_run(self, run: str) -> StepView | None:
        """Return the same step of another run."""
        return self.inner.other_run(run)

    def _asked(self, name: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except TelemetryFormatError as fault:
            self.faults.setdefault(name, str(fault))
            raise
