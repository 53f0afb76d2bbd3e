"""VanishingGradient: gradients that are nearly zero, so that a part of the model no longer learns.

Source: AWS documentation of VanishingGradient (the mean of the absolute values of a gradient falls below threshold);
each tensor is judged alone.
"""

import math
from typing import ClassVar

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import weights_text
from trainguard.rules.training.folds import abs_mean
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, checked, used
from trainguard.rules.training.selection import GRADIENTS
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.rules.training.weights_text import ABS_MEAN, VanishingKind
from trainguard.tensors.step_view import StepView


class VanishingGradientParameters(StepParameters, frozen=True, kw_only=True):
    """``threshold`` is a mean absolute value."""

    rule_name: ClassVar[str] = "VanishingGradient"

    threshold: NonNegative = 1e-7


SPEC = RuleSpec(
    name="training/VanishingGradient",
    family="training",
    title="Vanishing gradients",
    looks_at="each tensor of the collection gradients",
    fires_when="the mean of its absolute values is nearly zero",
    condition="the mean absolute value of a gradient is below {threshold}",
    measures=(Measure("mean absolute gradient"),),
    counts=STEPS,
    parameters={
        "threshold": ParameterHelp("", "a gradient whose mean absolute value is below it has vanished"),
        **RANGE_HELP,
    },
    text=weights_text.vanishing_gradient,
)


class VanishingGradient(StepRule[VanishingGradientParameters, StepState]):
    """Fires while the mean absolute value of a gradient is below the threshold."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = VanishingGradientParameters
    state_type = StepState
    needs = weights_text.VANISHING_NEEDS

    def check(self, state: StepState, step: StepView, parameters: VanishingGradientParameters) -> Check | None:
        """Compare each gradient's mean absolute value; one that holds NaN is not below anything."""
        threshold = parameters.threshold
        means = [(used(state, abs_mean, step, tensor), tensor) for tensor in sorted(step.members(GRADIENTS))]
        known = [(value, tensor) for value, tensor in means if value is not None]
        readings = [
            Reading(tensor, value, threshold, True, -value, _kind(value))
            for value, tensor in known
            if value < threshold
        ]
        if known and not readings:
            value, tensor = min([each for each in known if not math.isnan(each[0])] or known)
            readings = [Reading(tensor, value, threshold, False, -value, VanishingKind.FINE)]
        return checked(step, readings, lambda reading: (measured(ABS_MEAN, reading),), judged=len(known))


def _kind(value: float) -> VanishingKind:
    """Return what a gradient below the threshold is; one of exactly zero says that nothing reaches the loss."""
    return VanishingKind.ZERO if value == 0.0 else VanishingKind.VANISHED
