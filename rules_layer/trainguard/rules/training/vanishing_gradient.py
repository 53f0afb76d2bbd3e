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
from trainguard.rules.training.folds import abs_mean
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, against, check_of, used
from trainguard.rules.training.selection import GRADIENTS
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
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
    clause="gradients vanished",
)


class VanishingGradient(StepRule[VanishingGradientParameters, StepState]):
    """Fires while the mean absolute value of a gradient is below the threshold."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = VanishingGradientParameters
    state_type = StepState
    needs = (
        "It checks the tensors of the collection gradients: record them, in full or as reduction abs_mean, "
        "with CollectionConfig(name='gradients')."
    )

    def check(self, state: StepState, step: StepView, parameters: VanishingGradientParameters) -> Check | None:
        """Compare each gradient's mean absolute value; one that holds NaN is not below anything."""
        threshold = parameters.threshold
        measured = [(used(state, abs_mean, step, tensor), tensor) for tensor in sorted(step.members(GRADIENTS))]
        known = [(value, tensor) for value, tensor in measured if value is not None]
        readings = [Reading(tensor, value, threshold, True, -value) for value, tensor in known if value < threshold]
        if known and not readings:
            value, tensor = min([each for each in known if not math.isnan(each[0])] or known)
            readings = [Reading(tensor, value, threshold, False, -value)]
        return check_of(step, readings, _say, judged=len(known))

    def advice(self, check: Check, parameters: VanishingGradientParameters) -> str:
        """Say what keeps gradients alive; a gradient of exactly zero says that nothing reaches the loss."""
        del parameters
        if check.value == 0.0:
            return (
                f"Check that {check.tensor} has a path to the loss: a gradient of exactly zero means a detached, "
                "frozen or dead part of the model, or underflow where gradients are float16 without loss scaling."
            )
        return (
            "Use activations that do not saturate, residual connections or normalisation, and an initialisation that "
            "fits the activation. In float16 raise the loss scale."
        )


def _say(reading: Reading) -> str:
    compared = against(reading.fires, "below", "not below", reading.threshold or 0.0)
    return f"the mean absolute value of {reading.tensor} is {reading.value:.4g}, {compared}"
