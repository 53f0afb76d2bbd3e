"""TensorVariance: the variance of a tensor is too high or too low.

Source: AWS documentation of TensorVariance; population variance over all entries, in float64.
"""

import math
from typing import ClassVar

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import values_text
from trainguard.rules.training.folds import variance
from trainguard.rules.training.parameter_help import RANGE_HELP, SELECTION_HELP
from trainguard.rules.training.readings import Reading, checked, not_saved, used
from trainguard.rules.training.selecting import SelectingParameters
from trainguard.rules.training.step_rule import Check, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.rules.training.values_text import VARIANCE, VarianceKind
from trainguard.tensors.step_view import StepView


class TensorVarianceParameters(SelectingParameters, frozen=True, kw_only=True):
    """Thresholds are variances; None leaves one out."""

    rule_name: ClassVar[str] = "TensorVariance"
    required: ClassVar[bool] = True

    max_threshold: float | None = None
    min_threshold: float | None = None


SPEC = RuleSpec(
    name="training/TensorVariance",
    family="training",
    title="Variance of tensors",
    looks_at="the selected tensors",
    fires_when="the variance of one is above the one threshold or below the other",
    condition="the variance of a tensor is above {max_threshold} or below {min_threshold}",
    measures=(Measure("variance"),),
    counts=STEPS,
    parameters={
        **SELECTION_HELP,
        "max_threshold": ParameterHelp("", "a variance above it is too high; None leaves it out"),
        "min_threshold": ParameterHelp("", "a variance below it is too low; None leaves it out"),
        **RANGE_HELP,
    },
    text=values_text.tensor_variance,
)


class TensorVariance(StepRule[TensorVarianceParameters, StepState]):
    """Fires while the variance of a tensor is out of range."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = TensorVarianceParameters
    state_type = StepState
    needs = values_text.VARIANCE_NEEDS

    def check(self, state: StepState, step: StepView, parameters: TensorVarianceParameters) -> Check | None:
        """Compare each tensor's variance with both thresholds."""
        readings = []

        def variance_of(view: StepView, tensor: str) -> float | None:
            """Return a variance; None where other reductions alone were saved, which is counted."""
            saved = view.reduction(tensor, "variance")
            if saved is not None:
                return saved
            if view.reduction(tensor, "std") is None and not_saved(state, view, tensor):
                return None
            return variance(view, tensor)

        for tensor in parameters.tensors(step):
            value = used(state, variance_of, step, tensor)
            if value is not None:
                readings.append(_reading(tensor, value, parameters))
        return checked(step, readings, lambda reading: (measured(VARIANCE, reading),))


def _reading(tensor: str, value: float, parameters: TensorVarianceParameters) -> Reading:
    above = -math.inf if parameters.max_threshold is None else value - parameters.max_threshold
    below = -math.inf if parameters.min_threshold is None else parameters.min_threshold - value
    if above >= below:
        kind = VarianceKind.UNSET if parameters.max_threshold is None else VarianceKind.HIGH
        return Reading(tensor, value, parameters.max_threshold, above > 0.0, above, kind)
    return Reading(tensor, value, parameters.min_threshold, below > 0.0, below, VarianceKind.LOW)
