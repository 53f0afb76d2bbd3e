"""VanishingGradient and WeightUpdateRatio: gradients that are nearly zero, weights that change too much or not at all.

Source: AWS documentation of both. Ratios are of L2 norms: element by element some entry nearly always stays the same.
"""

import math

from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import Reading, abs_mean, change_of, checked, known, measured, not_saved
from trainguard.rules.training.selection import GRADIENTS, WEIGHTS
from trainguard.rules.training.step_rule import USELESS, Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import against, be, said, shown, step_spec

ABS_MEAN = "mean_absolute_gradient"
UPDATE = "relative_change"


ZERO, VANISHED, FINE = "zero", "vanished", "fine"
LARGE, SMALL = "large", "small"
"""Which threshold WeightUpdateRatio compares with; the status says whether it is crossed."""


def _vanishing(sheet: FactSheet) -> Words:
    mean = sheet[ABS_MEAN]
    advice = (
        "Use activations that do not saturate, residual connections or normalisation, and an initialisation that "
        "fits the activation. In float16 raise the loss scale."
    )
    if sheet.kind == ZERO:
        advice = (
            f"Check that {mean.series} has a path to the loss: a gradient of exactly zero means a detached, "
            "frozen or dead part of the model, or underflow where gradients are float16 without loss scaling."
        )
    compared = against(sheet, ABS_MEAN, "below", "not below")
    sentence = f"the mean absolute value of {mean.series} {be(sheet)} {shown(mean)}, {compared}"
    return said(sheet, sentence, advice, "gradients vanished")


def _update(sheet: FactSheet) -> Words:
    change, large = sheet[UPDATE], sheet.kind == LARGE
    advice = "Lower the learning rate or clip gradients: one update changes the weight by more than it holds."
    if not large:
        advice = (
            f"Check that the optimizer holds {change.series} and that its gradient is not zero, or raise the learning "
            "rate. A layer that is frozen on purpose always fires: leave it out of the collection weights."
        )
    compared = against(sheet, UPDATE, *(("above", "not above") if large else ("below", "not below")))
    since = "its saved step before"
    sentence = f"{change.series} changed by {shown(change)} of its norm since {since}, {compared}"
    return said(sheet, sentence, advice, "weights changed too much or not at all")


class VanishingGradientParameters(StepParameters, frozen=True, kw_only=True):
    """``threshold`` is a mean absolute value."""

    threshold: NonNegative = 1e-7


class VanishingGradient(StepRule[VanishingGradientParameters, StepState]):
    """Fires while the mean absolute value of a gradient is below the threshold."""

    spec = step_spec(
        "VanishingGradient",
        title="Vanishing gradients",
        looks_at="each tensor of the collection gradients",
        fires_when="the mean of its absolute values is nearly zero",
        condition="the mean absolute value of a gradient is below {threshold}",
        measures=(Measure("mean absolute gradient"),),
        parameters={
            "threshold": ParameterHelp("", "a gradient whose mean absolute value is below it has vanished"),
        },
        needs=(
            "It checks the tensors of the collection gradients: record them, in full or as reduction abs_mean, "
            "with CollectionConfig(name='gradients')."
        ),
        say=_vanishing,
        kinds=(ZERO, VANISHED, FINE),
    )

    def check(self, state: StepState, step: StepView, parameters: VanishingGradientParameters) -> Check | None:
        """Compare each gradient's mean absolute value; one that holds NaN is not below anything."""
        threshold = parameters.threshold
        found = known(state, abs_mean, step, sorted(step.members(GRADIENTS)))
        # A gradient of exactly zero says that nothing reaches the loss.
        readings = [
            Reading(tensor, value, threshold, True, -value, ZERO if value == 0.0 else VANISHED)
            for value, tensor in found
            if value < threshold
        ]
        if found and not readings:
            value, tensor = min([each for each in found if not math.isnan(each[0])] or found)
            readings = [Reading(tensor, value, threshold, False, -value, FINE)]
        return checked(step, readings, lambda reading: (measured(ABS_MEAN, reading),), judged=len(found))


class WeightUpdateRatioParameters(StepParameters, frozen=True, kw_only=True):
    """``num_steps`` is how far back, in steps, the value before may lie; None for the saved step before."""

    num_steps: PositiveInt | None = None
    large_threshold: NonNegative = 10.0
    small_threshold: NonNegative = 1e-8
    epsilon: NonNegative = 1e-9


class WeightUpdateRatioState(StepState, kw_only=True):
    """``training`` says whether weights were saved at a step of mode TRAIN: from then on only those count."""

    training: bool = False


class WeightUpdateRatio(StepRule[WeightUpdateRatioParameters, WeightUpdateRatioState]):
    """Fires while a weight changes far too much, or not at all."""

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
        say=_update,
        kinds=(LARGE, SMALL),
    )

    def watch(self, state: WeightUpdateRatioState, step: StepView, parameters: WeightUpdateRatioParameters) -> None:
        """Note whether the run trains in mode TRAIN."""
        del parameters
        state.training = state.training or (step.mode is Mode.TRAIN and bool(step.members(WEIGHTS)))

    def check(
        self, state: WeightUpdateRatioState, step: StepView, parameters: WeightUpdateRatioParameters
    ) -> Check | None:
        """Compare each weight with its value before; a run without modes is judged as a whole."""
        self.watch(state, step, parameters)
        if step.mode is not (Mode.TRAIN if state.training else Mode.GLOBAL):
            return None
        readings, waits = [], False
        for tensor in sorted(step.members(WEIGHTS)):
            before = _before(step, tensor, parameters.num_steps)
            if before is None:
                waits = True
                continue
            ratio = _ratio(state, step, before, tensor, parameters.epsilon)
            if ratio is not None:
                readings.append(_update_reading(tensor, ratio, parameters))
        state.waiting += waits
        return checked(step, readings, lambda reading: (measured(UPDATE, reading),))


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


def _update_reading(tensor: str, ratio: float, parameters: WeightUpdateRatioParameters) -> Reading:
    large, small = parameters.large_threshold, parameters.small_threshold
    over, under = ratio / large if large else math.inf, small / ratio if ratio else math.inf
    if ratio < small or (under > over and not ratio > large):
        return Reading(tensor, ratio, small, ratio < small, under, SMALL)
    return Reading(tensor, ratio, large, ratio > large, over, LARGE)
