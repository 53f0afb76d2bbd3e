"""Questions to a tensor, or to two beside each other, folded over blocks, and the check of a step by its worst tensor.

No tensor is held, sums are in float64. Each fold raises TensorMissingError without entries and TelemetryFormatError
where they cannot be read; it returns None of a tensor that holds no numbers.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainguard.core.errors import TensorMissingError
from trainguard.core.finding import Fact
from trainguard.formats.tensors.step_view import ReductionKind, StepView, Tensor, is_numeric
from trainguard.rules.training.step_rule import USELESS, Check, StepState

Floats = NDArray[np.float64]


def numbers(step: StepView, name: str) -> Iterator[Tensor] | None:
    """Return a tensor's blocks; None where it holds text, bools or complex numbers."""
    blocks = step.blocks(name)
    first = next(blocks, None)
    if first is None or not is_numeric(first):
        return None
    return chain([first], blocks)


def float64(block: Tensor) -> Floats:
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
    return None if moments is None else moments[0]


def moments_of(step: StepView, name: str) -> tuple[float, float] | None:
    """Return mean and population variance; blocks are merged by Chan's formula, so that nothing cancels."""
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
    return average, squares / count


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
    return None if moments is None else moments[1]


def not_finite(step: StepView, name: str) -> tuple[int, int, int] | None:
    """Count all entries, those that are NaN and the infinite ones; None of whole numbers, bools or text."""
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
    return size, nan, infinite


def zeros(step: StepView, name: str) -> float | None:
    """Return the percentage of zeros, of numbers or bools; None of text, and of a tensor without entries."""
    size, found = 0, 0
    for block in step.blocks(name):
        if not (np.issubdtype(block.dtype, np.number) or block.dtype == np.bool_):
            return None
        size += block.size
        found += block.size - int(np.count_nonzero(block))
    return 100.0 * found / size if size else None


def scalar(step: StepView, name: str) -> float | None:
    """Return the one number of a tensor that has one; None of any other tensor."""
    shape = step.shape(name)
    if shape is None or math.prod(shape) != 1:
        return None
    if not step.has_value(name):
        return step.reduction(name, "mean")
    blocks = numbers(step, name)
    return None if blocks is None else float(next(blocks)[0])


T = TypeVar("T")


class MetricReading(NamedTuple):
    """A measurement of one tensor, None where none was measured; ``over`` ranks readings, the worst highest."""

    tensor: str | None
    value: float
    threshold: float | None
    fires: bool
    over: float
    kind: str | None = None


def above(tensor: str, value: float, threshold: float) -> MetricReading:
    return MetricReading(tensor, value, threshold, value > threshold, value)


def used(state: StepState, fold: Callable[[StepView, str], T], step: StepView, tensor: str) -> T | None:
    """Fold a tensor; where it cannot be used, count it and return None."""
    try:
        return fold(step, tensor)
    except USELESS as fault:
        state.leave_out(str(fault))
        return None


def known(
    state: StepState, fold: Callable[[StepView, str], T | None], step: StepView, tensors: Iterable[str]
) -> list[tuple[T, str]]:
    """Fold tensors; return those that could be used and hold numbers, each as its result and its name."""
    found = [(used(state, fold, step, tensor), tensor) for tensor in tensors]
    return [(value, tensor) for value, tensor in found if value is not None]


def not_saved(state: StepState, step: StepView, tensor: str) -> bool:
    """Whether only reductions of a tensor were saved, which do not answer the question; it is counted then."""
    if step.has_value(tensor):
        return False
    state.leave_out(f"of tensor {tensor} at step {step.step} only reductions were saved")
    return True


def checked(
    step: StepView,
    readings: Sequence[MetricReading],
    facts: Callable[[MetricReading], Sequence[Fact]] | tuple[str, str],
    *,
    kinds: tuple[str, str] | None = None,
    judged: int | None = None,
) -> Check | None:
    """Return the check of a step by facts, None without a reading.

    ``facts`` are those of one reading, or name and unit of what was measured, where that is the only one.

    ``step`` is added, and of several readings that fire ``firing`` and ``judged``: how many, of how many. ``kinds`` are
    those of a reading that fires and of one that does not, where readings have none of their own.
    """
    if not readings:
        return None
    worst = worst_of(readings)
    shown = (measured(facts[0], worst, facts[1]),) if isinstance(facts, tuple) else facts(worst)
    firing = sum(reading.fires for reading in readings)
    several = (
        Fact(name="firing", value=firing),
        Fact(name="judged", value=len(readings) if judged is None else judged),
    )
    return step_check(
        step,
        (*shown, *(several if firing > 1 else ())),
        fires=worst.fires,
        tensor=worst.tensor,
        value=worst.value if math.isfinite(worst.value) else None,
        threshold=worst.threshold,
        kind=worst.kind if kinds is None else kinds[not worst.fires],
    )


def step_check(step: StepView, facts: Iterable[Fact], **more: Any) -> Check:
    """Return a check of a step by facts, to which its number is added; ``more`` are other fields."""
    return Check(step=step.step, at=step.at, facts=(step_fact(step), *facts), **more)


def step_fact(step: StepView) -> Fact:
    """Return the number of a step, with the time at which it was saved where it says that itself."""
    at = step.at if step.timed else None
    return Fact(name="step", value=step.step, unit="steps", start=at, end=at)


def worst_of(readings: Sequence[MetricReading]) -> MetricReading:
    """Return the first of the readings that rank highest: there may be thousands a step."""
    held = [each for each in readings if each.fires] or readings
    over = [each.over for each in held]
    if math.isnan(sum(over)):
        return max(held, key=rank)
    return held[over.index(max(over))]


def rank(reading: MetricReading) -> tuple[bool, float]:
    """Order readings: those that fire last, then by how far over they are; one that is no number comes first."""
    return reading.fires, -math.inf if math.isnan(reading.over) else reading.over


def measured(name: str, reading: MetricReading, unit: str = "") -> Fact:
    """Return what was measured of a tensor as a fact; one that is not finite is text, as JSON has no number for it."""
    value = reading.value if math.isfinite(reading.value) else f"{reading.value:g}"
    return Fact(name=name, value=value, unit=unit, series=reading.tensor, threshold=reading.threshold)


REDUCTIONS: Sequence[ReductionKind] = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2")
SAVED = tuple((kind, absolute) for kind in REDUCTIONS for absolute in (False, True))


def paired(one: Iterator[Tensor], other: Iterator[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut the blocks of two tensors of one size so that they cover the same entries."""
    left = right = np.empty(0)
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
        if np.array_equal(one, other):
            return True
        if one.dtype.kind in "OSUb" or other.dtype.kind in "OSUb":
            return False
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
        pairs = iter([_saved_pairs(one, other, name)])
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


def _saved_pairs(one: StepView, other: StepView, name: str) -> tuple[Tensor, Tensor]:
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
