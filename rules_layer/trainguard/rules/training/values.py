"""AllZero and TensorVariance: a tensor's zeros, and its population variance. Source: AWS documentation of both."""

import math
from typing import ClassVar

from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.protocol import Percent
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import Reading, checked, known, measured, not_saved, variance, zeros
from trainguard.rules.training.step_rule import Check, SelectingParameters, StepRule, StepState
from trainguard.rules.training.step_words import SELECTION_HELP, against, be, said, shown, step_spec

ZEROS = "zeros"
VARIANCE = "variance"


ZERO_KINDS = ("zeros", "fine")
HIGH, LOW, UNSET = "high", "low", "no threshold"
"""Which threshold TensorVariance compares with; the status says whether it is crossed."""


def _zero_words(sheet: FactSheet) -> Words:
    zeros = sheet[ZEROS]
    compared = against(sheet, ZEROS, "not below", "below", " %")
    return said(
        sheet,
        f"{shown(zeros)} % of {zeros.series} {be(sheet)} zero, {compared}",
        f"Check that {zeros.series} is reached and updated: initialisation, masks, activations that are always "
        "negative before a ReLU, input that was not filled.",
        "a tensor was zero",
    )


def _variance_words(sheet: FactSheet) -> Words:
    variance, low = sheet[VARIANCE], sheet.kind == LOW
    sentence = f"the variance of {variance.series} {be(sheet)} {shown(variance)}"
    if variance.threshold is None:
        return said(sheet, f"{sentence}, and no threshold is set", "", "")
    advice = (
        f"Look at the scale of what enters {variance.series}: inputs, initialisation, normalisation, learning rate."
    )
    if low:
        advice = f"All entries of {variance.series} are nearly the same: look at the initialisation and at dead inputs."
    compared = against(sheet, VARIANCE, *(("below", "not below") if low else ("above", "not above")))
    return said(sheet, f"{sentence}, {compared}", advice, "the variance of a tensor left its range")


class AllZeroParameters(SelectingParameters, frozen=True, kw_only=True):
    """``threshold`` in percent of a tensor's entries."""

    required: ClassVar[bool] = True

    threshold: Percent = 100.0


class AllZero(StepRule[AllZeroParameters, StepState]):
    """Fires while a tensor, or the given share of it, is zero."""

    spec = step_spec(
        "AllZero",
        title="Zero tensors",
        looks_at="the selected tensors",
        fires_when="all entries of one are zero, or the given share of them",
        condition="{threshold} % of a tensor's entries or more are zero",
        measures=(Measure("share of zeros", "%"),),
        parameters={
            **SELECTION_HELP,
            "threshold": ParameterHelp("%", "a tensor with this share of zeros, or more, counts"),
        },
        needs=(
            "It checks the tensors that collection_names and tensor_regex select: record them with a CollectionConfig, "
            "in full unless the threshold is 100 %."
        ),
        say=_zero_words,
        kinds=ZERO_KINDS,
    )

    def check(self, state: StepState, step: StepView, parameters: AllZeroParameters) -> Check | None:
        """Count the zeros of each tensor, or see in its size or its extremes whether it is all zero."""
        threshold = parameters.threshold

        def percent_of(view: StepView, tensor: str) -> float | None:
            return _percent(state, view, tensor, threshold)

        found = known(state, percent_of, step, parameters.tensors(step))
        first: dict[float, Reading] = {}
        readings = [
            first.setdefault(percent, Reading(tensor, percent, threshold, percent >= threshold, percent))
            for percent, tensor in found
        ]
        return checked(step, readings, lambda reading: (measured(ZEROS, reading, "%"),), kinds=ZERO_KINDS)


def _percent(state: StepState, step: StepView, tensor: str, threshold: float) -> float | None:
    if step.has_value(tensor):
        return zeros(step, tensor)
    share = _found_by_size(step, tensor, threshold)
    if share is None:
        share = _found_by_extremes(step, tensor, threshold)
    if share is None:
        not_saved(state, step, tensor)
    return share


def _found_by_size(step: StepView, tensor: str, threshold: float) -> float | None:
    size = step.reduction(tensor, "mean", absolute=True)
    if size is None:
        size = step.reduction(tensor, "l1")
    if size is None or math.isnan(size):
        return None
    if size == 0.0:
        return 100.0
    return 0.0 if threshold >= 100.0 else None


def _found_by_extremes(step: StepView, tensor: str, threshold: float) -> float | None:
    least, most = step.reduction(tensor, "min"), step.reduction(tensor, "max")
    highest = step.reduction(tensor, "max", absolute=True)
    lowest = step.reduction(tensor, "min", absolute=True)
    if highest == 0.0 or (least == 0.0 and most == 0.0):
        return 100.0
    if _is_above_zero(lowest) or _is_above_zero(least) or (most is not None and most < 0.0):
        return 0.0
    some_entry = highest is not None or (least is not None and most is not None)
    return 0.0 if some_entry and threshold >= 100.0 else None


def _is_above_zero(value: float | None) -> bool:
    return value is not None and value > 0.0


class TensorVarianceParameters(SelectingParameters, frozen=True, kw_only=True):
    """Thresholds are variances; None leaves one out."""

    required: ClassVar[bool] = True

    max_threshold: float | None = None
    min_threshold: float | None = None


class TensorVariance(StepRule[TensorVarianceParameters, StepState]):
    """Fires while the variance of a tensor is out of range."""

    spec = step_spec(
        "TensorVariance",
        title="Variance of tensors",
        looks_at="the selected tensors",
        fires_when="the variance of one is above the one threshold or below the other",
        condition="the variance of a tensor is above {max_threshold} or below {min_threshold}",
        measures=(Measure("variance"),),
        parameters={
            **SELECTION_HELP,
            "max_threshold": ParameterHelp("", "a variance above it is too high; None leaves it out"),
            "min_threshold": ParameterHelp("", "a variance below it is too low; None leaves it out"),
        },
        needs=(
            "It checks the tensors that collection_names and tensor_regex select: record them, in full or as reduction "
            "variance, with a CollectionConfig."
        ),
        say=_variance_words,
        kinds=(HIGH, LOW, UNSET),
    )

    def check(self, state: StepState, step: StepView, parameters: TensorVarianceParameters) -> Check | None:
        """Compare each tensor's variance with both thresholds."""

        def variance_of(view: StepView, tensor: str) -> float | None:
            """Return a variance; None where other reductions alone were saved, which is counted."""
            saved = view.reduction(tensor, "variance")
            if saved is not None:
                return saved
            if view.reduction(tensor, "std") is None and not_saved(state, view, tensor):
                return None
            return variance(view, tensor)

        found = known(state, variance_of, step, parameters.tensors(step))
        readings = [_variance_reading(tensor, value, parameters) for value, tensor in found]
        return checked(step, readings, lambda reading: (measured(VARIANCE, reading),))


def _variance_reading(tensor: str, value: float, parameters: TensorVarianceParameters) -> Reading:
    above = -math.inf if parameters.max_threshold is None else value - parameters.max_threshold
    below = -math.inf if parameters.min_threshold is None else parameters.min_threshold - value
    if above >= below:
        kind = UNSET if parameters.max_threshold is None else HIGH
        return Reading(tensor, value, parameters.max_threshold, above > 0.0, above, kind)
    return Reading(tensor, value, parameters.min_threshold, below > 0.0, below, LOW)
