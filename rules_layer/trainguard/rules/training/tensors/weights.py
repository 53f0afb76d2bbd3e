"""VanishingGradient, WeightUpdateRatio and PoorWeightInitialization: gradients and weights of too little or too much.

Source: AWS documentation of the three. Ratios of a weight are of L2 norms: element by element some entry nearly always
stays the same. Of a poor initialisation each sign fires alone, as in a public run.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from trainguard.formats.tensors.step_view import Mode, StepView, is_numeric
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import (
    MetricReading,
    abs_mean,
    change_of,
    checked,
    float64,
    known,
    measured,
    not_saved,
    rank,
    variance,
)
from trainguard.rules.training.run_series import mean_loss
from trainguard.rules.training.selection import GRADIENTS, LOSSES, WEIGHTS, matching
from trainguard.rules.training.step_rule import USELESS, Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import filled_each, said, step_spec, worded

ZERO, VANISHED, FINE = "zero", "vanished", "fine"
# Which threshold WeightUpdateRatio compares with; the status says whether it is crossed.
LARGE, SMALL = "large", "small"

_CHANGED = (
    "{relative_change.series} changed by {relative_change} of its norm since its saved step before, "
    "{relative_change:against "
)


class VanishingGradientParameters(StepParameters, frozen=True, kw_only=True):
    threshold: NonNegative = 1e-7


class VanishingGradient(StepRule[VanishingGradientParameters, StepState]):
    spec = step_spec(
        "VanishingGradient",
        title="Vanishing gradients",
        looks_at="each tensor of the collection gradients",
        fires_when="the mean of its absolute values is nearly zero",
        condition="the mean absolute value of a gradient is below {threshold}",
        measures=(Measure("mean absolute gradient"),),
        parameters={"threshold": ParameterHelp("", "a gradient whose mean absolute value is below it has vanished")},
        needs=(
            "It checks the tensors of the collection gradients: record them, in full or as reduction abs_mean, "
            "with CollectionConfig(name='gradients')."
        ),
        changes={"": ChangeCode.CHANGE_ACTIVATIONS, ZERO: ChangeCode.CHECK_TRAINING_LOOP},
        say=worded(
            "the mean absolute value of {mean_absolute_gradient.series} {was/is} {mean_absolute_gradient}, "
            "{mean_absolute_gradient:against below|not below}",
            {
                ZERO: "Check that {mean_absolute_gradient.series} has a path to the loss: a gradient of exactly zero "
                "means a detached, frozen or dead part of the model, or underflow where gradients are float16 without "
                "loss scaling.",
                VANISHED: "Use activations that do not saturate, residual connections or normalisation, and an "
                "initialisation that fits the activation. In float16 raise the loss scale.",
            },
            "gradients vanished",
        ),
        kinds=(ZERO, VANISHED, FINE),
    )

    def check(self, state: StepState, step: StepView, parameters: VanishingGradientParameters) -> Check | None:
        threshold = parameters.threshold
        found = known(state, abs_mean, step, sorted(step.members(GRADIENTS)))
        # A gradient of exactly zero says that nothing reaches the loss.
        readings = [
            MetricReading(tensor, value, threshold, True, -value, ZERO if value == 0.0 else VANISHED)
            for value, tensor in found
            if value < threshold
        ]
        if found and not readings:
            value, tensor = min([each for each in found if not math.isnan(each[0])] or found)
            readings = [MetricReading(tensor, value, threshold, False, -value, FINE)]
        return checked(step, readings, ("mean_absolute_gradient", ""), judged=len(found))


class WeightUpdateRatioParameters(StepParameters, frozen=True, kw_only=True):
    num_steps: PositiveInt | None = None
    large_threshold: NonNegative = 10.0
    small_threshold: NonNegative = 1e-8
    epsilon: NonNegative = 1e-9


class WeightUpdateRatioState(StepState, kw_only=True):
    """``training`` says whether weights were saved at a step of mode TRAIN: from then on only those count."""

    training: bool = False


class WeightUpdateRatio(StepRule[WeightUpdateRatioParameters, WeightUpdateRatioState]):
    spec = step_spec(
        "WeightUpdateRatio",
        title="Weight updates",
        looks_at="each tensor of the collection weights",
        fires_when="it changes by far too much between two saved steps, or not at all",
        condition=(
            "the change of a weight, relative to its norm before, is above {large_threshold} or below {small_threshold}"
        ),
        measures=(Measure("change of a weight relative to its norm"),),
        parameters={
            "num_steps": ParameterHelp(
                "steps", "how far back the value before may lie; None for the saved step before"
            ),
            "large_threshold": ParameterHelp("", "a ratio above it is too large"),
            "small_threshold": ParameterHelp("", "a ratio below it is too small"),
            "epsilon": ParameterHelp("", "is added to the norm before, so that a zero weight has a ratio"),
        },
        needs=(
            "It checks the tensors of the collection weights: record them in full, at two steps or more, with "
            "CollectionConfig(name='weights')."
        ),
        changes={"": ChangeCode.LOWER_LEARNING_RATE, SMALL: ChangeCode.CHECK_TRAINING_LOOP},
        say=worded(
            {LARGE: _CHANGED + "above|not above}", SMALL: _CHANGED + "below|not below}"},
            {
                LARGE: "Lower the learning rate or clip gradients: one update changes the weight by more than it "
                "holds.",
                SMALL: "Check that the optimizer holds {relative_change.series} and that its gradient is not zero, or "
                "raise the learning rate. A layer that is frozen on purpose always fires: leave it out of the "
                "collection weights.",
            },
            "weights changed too much or not at all",
        ),
        kinds=(LARGE, SMALL),
    )

    def watch(self, state: WeightUpdateRatioState, step: StepView, parameters: WeightUpdateRatioParameters) -> None:
        state.training = state.training or (step.mode is Mode.TRAIN and bool(step.members(WEIGHTS)))

    def check(
        self, state: WeightUpdateRatioState, step: StepView, parameters: WeightUpdateRatioParameters
    ) -> Check | None:
        """Compare each weight with its value before; a run without modes is judged as a whole."""
        self.watch(state, step, parameters)
        if step.mode is not (Mode.TRAIN if state.training else Mode.GLOBAL):
            return None
        large, small = parameters.large_threshold, parameters.small_threshold
        readings, waits = [], False
        for tensor in sorted(step.members(WEIGHTS)):
            before = _before(step, tensor, parameters.num_steps)
            if before is None:
                waits = True
                continue
            ratio = _ratio(state, step, before, tensor, parameters.epsilon)
            if ratio is None:
                continue
            over, under = ratio / large if large else math.inf, small / ratio if ratio else math.inf
            if ratio < small or (under > over and not ratio > large):
                readings.append(MetricReading(tensor, ratio, small, ratio < small, under, SMALL))
            else:
                readings.append(MetricReading(tensor, ratio, large, ratio > large, over, LARGE))
        state.waiting += waits
        return checked(step, readings, ("relative_change", ""))


def _before(step: StepView, tensor: str, num_steps: int | None) -> StepView | None:
    if num_steps is None:
        return next(iter(step.earlier(tensor, 1)), None)
    within = [view for view in step.earlier(tensor, num_steps) if view.step >= step.step - num_steps]
    return next(reversed(within), None)


def _ratio(state: StepState, step: StepView, before: StepView, tensor: str, epsilon: float) -> float | None:
    if not_saved(state, step, tensor) or not_saved(state, before, tensor):
        return None
    try:
        if step.shape(tensor) != before.shape(tensor):
            state.leave_out(f"tensor {tensor} has another shape at step {step.step} than at step {before.step}")
            return None
        found = change_of(step, before, tensor)
    except USELESS as fault:
        state.leave_out(str(fault))
        return None
    if found is None:
        return None
    change, norm = found
    return change / (norm + epsilon) if norm + epsilon else math.inf if change else 0.0


# Which condition is nearest to firing; the status says whether it holds.
VARIANCE, SPREAD, LOSS = "variance", "spread", "loss"

_FACTS = {VARIANCE: "variance_ratio", SPREAD: "gradient_range", LOSS: "steps_without_lower_loss"}
_CONDITIONS = {
    "variance_ratio": (
        "the variance of {variance_ratio.series} {was/is} {variance_ratio} times the least of the activation inputs, "
        "{variance_ratio:against above|not above}"
    ),
    "gradient_range": (
        "the range of {gradient_range.series} (5th to 95th percentile) {was/is} {gradient_range}, "
        "{gradient_range:against below|not below}"
    ),
    "steps_without_lower_loss": (
        "the loss ({steps_without_lower_loss.series}) {had/has} not fallen below its best for "
        "{steps_without_lower_loss:counted saved step}, {steps_without_lower_loss:side not below|below} the threshold "
        "{steps_without_lower_loss.threshold:.0f}"
    ),
}


def _initialization(sheet: FactSheet) -> Words:
    advice = (
        "Initialise each layer for its fan-in and activation (Kaiming for ReLU, Xavier for tanh), or normalise "
        "between layers. Start again: what begins badly rarely recovers."
    )
    if sheet.kind == LOSS:
        advice = "Check the learning rate and the initialisation: from a good start the first steps lower the loss."
    return said(sheet, filled_each(sheet, _CONDITIONS), advice, "weights were initialised poorly")


class PoorWeightInitializationParameters(StepParameters, frozen=True, kw_only=True):
    activation_inputs_regex: str = ".*relu_input"
    threshold: NonNegative = 10.0
    distribution_range: NonNegative = 0.001
    patience: PositiveInt = 5
    steps: PositiveInt = 10


class PoorWeightInitializationState(StepState, kw_only=True):
    """The best loss so far, and for how many saved steps none was below it."""

    best: float | None = None
    waited: int = 0


class PoorWeightInitialization(StepRule[PoorWeightInitializationParameters, PoorWeightInitializationState]):
    spec = step_spec(
        "PoorWeightInitialization",
        title="Weight initialisation",
        looks_at="activation inputs, gradients and losses of the first saved steps",
        fires_when="layers differ too much in variance, gradients have no spread, or the loss does not fall",
        condition=(
            "within {steps} saved steps the variances of activation inputs differ by a factor of more than "
            "{threshold}, the range of a gradient is below {distribution_range}, or the loss does not fall for "
            "{patience} saved steps"
        ),
        measures=(
            Measure("ratio of the greatest to the least variance"),
            Measure("range of a gradient, 5th to 95th percentile"),
            Measure("saved steps without a lower loss"),
        ),
        parameters={
            "activation_inputs_regex": ParameterHelp("pattern", "a regular expression that names of inputs match"),
            "threshold": ParameterHelp("", "a ratio of the layers' variances above it is too high"),
            "distribution_range": ParameterHelp("", "a gradient whose percentiles 5 and 95 are closer has no spread"),
            "patience": ParameterHelp("saved steps", "for so many the loss may stay at its best or above"),
            "steps": ParameterHelp("saved steps", "how many are checked, from the first one"),
        },
        needs=(
            "It checks activation inputs, gradients and losses of the first saved steps: record them with "
            "CollectionConfig(name='relu_input', parameters={'include_regex': '.*relu_input'}), "
            "CollectionConfig(name='gradients') and CollectionConfig(name='losses')."
        ),
        changes={"": ChangeCode.FIX_INITIALISATION},
        say=_initialization,
        kinds=(VARIANCE, SPREAD, LOSS),
    )

    def check(
        self, state: PoorWeightInitializationState, step: StepView, parameters: PoorWeightInitializationParameters
    ) -> Check | None:
        if state.evaluated >= parameters.steps:
            return None
        found = (_variances(state, step, parameters), _spreads(state, step, parameters), _loss(state, step, parameters))
        readings = [each for each in found if each is not None]
        if not readings:
            return None
        worst = max(readings, key=rank)
        shown = [each for each in readings if each.fires] or [worst]
        return checked(step, [worst], lambda _: [measured(_FACTS[each.kind or ""], each) for each in shown])

    measures_by_kind: ClassVar[Mapping[str, Measure]] = {SPREAD: spec.measures[1], LOSS: spec.measures[2]}


def _variances(
    state: PoorWeightInitializationState, step: StepView, parameters: PoorWeightInitializationParameters
) -> MetricReading | None:
    """Compare the greatest variance with the least; one of zero beside another is infinitely far from it."""
    found = known(state, variance, step, matching(step, parameters.activation_inputs_regex))
    if len(found) < 2 or any(math.isnan(value) for value, _ in found):
        return None
    (least, _), (most, tensor) = min(found), max(found)
    ratio = most / least if least else math.inf if most else 1.0
    threshold = parameters.threshold
    return MetricReading(tensor, ratio, threshold, ratio > threshold, _share(ratio, threshold), VARIANCE)


def _spreads(
    state: PoorWeightInitializationState, step: StepView, parameters: PoorWeightInitializationParameters
) -> MetricReading | None:
    def spread(view: StepView, tensor: str) -> float | None:
        """Return P95 - P5 of a gradient; of reductions only, its whole range where that is narrow enough to decide."""
        if not view.has_value(tensor):
            least, most = view.reduction(tensor, "min"), view.reduction(tensor, "max")
            if least is not None and most is not None and most - least < threshold:
                return most - least
            not_saved(state, view, tensor)
            return None
        values = view.value(tensor)
        if not is_numeric(values) or not values.size:
            return None
        with np.errstate(invalid="ignore"):  # between infinite entries there is no number: the range is NaN
            low, high = np.percentile(float64(values), (5.0, 95.0))
        return float(high - low)

    threshold, gradients = parameters.distribution_range, sorted(step.members(GRADIENTS))
    if _lack_extremes(step, gradients):
        # One sentence stands for all of them: thousands may have been saved in other reductions alone.
        state.unusable += max(len(gradients) - 1, 0)
        gradients = gradients[:1]
    spreads = [each for each in known(state, spread, step, gradients) if not math.isnan(each[0])]
    if not spreads:
        return None
    least, tensor = min(spreads)
    return MetricReading(tensor, least, threshold, least < threshold, _share(threshold, least), SPREAD)


def _lack_extremes(step: StepView, gradients: Sequence[str]) -> bool:
    try:
        return not any(step.has_value(each) or step.reduction(each, "min") is not None for each in gradients)
    except USELESS:
        return False


def _loss(
    state: PoorWeightInitializationState, step: StepView, parameters: PoorWeightInitializationParameters
) -> MetricReading | None:
    tensors = sorted(step.members(LOSSES))
    if (loss := mean_loss(state, step, tensors)) is None:
        return None
    below = state.best is None or math.isnan(state.best) or loss < state.best
    state.best, state.waited = (loss, 0) if below else (state.best, state.waited + 1)
    waited, patience = state.waited, parameters.patience
    return MetricReading(tensors[0], float(waited), float(patience), waited >= patience, waited / patience, LOSS)


def _share(value: float, threshold: float) -> float:
    return value / threshold if threshold else math.inf
