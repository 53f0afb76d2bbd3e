"""One complete training step as rules see it, whatever format it was saved in."""

from collections.abc import Iterator, Sequence, Set
from enum import StrEnum
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

ReductionKind = Literal["min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2"]
Tensor = NDArray[Any]


class Mode(StrEnum):
    """What the script was doing at a step; GLOBAL where it does not say."""

    TRAIN = "TRAIN"
    EVAL = "EVAL"
    PREDICT = "PREDICT"
    GLOBAL = "GLOBAL"


class StepView(Protocol):
    """One complete step of one run.

    A tensor of which only reductions were saved is in ``names`` under its own name. Of several workers' values the
    first one's in sorted order counts.
    """

    @property
    def step(self) -> int:
        """Number of the step over all modes; what parameters such as ``start_step`` count."""
        ...

    @property
    def mode(self) -> Mode: ...

    @property
    def mode_step(self) -> int:
        """Number of the step within its mode."""
        ...

    @property
    def at(self) -> float:
        """When the step was saved, epoch seconds."""
        ...

    @property
    def timed(self) -> bool:
        """Whether ``at`` is of the step itself, and not of the file that holds it with others."""
        ...

    @property
    def logged(self) -> bool:
        """Whether the step is a row of a log of single numbers, and not of saved tensors."""
        ...

    @property
    def names(self) -> Sequence[str]: ...

    def members(self, collection: str) -> Set[str]:
        """Return those of ``names`` that a collection holds; none where the run has no such collection."""
        ...

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return a tensor's shape; None where only reductions of it were saved and no shape."""
        ...

    def has_value(self, name: str) -> bool:
        """Whether the step holds all entries of a tensor, and not only reductions."""
        ...

    def value(self, name: str) -> Tensor:
        """Return all entries of a tensor.

        Raises TensorMissingError where the step holds none of them, TelemetryFormatError where they cannot be read, and
        TensorTooLargeError for more than a rule may hold in memory: fold ``blocks`` instead.
        """
        ...

    def blocks(self, name: str) -> Iterator[Tensor]:
        """Iterate over entries in C order, one-dimensional and bounded; raises as `value`, but TensorTooLargeError."""
        ...

    def reduction(self, name: str, kind: ReductionKind, *, absolute: bool = False) -> float | None:
        """Return a reduction that was saved of a tensor, of its absolute values or not; None where none was."""
        ...

    def earlier(self, name: str, count: int) -> Sequence["StepView"]:
        """Return the last steps of the same mode before this one that hold a tensor, the newest first.

        At most ``count``, and none that lies further back than the run's history reaches.
        """
        ...

    def other_run(self, run: str) -> "StepView | None":
        """Return the same step of another run, a job or a folder; None where it has none. Raises RunMissingError."""
        ...


def is_numeric(tensor: Tensor) -> bool:
    """Whether a tensor holds real numbers: neither text, bools nor complex numbers."""
    return tensor.dtype.kind in "iuf"
