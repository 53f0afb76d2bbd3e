"""The words of DeadRelu and SaturatedActivation."""

from enum import StrEnum

from trainguard.rules.training.tensor_words import against, be, said, shown, step_text
from trainguard.rules.words import FactSheet, Words

RELU_NEEDS = (
    "It checks outputs of ReLU layers: record them in full with CollectionConfig(name='relu_output', "
    "parameters={'include_regex': '.*relu_output'}); where modules are not named relu, set tensor_regex to match."
)
SATURATED_NEEDS = (
    "It checks inputs of tanh and sigmoid layers: record them in full with CollectionConfig(name='activations', "
    "parameters={'include_regex': '.*tanh_input|.*sigmoid_input'}); where modules are named otherwise, set "
    "tensor_regex to match."
)
DEAD, SATURATED = "dead_nodes", "saturated_nodes"
"""Facts: the percentage of a layer's nodes."""


class DeadReluKind(StrEnum):
    """What DeadRelu finds at a step."""

    DEAD = "dead nodes"
    FINE = "fine"


class SaturatedKind(StrEnum):
    """What SaturatedActivation finds at a step."""

    SATURATED = "saturated nodes"
    FINE = "fine"


def _dead(sheet: FactSheet) -> Words:
    return said(
        sheet,
        _nodes(sheet, DEAD, "dead"),
        "Lower the learning rate and check the biases and the scale of the layer's input; dead units do not come "
        "back. LeakyReLU or GELU in place of ReLU keeps a gradient below zero.",
        "most units of a ReLU layer were dead",
    )


def _saturated(sheet: FactSheet) -> Words:
    return said(
        sheet,
        _nodes(sheet, SATURATED, "saturated"),
        "Normalise the layer's input, initialise its weights smaller, or lower the learning rate. ReLU or GELU in "
        "place of tanh and sigmoid does not saturate for large inputs.",
        "most units of a layer were saturated",
    )


def _nodes(sheet: FactSheet, name: str, what: str) -> str:
    compared = against(sheet, name, "above", "not above", " %")
    return f"{shown(sheet[name])} % of the nodes of {sheet[name].series} {be(sheet, many=True)} {what}, {compared}"


dead_relu = step_text("DeadRelu", RELU_NEEDS, _dead)
saturated_activation = step_text("SaturatedActivation", SATURATED_NEEDS, _saturated)
