"""What a rule asks of a tensor as a whole, folded over its blocks: no tensor is held, sums are in float64.

Each fold raises TensorMissingError where the step holds no entries, and TelemetryFormatError where they cannot be read;
it returns None of a tensor that holds no numbers. A saved reduction is used where it answers the same question.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainguard.tensors.step_view import StepView, Tensor, is_numeric

Floats = NDArray[np.float64]


def numbers(step: StepView, name: str) -> Iterator[Tensor] | None:
    """Return a tensor's blocks; None where it holds text, bools or complex numbers."""
    blocks = step.blocks(name)
    first = next(blocks, None)
    if first is None or not is_numeric(first):
        return None
    return _again(first, blocks)


def _again(first: Tensor, rest: Iterator[Tensor]) -> Iterator[Tensor]:
    yield first
    yield from rest


def float64(block: Tensor) -> Floats:
    """Return a block as float64[N]; itself where it is so already."""
    return np.asarray(block, np.float64)


def abs_mean(step: StepView, name: str) -> float | None:
    """Return the mean of the absolute values, from a reduction where one was saved."""
    saved = step.reduction(name, "mean", absolute=True)
    if saved is not None:
        return saved
    blocks = numbers(step, name)
    if blocks is None:
        return None
    total, count = 0.0, 0
    with np.errstate(over="ignore", invalid="ignore"):
        for block in blocks:
            total += float(np.abs(float64(block)).sum())
            count += block.size
    return total / count


def mean(step: StepView, name: str) -> float | None:
    """Return the mean of all entries, from a reduction where only reductions were saved."""
    if not step.has_value(name):
        saved = step.reduction(name, "mean")
        if saved is not None:
            return saved
    moments = moments_of(step, name)
    return None if moments is None else moments.mean


class Moments(NamedTuple):
    """Mean and population variance of numbers."""

    mean: float
    variance: float


def moments_of(step: StepView, name: str) -> Moments | None:
    """Return the moments of all entries; blocks are merged by Chan's formula, so that nothing cancels."""
    blocks = numbers(step, name)
    if blocks is None:
        return None
    count, average, squares = 0, 0.0, 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for block in blocks:
            values = float64(block)
            own = float(values.mean())
            apart, total = own - average, count + values.size
            # An infinite mean has no distance to another: what it meets is infinite or undefined, never a number.
            squares += float(np.square(values - own).sum()) + apart * apart * (count * values.size / total)
            average += apart * (values.size / total)
            count = total
    return Moments(average, squares / count)


def variance(step: StepView, name: str) -> float | None:
    """Return the population variance, from a reduction where one was saved."""
    saved = step.reduction(name, "variance")
    if saved is not None:
        return saved
    if not step.has_value(name):
        deviation = step.reduction(name, "std")
        if deviation is not None:
            return deviation * deviation
    moments = moments_of(step, name)
    return None if moments is None else moments.variance


class NotFinite(NamedTuple):
    """How many entries a tensor has, how many are NaN, and how many infinite."""

    size: int
    nan: int
    infinite: int


def not_finite(step: StepView, name: str) -> NotFinite | None:
    """Count the entries that are no finite numbers; None of a tensor that holds whole numbers, bools or text."""
    size, nan, infinite = 0, 0, 0
    for block in step.blocks(name):
        if not np.issubdtype(block.dtype, np.inexact):
            return None
        size += block.size
        finite = np.isfinite(block)
        if not finite.all():
            undefined = int(np.isnan(block).sum())
            nan += undefined
            infinite += block.size - int(finite.sum()) - undefined
    return NotFinite(size, nan, infinite)


class Zeros(NamedTuple):
    """How many entries a tensor has, and how many of them are zero."""

    size: int
    zeros: int

    @property
    def percent(self) -> float:
        """Share of zeros."""
        return 100.0 * self.zeros / self.size


def zeros(step: StepView, name: str) -> Zeros | None:
    """Count the entries that are zero, of numbers or bools; None of text, and of a tensor without entries."""
    size, found = 0, 0
    for block in step.blocks(name):
        if not (np.issubdtype(block.dtype, np.number) or block.dtype == np.bool_):
            return None
        size += block.size
        found += block.size - int(np.count_nonzero(block))
    return Zeros(size, found) if size else None


def scalar(step: StepView, name: str) -> float | None:
    """Return the one number of a tensor that has one; None of any other tensor."""
    shape = step.shape(name)
    if shape is None or math.prod(shape) != 1:
        return None
    if not step.has_value(name):
        return step.reduction(name, "mean")
    blocks = numbers(step, name)
    return None if blocks is None else float(next(blocks)[0])
