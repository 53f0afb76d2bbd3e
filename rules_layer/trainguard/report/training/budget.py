"""How much of a run's tensors a digest reads, and what it left out for that."""

import math
from collections.abc import Callable
from typing import TypeVar

import msgspec

from trainguard.rules.training.step_rule import USELESS
from trainguard.tensors.step_view import StepView

MOST_BYTES = 1 << 30
MOST_SCALARS = 50_000
"""Numbers that are read one by one; after them a series reads as many as it shows."""

SHARE_OF_STEP = 32
"""One step may take so small a part of what is left: early steps leave something to later ones."""

_ENTRY_BYTES = 4
LONGEST_WHY = 300

T = TypeVar("T")


class ReadBudget(msgspec.Struct, kw_only=True):
    """What may still be read.

    Attributes
    ----------
    bytes_left : int
        Of tensors' entries, at four bytes each.
    scalars_left : int
        Losses and metrics.
    refused : int
        Reads that were not made because they would have taken too much.
    failed : int
        Reads of which the tensor could not be used.
    failed_why : str or None
        Why the last one could not.
    """

    bytes_left: int = MOST_BYTES
    scalars_left: int = MOST_SCALARS
    refused: int = 0
    failed: int = 0
    failed_why: str | None = None

    def scalar(self, fold: Callable[[StepView, str], T], step: StepView, name: str) -> T | None:
        """Fold a loss or a metric; None where it cannot be used."""
        self.scalars_left = max(self.scalars_left - 1, 0)
        return self.tried(fold, step, name)

    def tensor(
        self, fold: Callable[[StepView, str], T], step: StepView, name: str, allowance: "Allowance", *, times: int = 1
    ) -> T | None:
        """Fold a tensor whose entries are read ``times`` times; None where it is too large, or cannot be used."""
        size = self.tried(_entries, step, name)
        if size is None:
            return None
        size *= _ENTRY_BYTES * times
        if size > allowance.bytes_left:
            self.refused += 1
            return None
        allowance.bytes_left -= size
        self.bytes_left -= size
        return self.tried(fold, step, name)

    def of_step(self) -> "Allowance":
        """Return what one step may take."""
        return Allowance(self.bytes_left // SHARE_OF_STEP)

    def tried(self, fold: Callable[[StepView, str], T], step: StepView, name: str) -> T | None:
        """Fold a tensor, whatever it takes; where it cannot be used, count it and return None."""
        try:
            return fold(step, name)
        except USELESS as fault:
            self.failed += 1
            self.failed_why = str(fault)[:LONGEST_WHY]
            return None


def _entries(step: StepView, name: str) -> int:
    """Return how many entries are to be read; none where reductions alone were saved."""
    shape = step.shape(name)
    return 0 if shape is None or not step.has_value(name) else math.prod(shape)


class Allowance:
    """How many bytes may still be read of a step."""

    __slots__ = ("bytes_left",)

    def __init__(self, bytes_left: int) -> None:
        self.bytes_left = bytes_left
