"""DeadRelu and SaturatedActivation: layers whose units give zero, or have no gradient, for nearly every sample.

Source: AWS documentation of both. A node is a place beyond the batch axis 0.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from trainguard.core.errors import TensorUnusableError
from trainguard.formats.tensors.step_view import StepView, Tensor
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import Percent
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import above, checked, known, not_saved, numbers
from trainguard.rules.training.selection import selected
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import SELECTION_HELP, step_spec, worded

DEAD_KINDS, SATURATED_KINDS = ("dead nodes", "fine"), ("saturated nodes", "fine")
# Counts of so many nodes take 32 MB.
MOST_NODES = 8_000_000

Active = Callable[[Tensor], NDArray[np.bool_]]


def inactive_percent(step: StepView, name: str, active: Active, threshold: float) -> float | None:
    """Return the percentage of nodes that were active in less than ``threshold`` percent of the batch.

    None without numbers. A tensor of one axis is one node over a batch. Raises TensorUnusableError when its shape was
    not saved, or it has more nodes than are counted.
    """
    shape = step.shape(name)
    if shape is None:
        raise TensorUnusableError(name, step.step, "its shape was not saved")
    batch, nodes = (shape[0] if shape else 1), math.prod(shape[1:])
    if nodes > MOST_NODES:
        raise TensorUnusableError(name, step.step, f"it has {nodes:,} nodes, expected at most {MOST_NODES:,}")
    blocks = numbers(step, name)
    if blocks is None or not batch or not nodes:
        return None
    times = np.zeros(nodes, dtype=np.int32)
    for start, values in _rows(blocks, nodes):
        times[start : start + values.shape[1]] += np.count_nonzero(active(values), axis=0).astype(np.int32)
    shares = 100.0 * times / batch
    return 100.0 * int(np.count_nonzero(shares < threshold)) / nodes


def _rows(blocks: Iterator[Tensor], nodes: int) -> Iterator[tuple[int, Tensor]]:
    """Cut blocks into pieces of whole rows, [rows, nodes], and parts of a row, [1, n]; each with its first node."""
    node = 0
    for block in blocks:
        rest = block.ravel()
        if node:
            head, rest = rest[: nodes - node], rest[nodes - node :]
            yield node, head[np.newaxis]
            node = (node + head.size) % nodes
        whole = rest.size // nodes
        if whole:
            yield 0, rest[: whole * nodes].reshape(whole, nodes)
            rest = rest[whole * nodes :]
        if rest.size:
            yield 0, rest[np.newaxis]
            node = rest.size


class DeadReluParameters(StepParameters, frozen=True, kw_only=True):
    tensor_regex: tuple[str, ...] = (".*relu_output",)
    threshold_inactivity: Percent = 1.0
    threshold_layer: Percent = 50.0


class DeadRelu(StepRule[DeadReluParameters, StepState]):
    spec = step_spec(
        "DeadRelu",
        title="Dead ReLU units",
        looks_at="outputs of ReLU layers",
        fires_when="most nodes of a layer give zero for nearly the whole batch",
        condition=(
            "more than {threshold_layer} % of a layer's nodes are above zero for less than {threshold_inactivity} % "
            "of the batch"
        ),
        measures=(Measure("share of dead nodes", "%"),),
        parameters={
            "tensor_regex": ParameterHelp(
                "patterns", "regular expressions, separated by commas, that names of ReLU outputs match"
            ),
            "threshold_inactivity": ParameterHelp(
                "%", "a node above zero for less than this share of the batch is dead"
            ),
            "threshold_layer": ParameterHelp("%", "a layer with more dead nodes counts"),
        },
        needs=(
            "It checks outputs of ReLU layers: record them in full with CollectionConfig(name='relu_output', "
            "parameters={'include_regex': '.*relu_output'}); where modules are not named relu, set tensor_regex to "
            "match."
        ),
        changes={"": ChangeCode.CHANGE_ACTIVATIONS},
        say=worded(
            "{dead_nodes} % of the nodes of {dead_nodes.series} {were/are} dead, "
            "{dead_nodes:against above|not above} %",
            "Lower the learning rate and check the biases and the scale of the layer's input; dead units do not come "
            "back. LeakyReLU or GELU in place of ReLU keeps a gradient below zero.",
            "most units of a ReLU layer were dead",
        ),
        kinds=DEAD_KINDS,
    )

    def check(self, state: StepState, step: StepView, parameters: DeadReluParameters) -> Check | None:
        tensors, inactivity = selected(step, None, parameters.tensor_regex), parameters.threshold_inactivity
        found = known(state, lambda view, name: _inactive(state, view, name, (0.0, None), inactivity), step, tensors)
        readings = [above(tensor, dead, parameters.threshold_layer) for dead, tensor in found]
        return checked(step, readings, ("dead_nodes", "%"), kinds=DEAD_KINDS)


def _inactive(
    state: StepState, step: StepView, tensor: str, limits: tuple[float, float | None], inactivity: float
) -> float | None:
    """Return the percentage of nodes that are inactive; of reductions only, whether all or none are, if they tell it.

    A node is active between the ``limits``; the upper one may be None.
    """
    low, high = limits
    if not step.has_value(tensor):
        least, most = step.reduction(tensor, "min"), step.reduction(tensor, "max")
        if (least is not None and high is not None and least >= high) or (most is not None and most <= low):
            return 100.0 if inactivity > 0.0 else 0.0
        if least is not None and low < least and (high is None or (most is not None and most < high)):
            return 0.0
        not_saved(state, step, tensor)
        return None

    def within(values: Tensor) -> NDArray[np.bool_]:
        return np.asarray(low < values if high is None else (low < values) & (values < high), dtype=np.bool_)

    return inactive_percent(step, tensor, within, inactivity)


class SaturatedActivationParameters(StepParameters, frozen=True, kw_only=True):
    collection_names: tuple[str, ...] | None = None
    tensor_regex: str = ".*tanh_input|.*sigmoid_input"
    threshold_tanh_min: float = -9.4999
    threshold_tanh_max: float = 9.4999
    threshold_sigmoid_min: float = -23.0
    threshold_sigmoid_max: float = 16.99999
    threshold_inactivity: Percent = 1.0
    threshold_layer: Percent = 50.0

    def limits(self, tensor: str) -> tuple[float, float]:
        if "tanh" in tensor.lower():
            return self.threshold_tanh_min, self.threshold_tanh_max
        return self.threshold_sigmoid_min, self.threshold_sigmoid_max


class SaturatedActivation(StepRule[SaturatedActivationParameters, StepState]):
    spec = step_spec(
        "SaturatedActivation",
        title="Saturated activations",
        looks_at="inputs of tanh and sigmoid layers",
        fires_when="most nodes of a layer are saturated for nearly the whole batch",
        condition=(
            "more than {threshold_layer} % of a layer's nodes have inputs within the limits of their function for less "
            "than {threshold_inactivity} % of the batch"
        ),
        measures=(Measure("share of saturated nodes", "%"),),
        parameters={
            "collection_names": SELECTION_HELP["collection_names"],
            "tensor_regex": ParameterHelp("pattern", "a regular expression that names of inputs match"),
            "threshold_tanh_min": ParameterHelp("", "an input of tanh at it or below is saturated"),
            "threshold_tanh_max": ParameterHelp("", "an input of tanh at it or above is saturated"),
            "threshold_sigmoid_min": ParameterHelp("", "an input of sigmoid at it or below is saturated"),
            "threshold_sigmoid_max": ParameterHelp("", "an input of sigmoid at it or above is saturated"),
            "threshold_inactivity": ParameterHelp(
                "%", "a node active for less than this share of the batch is saturated"
            ),
            "threshold_layer": ParameterHelp("%", "a layer with more saturated nodes counts"),
        },
        needs=(
            "It checks inputs of tanh and sigmoid layers: record them in full with "
            "CollectionConfig(name='activations', "
            "parameters={'include_regex': '.*tanh_input|.*sigmoid_input'}); where modules are named otherwise, set "
            "tensor_regex to match."
        ),
        changes={"": ChangeCode.CHANGE_ACTIVATIONS},
        say=worded(
            "{saturated_nodes} % of the nodes of {saturated_nodes.series} {were/are} saturated, "
            "{saturated_nodes:against above|not above} %",
            "Normalise the layer's input, initialise its weights smaller, or lower the learning rate. ReLU or GELU in "
            "place of tanh and sigmoid does not saturate for large inputs.",
            "most units of a layer were saturated",
        ),
        kinds=SATURATED_KINDS,
    )

    def check(self, state: StepState, step: StepView, parameters: SaturatedActivationParameters) -> Check | None:
        tensors = selected(step, parameters.collection_names, (parameters.tensor_regex,))
        inactivity, limits = parameters.threshold_inactivity, parameters.limits
        found = known(state, lambda view, name: _inactive(state, view, name, limits(name), inactivity), step, tensors)
        readings = [above(tensor, percent, parameters.threshold_layer) for percent, tensor in found]
        return checked(step, readings, ("saturated_nodes", "%"), kinds=SATURATED_KINDS)
