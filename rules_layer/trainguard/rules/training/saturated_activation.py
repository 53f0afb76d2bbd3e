"""SaturatedActivation: tanh and sigmoid layers whose inputs are so large that their gradient is nearly zero.

Source: AWS documentation of SaturatedActivation. A node is a place beyond the batch axis; its input is active where it
lies between the limits of its function.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import Percent
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import activations_text
from trainguard.rules.training.activations_text import SATURATED, SaturatedKind
from trainguard.rules.training.node_activity import inactive_percent
from trainguard.rules.training.parameter_help import RANGE_HELP, SELECTION_HELP
from trainguard.rules.training.readings import Reading, checked, not_saved, used
from trainguard.rules.training.selection import selected
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.tensors.step_view import StepView, Tensor


class SaturatedActivationParameters(StepParameters, frozen=True, kw_only=True):
    """Limits are inputs of the function; thresholds are percent: of the batch, and of a layer's nodes."""

    rule_name: ClassVar[str] = "SaturatedActivation"
    regex_fields: ClassVar[tuple[str, ...]] = ("tensor_regex",)

    collection_names: tuple[str, ...] | None = None
    tensor_regex: str = ".*tanh_input|.*sigmoid_input"
    threshold_tanh_min: float = -9.4999
    threshold_tanh_max: float = 9.4999
    threshold_sigmoid_min: float = -23.0
    threshold_sigmoid_max: float = 16.99999
    threshold_inactivity: Percent = 1.0
    threshold_layer: Percent = 50.0

    def limits(self, tensor: str) -> tuple[float, float]:
        """Return between which inputs a node is active, by the function that the tensor's name holds."""
        if "tanh" in tensor.lower():
            return self.threshold_tanh_min, self.threshold_tanh_max
        return self.threshold_sigmoid_min, self.threshold_sigmoid_max


SPEC = RuleSpec(
    name="training/SaturatedActivation",
    family="training",
    title="Saturated activations",
    looks_at="inputs of tanh and sigmoid layers",
    fires_when="most nodes of a layer are saturated for nearly the whole batch",
    condition=(
        "more than {threshold_layer} % of a layer's nodes have inputs within the limits of their function for less "
        "than {threshold_inactivity} % of the batch"
    ),
    measures=(Measure("share of saturated nodes", "%"),),
    counts=STEPS,
    parameters={
        "collection_names": SELECTION_HELP["collection_names"],
        "tensor_regex": ParameterHelp("pattern", "a regular expression that names of inputs match"),
        "threshold_tanh_min": ParameterHelp("", "an input of tanh at it or below is saturated"),
        "threshold_tanh_max": ParameterHelp("", "an input of tanh at it or above is saturated"),
        "threshold_sigmoid_min": ParameterHelp("", "an input of sigmoid at it or below is saturated"),
        "threshold_sigmoid_max": ParameterHelp("", "an input of sigmoid at it or above is saturated"),
        "threshold_inactivity": ParameterHelp("%", "a node active for less than this share of the batch is saturated"),
        "threshold_layer": ParameterHelp("%", "a layer with more saturated nodes counts"),
        **RANGE_HELP,
    },
    text=activations_text.saturated_activation,
)


class SaturatedActivation(StepRule[SaturatedActivationParameters, StepState]):
    """Fires while most nodes of a tanh or sigmoid layer are saturated."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = SaturatedActivationParameters
    state_type = StepState
    needs = activations_text.SATURATED_NEEDS

    def check(self, state: StepState, step: StepView, parameters: SaturatedActivationParameters) -> Check | None:
        """Count the saturated nodes of each layer; of a layer with reductions only, see whether all or none are."""
        threshold = parameters.threshold_layer
        readings = []
        for tensor in selected(step, parameters.collection_names, (parameters.tensor_regex,)):
            saturated = used(state, lambda view, name: _saturated(state, view, name, parameters), step, tensor)
            if saturated is not None:
                kind = SaturatedKind.SATURATED if saturated > threshold else SaturatedKind.FINE
                readings.append(Reading(tensor, saturated, threshold, saturated > threshold, saturated, kind))
        return checked(step, readings, lambda reading: (measured(SATURATED, reading, "%"),))


def _saturated(
    state: StepState, step: StepView, tensor: str, parameters: SaturatedActivationParameters
) -> float | None:
    low, high = parameters.limits(tensor)
    inactivity = parameters.threshold_inactivity
    if not step.has_value(tensor):
        least, most = step.reduction(tensor, "min"), step.reduction(tensor, "max")
        if (least is not None and least >= high) or (most is not None and most <= low):
            return 100.0 if inactivity > 0.0 else 0.0
        if least is not None and most is not None and low < least and most < high:
            return 0.0
        not_saved(state, step, tensor)
        return None

    def within(values: Tensor) -> NDArray[np.bool_]:
        return np.asarray((low < values) & (values < high), dtype=np.bool_)

    return inactive_percent(step, tensor, within, inactivity)
