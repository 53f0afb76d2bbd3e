"""PoorWeightInitialization: what the first steps say of how weights were initialised.

Source: AWS documentation of PoorWeightInitialization: variances of the layers' activation inputs that differ too much,
gradients without spread, a loss that does not fall. A public run that fired at its first step shows that each of them
fires alone; ``steps`` counts saved steps.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import weights_text
from trainguard.rules.training.folds import float64, variance
from trainguard.rules.training.losses import mean_loss
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, checked, not_saved, rank, used
from trainguard.rules.training.selection import GRADIENTS, LOSSES, matching
from trainguard.rules.training.step_rule import USELESS, Check, StepParameters, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.rules.training.weights_text import RANGE, RATIO, WAITED, InitializationKind
from trainguard.tensors.step_view import StepView, is_numeric

_FACTS = {InitializationKind.VARIANCE: RATIO, InitializationKind.SPREAD: RANGE, InitializationKind.LOSS: WAITED}


class PoorWeightInitializationParameters(StepParameters, frozen=True, kw_only=True):
    """``steps`` and ``patience`` count saved steps."""

    rule_name: ClassVar[str] = "PoorWeightInitialization"
    regex_fields: ClassVar[tuple[str, ...]] = ("activation_inputs_regex",)

    activation_inputs_regex: str = ".*relu_input"
    threshold: NonNegative = 10.0
    distribution_range: NonNegative = 0.001
    patience: PositiveInt = 5
    steps: PositiveInt = 10


class PoorWeightInitializationState(StepState, kw_only=True):
    """The best loss so far, and for how many saved steps none was below it."""

    best: float | None = None
    waited: int = 0


SPEC = RuleSpec(
    name="training/PoorWeightInitialization",
    family="training",
    title="Weight initialisation",
    looks_at="activation inputs, gradients and losses of the first saved steps",
    fires_when="layers differ too much in variance, gradients have no spread, or the loss does not fall",
    condition=(
        "within {steps} saved steps the variances of activation inputs differ by a factor of more than {threshold}, "
        "the range of a gradient is below {distribution_range}, or the loss does not fall for {patience} saved steps"
    ),
    measures=(
        Measure("ratio of the greatest to the least variance"),
        Measure("range of a gradient, 5th to 95th percentile"),
        Measure("saved steps without a lower loss"),
    ),
    counts=STEPS,
    parameters={
        "activation_inputs_regex": ParameterHelp("pattern", "a regular expression that names of inputs match"),
        "threshold": ParameterHelp("", "a ratio of the layers' variances above it is too high"),
        "distribution_range": ParameterHelp("", "a gradient whose percentiles 5 and 95 are closer has no spread"),
        "patience": ParameterHelp("saved steps", "for so many the loss may stay at its best or above"),
        "steps": ParameterHelp("saved steps", "how many are checked, from the first one"),
        **RANGE_HELP,
    },
    text=weights_text.poor_weight_initialization,
)
_MEASURES = dict(zip(InitializationKind, SPEC.measures, strict=True))


class PoorWeightInitialization(StepRule[PoorWeightInitializationParameters, PoorWeightInitializationState]):
    """Fires while the first saved steps show a poor initialisation."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = PoorWeightInitializationParameters
    state_type = PoorWeightInitializationState
    needs = weights_text.INITIALIZATION_NEEDS

    def check(
        self, state: PoorWeightInitializationState, step: StepView, parameters: PoorWeightInitializationParameters
    ) -> Check | None:
        """Check what the step holds of the three, while steps are young; what it lacks is left out."""
        if state.evaluated >= parameters.steps:
            return None
        found = (_variances(state, step, parameters), _spreads(state, step, parameters), _loss(state, step, parameters))
        readings = [each for each in found if each is not None]
        if not readings:
            return None
        worst = max(readings, key=rank)
        shown = [each for each in readings if each.fires] or [worst]
        return checked(
            step, [worst], lambda _: [measured(_FACTS[InitializationKind(each.kind or "")], each) for each in shown]
        )

    def measure(self, check: Check) -> Measure:
        """Say which of the three conditions was measured."""
        return _MEASURES[InitializationKind(check.kind or InitializationKind.VARIANCE)]


def _variances(
    state: PoorWeightInitializationState, step: StepView, parameters: PoorWeightInitializationParameters
) -> Reading | None:
    """Compare the greatest variance with the least; one of zero beside another is infinitely far from it."""
    tensors = matching(step, parameters.activation_inputs_regex)
    each = [(used(state, variance, step, tensor), tensor) for tensor in tensors]
    known = [(value, tensor) for value, tensor in each if value is not None]
    if len(known) < 2 or any(math.isnan(value) for value, _ in known):
        return None
    (least, _), (most, tensor) = min(known), max(known)
    ratio = most / least if least else math.inf if most else 1.0
    threshold = parameters.threshold
    return Reading(tensor, ratio, threshold, ratio > threshold, _share(ratio, threshold), InitializationKind.VARIANCE)


def _spreads(
    state: PoorWeightInitializationState, step: StepView, parameters: PoorWeightInitializationParameters
) -> Reading | None:
    """Find the gradient with the least range between its percentiles."""

    def spread(view: StepView, tensor: str) -> float | None:
        return _spread(state, view, tensor, parameters)

    gradients = sorted(step.members(GRADIENTS))
    if _lack_extremes(step, gradients):
        # One sentence stands for all of them: thousands may have been saved in other reductions alone.
        state.unusable += max(len(gradients) - 1, 0)
        gradients = gradients[:1]
    known = [(used(state, spread, step, tensor), tensor) for tensor in gradients]
    spreads = [(value, tensor) for value, tensor in known if value is not None and not math.isnan(value)]
    if not spreads:
        return None
    least, tensor = min(spreads)
    threshold = parameters.distribution_range
    return Reading(tensor, least, threshold, least < threshold, _share(threshold, least), InitializationKind.SPREAD)


def _lack_extremes(step: StepView, gradients: Sequence[str]) -> bool:
    """Whether of each gradient only reductions were saved, and no least value among them."""
    try:
        return not any(step.has_value(each) or step.reduction(each, "min") is not None for each in gradients)
    except USELESS:
        return False


def _spread(
    state: PoorWeightInitializationState,
    step: StepView,
    tensor: str,
    parameters: PoorWeightInitializationParameters,
) -> float | None:
    """Return P95 - P5 of a gradient; of reductions only, its whole range where that is narrow enough to decide."""
    if not step.has_value(tensor):
        least, most = step.reduction(tensor, "min"), step.reduction(tensor, "max")
        if least is not None and most is not None and most - least < parameters.distribution_range:
            return most - least
        not_saved(state, step, tensor)
        return None
    return _percentile_range(step, tensor)


def _percentile_range(step: StepView, tensor: str) -> float | None:
    values = step.value(tensor)
    if not is_numeric(values) or not values.size:
        return None
    with np.errstate(invalid="ignore"):  # between infinite entries there is no number: the range is NaN
        low, high = np.percentile(float64(values), (5.0, 95.0))
    return float(high - low)


def _loss(
    state: PoorWeightInitializationState, step: StepView, parameters: PoorWeightInitializationParameters
) -> Reading | None:
    tensors = sorted(step.members(LOSSES))
    loss = mean_loss(state, step, tensors)
    if loss is None:
        return None
    below = state.best is None or math.isnan(state.best) or loss < state.best
    state.best, state.waited = (loss, 0) if below else (state.best, state.waited + 1)
    waited, patience = state.waited, parameters.patience
    return Reading(
        tensors[0], float(waited), float(patience), waited >= patience, waited / patience, InitializationKind.LOSS
    )


def _share(value: float, threshold: float) -> float:
    return value / threshold if threshold else math.inf
