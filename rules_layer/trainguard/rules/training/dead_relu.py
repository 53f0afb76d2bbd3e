"""DeadRelu: layers whose ReLU units give zero for nearly every sample.

Source: AWS documentation of DeadRelu. A node is a place beyond the batch axis, of a convolution too.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import Percent
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.node_activity import inactive_percent
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, against, check_of, not_saved, used
from trainguard.rules.training.selection import selected
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.tensors.step_view import StepView, Tensor


class DeadReluParameters(StepParameters, frozen=True, kw_only=True):
    """Thresholds in percent: of the batch, and of a layer's nodes."""

    rule_name: ClassVar[str] = "DeadRelu"
    regex_fields: ClassVar[tuple[str, ...]] = ("tensor_regex",)

    tensor_regex: tuple[str, ...] = (".*relu_output",)
    threshold_inactivity: Percent = 1.0
    threshold_layer: Percent = 50.0


SPEC = RuleSpec(
    name="training/DeadRelu",
    family="training",
    title="Dead ReLU units",
    looks_at="outputs of ReLU layers",
    fires_when="most nodes of a layer give zero for nearly the whole batch",
    condition=(
        "more than {threshold_layer} % of a layer's nodes are above zero for less than {threshold_inactivity} % of the "
        "batch"
    ),
    measures=(Measure("share of dead nodes", "%"),),
    counts=STEPS,
    parameters={
        "tensor_regex": ParameterHelp(
            "patterns", "regular expressions, separated by commas, that names of ReLU outputs match"
        ),
        "threshold_inactivity": ParameterHelp("%", "a node above zero for less than this share of the batch is dead"),
        "threshold_layer": ParameterHelp("%", "a layer with more dead nodes counts"),
        **RANGE_HELP,
    },
    clause="most units of a ReLU layer were dead",
)


class DeadRelu(StepRule[DeadReluParameters, StepState]):
    """Fires while most nodes of a ReLU layer are dead."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = DeadReluParameters
    state_type = StepState
    needs = (
        "It checks outputs of ReLU layers: record them in full with CollectionConfig(name='relu_output', "
        "parameters={'include_regex': '.*relu_output'}); where modules are not named relu, set tensor_regex to match."
    )

    def check(self, state: StepState, step: StepView, parameters: DeadReluParameters) -> Check | None:
        """Count the dead nodes of each layer; of a layer with reductions only, see whether all or none are."""
        threshold, inactivity = parameters.threshold_layer, parameters.threshold_inactivity
        readings = []
        for tensor in selected(step, None, parameters.tensor_regex):
            dead = used(state, lambda view, name: _dead(state, view, name, inactivity), step, tensor)
            if dead is not None:
                readings.append(Reading(tensor, dead, threshold, dead > threshold, dead))
        return check_of(step, readings, _say)

    def advice(self, check: Check, parameters: DeadReluParameters) -> str:
        """Say what brings units back."""
        del check, parameters
        return (
            "Lower the learning rate and check the biases and the scale of the layer's input; dead units do not come "
            "back. LeakyReLU or GELU in place of ReLU keeps a gradient below zero."
        )


def _dead(state: StepState, step: StepView, tensor: str, inactivity: float) -> float | None:
    if not step.has_value(tensor):
        most, least = step.reduction(tensor, "max"), step.reduction(tensor, "min")
        if most is not None and most <= 0.0:
            return 100.0 if inactivity > 0.0 else 0.0
        if least is not None and least > 0.0:
            return 0.0
        not_saved(state, step, tensor)
        return None
    return inactive_percent(step, tensor, _above_zero, inactivity)


def _above_zero(values: Tensor) -> NDArray[np.bool_]:
    return np.asarray(values > 0, dtype=np.bool_)


def _say(reading: Reading) -> str:
    compared = against(reading.fires, "above", "not above", reading.threshold or 0.0, " %")
    return f"{reading.value:.4g} % of the nodes of {reading.tensor} are dead, {compared}"
