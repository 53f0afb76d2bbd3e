"""The formula of an operator by its name, and the cost of a call, also where a trace records the dimensions alone.

PyTorch before 2.1 did so. What a convolution's strides make of an image, its backward pass says: there image, weight
and result are together. A batch is normalised by its own statistics where the trace has the backward pass of that, too.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from math import prod

import msgspec
import numpy as np

from trainguard.kernels.columns import Ints, Trace
from trainguard.kernels.costs import Cost, Inputs, Shape, read_inputs
from trainguard.kernels.formulas.attention import ATTENTION, flexible
from trainguard.kernels.formulas.common import Formula, once
from trainguard.kernels.formulas.moved import MOVED, fused, fused_product
from trainguard.kernels.formulas.products import PRODUCTS

FORMULAS: dict[str, Formula] = PRODUCTS | ATTENTION | MOVED
# Kernels of Inductor by the beginning of their names; others hold tensors that the names do not describe.
_FUSED: tuple[tuple[str, Formula], ...] = (
    ("triton_tem_fused_flex_attention_backward", flexible(3, 2)),
    ("triton_tem_fused_flex_attention", flexible(1, 1)),
    ("triton_poi_", fused),
    ("triton_red_", fused),
    ("triton_per_", fused),
    ("triton_tem_fused_mm", fused_product),
    ("triton_tem_fused_bmm", fused_product),
)


# More operations or bytes than that of one call are those of a broken shape.
MOST = 1 << 62


def is_product(operator: str) -> bool:
    return operator in PRODUCTS or operator in ATTENTION or operator.startswith("triton_tem_")


def cost(operator: str, inputs: Inputs) -> Cost | None:
    """Return the cost of one call; None for an operator without a formula, or where shapes or types lack."""
    formula = FORMULAS.get(operator)
    if formula is None:
        formula = next((each for begins, each in _FUSED if operator.startswith(begins)), None)
    return None if formula is None else computed(formula, inputs)


def computed(formula: Formula, inputs: Inputs) -> Cost | None:
    """Return the cost of inputs by a formula; None where they do not fit it, or no call costs so much."""
    try:
        found = formula(inputs)
    except (ArithmeticError, IndexError, ValueError, msgspec.MsgspecError):
        return None  # fewer inputs or dimensions than the operator has, or none that it could have
    most = found.flops if found.most_flops is None else found.most_flops
    return found if 0 <= found.flops <= most <= MOST and 0 <= found.bytes <= MOST else None


# Where an operator has the image, the weight and the gradient of the result.
_TOGETHER = {"aten::cudnn_convolution_backward": (0, 2, 1), "aten::convolution_backward": (1, 2, 0)}

_CONVOLUTIONS = frozenset(
    f"aten::{name}" for name in ("cudnn_convolution", "miopen_convolution", "convolution", "_convolution")
)
_OF_WEIGHT = "aten::cudnn_convolution_backward_weight"
_NORMS = frozenset(f"aten::{name}_batch_norm" for name in ("native", "cudnn", "miopen"))
# Where a normalisation has its flag.
_TRAINING = 5


@dataclass(frozen=True, slots=True)
class Recalled:
    """The results of convolutions by image and weight, the weights by result and image, and what is trained."""

    results: dict[tuple[Shape, Shape], set[Shape]] = field(default_factory=dict)
    weights: dict[tuple[Shape, Shape], Counter[Shape]] = field(default_factory=dict)
    trains: bool = False

    @classmethod
    def of(cls, trace: Trace) -> "Recalled":
        places = {place: _TOGETHER[name] for place, name in enumerate(trace.names) if name in _TOGETHER}
        found = cls(trains=any(name.endswith("_batch_norm_backward") for name in trace.names))
        operators = np.flatnonzero(np.isin(trace.operators.name, list(places)) & (trace.operator_inputs >= 0))
        pairs = np.stack((trace.operators.name[operators], trace.operator_inputs[operators])).astype(np.int64)
        for (name, recorded), count in zip(*_unique(pairs), strict=True):
            inputs = read_inputs(trace.names[recorded])
            shapes = [] if inputs is None else [inputs.shapes[place : place + 1] for place in places[name]]
            if len(shapes) == 3 and all(each and each[0] for each in shapes):
                image, weight, result = (each[0] for each in shapes)
                found.results.setdefault((image, weight), set()).add(result)
                found.weights.setdefault((result, image), Counter())[weight] += count
        return found

    def cost(self, operator: str, inputs: Inputs) -> Cost | None:
        """Return the cost of one call, by what other operators say where its own arguments are not recorded."""
        if operator in _NORMS and len(inputs.values) > _TRAINING and not inputs.values[_TRAINING] and self.trains:
            said = [*inputs.values]
            said[_TRAINING] = "True"
            inputs = replace(inputs, values=said)
        found = cost(operator, inputs)
        if found is None and operator in _CONVOLUTIONS:
            return computed(self._forward, inputs)
        return computed(self._of_weight, inputs) if found is None and operator == _OF_WEIGHT else found

    def _forward(self, inputs: Inputs) -> Cost:
        image, weight = inputs.shapes[:2]
        results = self.results.get((image, weight), set())
        if len(results) != 1:
            raise ValueError("no result, or several of other strides")
        return _product(inputs, image, weight, *results)

    def _of_weight(self, inputs: Inputs) -> Cost:
        """Return the mean of one call: convolutions of several weights may have results and images of one size."""
        result, image = inputs.shapes[1:3]
        weights = self.weights.get((result, image), Counter())
        each = [(count, _product(inputs, image, weight, result)) for weight, count in weights.items()]
        calls = weights.total()
        moved = sum(count * found.bytes for count, found in each) // calls
        return Cost(sum(count * found.flops for count, found in each) // calls, moved, moved)


def _unique(pairs: Ints) -> tuple[list[list[int]], list[int]]:
    found, counts = np.unique(pairs, axis=1, return_counts=True)
    return found.T.tolist(), counts.tolist()


def _product(inputs: Inputs, image: Shape, weight: Shape, result: Shape) -> Cost:
    return once(inputs, 2 * prod(result) * prod(weight[1:]), prod(image), prod(weight), prod(result))
