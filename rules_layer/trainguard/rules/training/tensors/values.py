"""AllZero and TensorVariance: a tensor's zeros and variance. Source: AWS documentation."""

import math
from dataclasses import replace
from typing import ClassVar

from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import Percent
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import MetricReading, checked, known, not_saved, variance, zeros
from trainguard.rules.training.step_rule import Check, SelectingParameters, StepRule, StepState
from trainguard.rules.training.step_words import SELECTION_HELP, SELECTS, step_spec, worded

ZERO_KINDS = ("zeros", "fine")
# Which threshold TensorVariance compares with; the status says whether it is crossed.
HIGH, LOW, UNSET = "high", "low", "no threshold"

_VARIANCE = "the variance of {variance.series} {was/is} {variance}"


_of_variance = worded(
    {
        HIGH: f"{_VARIANCE}, {{variance:against above|not above}}",
        LOW: f"{_VARIANCE}, {{variance:against below|not below}}",
        UNSET: f"{_VARIANCE}, and no threshold is set",
    },
    {
        HIGH: "Look at the scale of what enters {variance.series}: inputs, initialisation, normalisation, "
        "learning rate.",
        LOW: "All entries of {variance.series} are nearly the same: look at the initialisation and at dead inputs.",
    },
    "the variance of a tensor left its range",
)


def _variance_words(sheet: FactSheet) -> Words:
    """Say on which side of its threshold a variance is; NaN may be compared with one that is not set."""
    return _of_variance(replace(sheet, kind=UNSET) if sheet["variance"].threshold is None else sheet)


class AllZeroParameters(SelectingParameters, frozen=True, kw_only=True):
    required: ClassVar[bool] = True

    threshold: Percent = 100.0


class AllZero(StepRule[AllZeroParameters, StepState]):
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
        on_scalars=SELECTS,
        of_losses=False,
        changes={"": ChangeCode.FIX_INITIALISATION},
        say=worded(
            "{zeros} % of {zeros.series} {was/is} zero, {zeros:against not below|below} %",
            "Check that {zeros.series} is reached and updated: initialisation, masks, activations that are always "
            "negative before a ReLU, input that was not filled.",
            "a tensor was zero",
        ),
        kinds=ZERO_KINDS,
    )

    def check(self, state: StepState, step: StepView, parameters: AllZeroParameters) -> Check | None:
        threshold = parameters.threshold
        tensors = parameters.tensors(step)
        found = known(state, lambda view, name: _percent(state, view, name, threshold), step, tensors)
        first: dict[float, MetricReading] = {}
        readings = [
            first.setdefault(percent, MetricReading(tensor, percent, threshold, percent >= threshold, percent))
            for percent, tensor in found
        ]
        return checked(step, readings, ("zeros", "%"), kinds=ZERO_KINDS)


def _percent(state: StepState, step: StepView, tensor: str, threshold: float) -> float | None:
    if step.has_value(tensor):
        return zeros(step, tensor)
    size = step.reduction(tensor, "mean", absolute=True)
    if size is None:
        size = step.reduction(tensor, "l1")
    if size == 0.0:
        return 100.0
    # A size that is not zero leaves open how many entries are; one that is undefined says nothing.
    if size is not None and not math.isnan(size) and threshold >= 100.0:
        return 0.0
    least, most = step.reduction(tensor, "min"), step.reduction(tensor, "max")
    highest = step.reduction(tensor, "max", absolute=True)
    lowest = step.reduction(tensor, "min", absolute=True)
    if highest == 0.0 or (least == 0.0 and most == 0.0):
        return 100.0
    some_entry = highest is not None or (least is not None and most is not None)
    other = any(each is not None and each > 0.0 for each in (lowest, least)) or (most is not None and most < 0.0)
    if other or (some_entry and threshold >= 100.0):
        return 0.0
    not_saved(state, step, tensor)
    return None


class TensorVarianceParameters(SelectingParameters, frozen=True, kw_only=True):
    required: ClassVar[bool] = True

    max_threshold: float | None = None
    min_threshold: float | None = None


class TensorVariance(StepRule[TensorVarianceParameters, StepState]):
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
        on_scalars=SELECTS,
        of_losses=False,
        changes={"": ChangeCode.FIX_INITIALISATION},
        say=_variance_words,
        kinds=(HIGH, LOW, UNSET),
    )

    def check(self, state: StepState, step: StepView, parameters: TensorVarianceParameters) -> Check | None:
        def variance_of(view: StepView, tensor: str) -> float | None:
            saved = view.reduction(tensor, "variance")
            if saved is not None:
                return saved
            if view.reduction(tensor, "std") is None and not_saved(state, view, tensor):
                return None
            return variance(view, tensor)

        most, least = parameters.max_threshold, parameters.min_threshold
        readings = []
        for value, tensor in known(state, variance_of, step, parameters.tensors(step)):
            above = -math.inf if most is None else value - most
            below = -math.inf if least is None else least - value
            if above >= below:
                readings.append(MetricReading(tensor, value, most, above > 0.0, above, UNSET if most is None else HIGH))
            else:
                readings.append(MetricReading(tensor, value, least, below > 0.0, below, LOW))
        return checked(step, readings, ("variance", ""))
