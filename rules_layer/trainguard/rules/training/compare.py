"""Two values of a tensor beside each other, block by block: of two steps, or of two runs."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from trainguard.core.errors import TensorMissingError
from trainguard.formats.tensors.step_view import ReductionKind, StepView, Tensor, is_numeric
from trainguard.rules.training.readings import float64

REDUCTIONS: Sequence[ReductionKind] = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2")
SAVED = tuple((kind, absolute) for kind in REDUCTIONS for absolute in (False, True))


def paired(one: Iterator[Tensor], other: Iterator[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut the blocks of two tensors of one size so that they cover the same entries."""
    left, right = _no_entries(), _no_entries()
    while True:
        if not left.size:
            left = next(one, left)
        if not right.size:
            right = next(other, right)
        common = min(left.size, right.size)
        if not common:
            return
        yield left[:common], right[:common]
        left, right = left[common:], right[common:]


def _no_entries() -> NDArray[np.float64]:
    return np.empty(0)


class Closeness:
    """When two values count as equal, as ``numpy.allclose(one, other)`` says it."""

    __slots__ = ("_first", "absolute", "equal_nan", "relative")

    def __init__(self, relative: float, absolute: float, *, equal_nan: bool) -> None:
        self.relative = relative
        self.absolute = absolute
        self.equal_nan = equal_nan
        self._first: Sequence[tuple[ReductionKind, bool]] = ()

    def arrays(self, one: Tensor, other: Tensor) -> bool:
        """Whether two arrays of one shape are equal; text and bools are only where they are the same."""
        if one.dtype.kind in "OSUb" or other.dtype.kind in "OSUb":
            return bool(np.array_equal(one, other))
        with np.errstate(invalid="ignore", over="ignore"):
            return bool(np.allclose(one, other, self.relative, self.absolute, self.equal_nan))

    def tensors(self, one: StepView, other: StepView, name: str) -> bool:
        """Whether a tensor is the same in two steps; TensorMissingError where only equal reductions were saved."""
        if one.has_value(name) and other.has_value(name):
            if self._differ_in_shape(one, other, name):
                return False
            return all(self.arrays(*pair) for pair in paired(one.blocks(name), other.blocks(name)))
        for kind, absolute in (*self._first, *SAVED):
            left = one.reduction(name, kind, absolute=absolute)
            right = None if left is None else other.reduction(name, kind, absolute=absolute)
            if left is not None and right is not None and not self._numbers(left, right):
                # The tensors of a step have the same reductions: what distinguished these is asked first of the next.
                self._first = ((kind, absolute),)
                return False
        if self._differ_in_shape(one, other, name):
            return False
        raise TensorMissingError(name, one.step)

    @staticmethod
    def _differ_in_shape(one: StepView, other: StepView, name: str) -> bool:
        shapes = one.shape(name), other.shape(name)
        return None not in shapes and shapes[0] != shapes[1]

    def _numbers(self, one: float, other: float) -> bool:
        if one == other:
            return True
        if math.isfinite(one) and math.isfinite(other):
            return abs(one - other) <= self.absolute + self.relative * abs(other)
        return self.equal_nan and math.isnan(one) and math.isnan(other)


def furthest(close: Closeness, one: StepView, other: StepView, name: str) -> tuple[float, float] | None:
    """Return by how much the entries differ that are furthest over their tolerance, and that tolerance.

    Saved reductions stand in for entries. None where shapes differ or nothing is finite in both. Raises as
    `StepView.blocks` does.
    """
    if one.has_value(name) and other.has_value(name):
        if one.shape(name) != other.shape(name):
            return None
        pairs = paired(one.blocks(name), other.blocks(name))
    else:
        pairs = iter([_saved(one, other, name)])
    found: tuple[float, float] | None = None
    furthest_over = -math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        for left, right in pairs:
            if not (is_numeric(left) and is_numeric(right)):
                return None
            was = float64(right)
            apart = np.abs(float64(left) - was)
            allowed = close.absolute + close.relative * np.abs(was)
            over = np.where(np.isfinite(apart), apart / allowed, -math.inf)
            place = int(over.argmax()) if over.size else None
            if place is not None and over[place] > furthest_over:
                furthest_over, found = over[place], (float(apart[place]), float(allowed[place]))
    return found


def _saved(one: StepView, other: StepView, name: str) -> tuple[Tensor, Tensor]:
    pairs = [
        (one.reduction(name, kind, absolute=absolute), other.reduction(name, kind, absolute=absolute))
        for kind, absolute in SAVED
    ]
    both = [(left, right) for left, right in pairs if left is not None and right is not None]
    return np.array([left for left, _ in both]), np.array([right for _, right in both])


def change_of(now: StepView, before: StepView, name: str) -> tuple[float, float] | None:
    """Return the L2 norm of a tensor's change and of its value before; None without numbers."""
    change, norm = 0.0, 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for new, old in paired(now.blocks(name), before.blocks(name)):
            if not (is_numeric(new) and is_numeric(old)):
                return None
            was = float64(old)
            apart = float64(new) - was
            change += float(np.dot(apart, apart))
            norm += float(np.dot(was, was))
    return math.sqrt(change), math.sqrt(norm)
