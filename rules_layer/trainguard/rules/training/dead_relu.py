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
from trainguard.rules.training import activations_text
from trainguard.rules.training.activations_text import DEAD, DeadReluKind
from trainguard.rules.training.node_activity import inactive_percent
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, checked, not_saved, used
from trainguard.rules.training.selection import selected
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
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
    text=activations_text.dead_relu,
)


class DeadRelu(StepRule[DeadReluParameters, StepState]):
    """Fires while most nodes of a ReLU layer are dead."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = DeadReluParameters
    state_type = StepState
    needs = activations_text.RELU_NEEDS

    def check(self, state: StepState, step: StepView, parameters: DeadReluParameters) -> Check | None:
        """Count the dead nodes of each layer; of a layer with reductions only, see whether all or none are."""
        threshold, inactivity = parameters.threshold_layer, parameters.threshold_inactivity
        readings = []
        for tensor in selected(step, None, parameters.tensor_regex):
            dead = used(state, lambda view, name: _dead(state, view, name, inactivity), step, tensor)
            if dead is not None:
                kind = DeadReluKind.DEAD if dead > threshold else DeadReluKind.FINE
                readings.append(Reading(tensor, dead, threshold, dead > threshold, dead, kind))
        return checked(step, readings, lambda reading: (measured(DEAD, reading, "%"),))


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
