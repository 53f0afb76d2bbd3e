"""What an operator has to compute and to move at least, from the shapes of its inputs."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import msgspec

from trainguard.kernels.inputs import Inputs

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """Floating-point operations, a multiplication and an addition counted each, and bytes to and from memory."""

    flops: int
    bytes: int


def cost(operator: str, inputs: Inputs) -> Cost | None:
    """Return the cost of one call; None for an operator without a formula, or where shapes or types lack."""
    formula = _FORMULAS.get(operator)
    if formula is None:
        return None
    try:
        return formula(inputs)
    except (IndexError, ValueError, msgspec.MsgspecError):  # fewer inputs or dimensions than the operator has
        return None


def _moved(inputs: Inputs, *sizes: int) -> int:
    """Return the bytes of all tensors, as many elements each, in the type of the first input that has one."""
    known = [each for each, shape in zip(inputs.element_bytes, inputs.shapes, strict=True) if each > 0 and shape]
    if not known:
        raise ValueError("no input has a known type")
    return known[0] * sum(sizes)


def _matrix(left: int, right: int) -> Callable[[Inputs], Cost]:
    def of(inputs: Inputs) -> Cost:
        one, other = inputs.shapes[left], inputs.shapes[right]
        *batch, rows, inside = one
        columns = other[-1]
        if len(one) < 2 or other[-2] != inside:
            raise ValueError("matrices that do not fit")
        result = prod(batch) * rows * columns
        return Cost(2 * result * inside, _moved(inputs, prod(one), prod(other), result))

    return of


def _linear(inputs: Inputs) -> Cost:
    one, weight = inputs.shapes[0], inputs.shapes[1]
    if one[-1] != weight[1]:
        raise ValueError("matrices that do not fit")
    result = prod(one[:-1]) * weight[0]
    return Cost(2 * result * weight[1], _moved(inputs, prod(one), prod(weight), result))


def _convolution(stride: int, padding: int, dilation: int) -> Callable[[Inputs], Cost]:
    """Return the formula of a forward convolution whose geometry is at these places of its arguments."""

    def of(inputs: Inputs) -> Cost:
        image, weight = inputs.shapes[0], inputs.shapes[1]
        numbers = [msgspec.json.decode(inputs.values[place], type=list[int]) for place in (stride, padding, dilation)]
        steps, around, apart = (_each(found, len(image) - 2) for found in numbers)
        out = [
            (size + 2 * rim - gap * (kernel - 1) - 1) // step + 1
            for size, kernel, step, rim, gap in zip(image[2:], weight[2:], steps, around, apart, strict=True)
        ]
        if min(out) < 1:
            raise ValueError("no output")
        result = image[0] * weight[0] * prod(out)
        return Cost(2 * result * prod(weight[1:]), _moved(inputs, prod(image), prod(weight), result))

    return of


def _each(found: list[int], count: int) -> list[int]:
    return found * count if len(found) == 1 else found


def _general_convolution(inputs: Inputs) -> Cost:
    if inputs.values[6] != "False":
        raise ValueError("transposed, or not known not to be")
    return _convolution(3, 4, 5)(inputs)


def _convolution_backward(inputs: Inputs) -> Cost:
    """Return the cost of as many products as gradients are wanted: of the input, and of the weight."""
    gradient, image, weight = inputs.shapes[:3]
    if inputs.values[7] != "False":
        raise ValueError("transposed, or not known not to be")
    wanted = inputs.values[10].strip("[]").replace(" ", "").split(",")[:2].count("True")
    product = 2 * prod(gradient) * prod(weight[1:])
    sizes = prod(gradient), prod(image), prod(weight)
    return Cost(wanted * product, wanted * _moved(inputs, *sizes))


def _gradient_of_input(inputs: Inputs) -> Cost:
    """Return the cost of one product; its other tensor has the shape of the image, which is not recorded."""
    gradient, weight = inputs.shapes[1], inputs.shapes[2]
    if not gradient or not weight:
        raise ValueError("no shapes")
    return Cost(2 * prod(gradient) * prod(weight[1:]), _moved(inputs, prod(gradient), prod(weight)))


def _flash_attention(inputs: Inputs) -> Cost:
    """Return the cost of two products over ``[batch, length, heads, width]``; a causal mask halves them."""
    query, key = inputs.shapes[0], inputs.shapes[1]
    if len(query) != 4 or len(key) != 4 or inputs.shapes[3] or inputs.shapes[4]:
        raise ValueError("sequences with lengths of their own")
    batch, length, heads, width = query
    flops = 4 * batch * heads * length * key[1] * width
    moved = _moved(inputs, 2 * prod(query), 2 * prod(key))
    return Cost(flops // 2 if inputs.values[8] == "True" else flops, moved)


def _pointwise(inputs: Inputs) -> Cost:
    """Return the cost of one operation an element: each tensor is read once, and the result is written."""
    shapes = [shape for shape in inputs.shapes if shape]
    result = max(prod(shape) for shape in shapes)
    return Cost(result, _moved(inputs, *(prod(shape) for shape in shapes), result))


_FORMULAS: dict[str, Callable[[Inputs], Cost]] = {
    "aten::mm": _matrix(0, 1),
    "aten::bmm": _matrix(0, 1),
    "aten::matmul": _matrix(0, 1),
    "aten::addmm": _matrix(1, 2),
    "aten::baddbmm": _matrix(1, 2),
    "aten::linear": _linear,
    "aten::convolution": _general_convolution,
    "aten::_convolution": _general_convolution,
    "aten::cudnn_convolution": _convolution(3, 2, 4),
    "aten::miopen_convolution": _convolution(4, 3, 5),
    "aten::convolution_backward": _convolution_backward,
    "aten::cudnn_convolution_backward_input": _gradient_of_input,
    "aten::_flash_attention_forward": _flash_attention,
    **{
        f"aten::{name}{place}": _pointwise
        for name in ("add", "sub", "mul", "div", "gelu", "relu", "silu", "sigmoid", "tanh", "exp", "clamp_min")
        for place in ("", "_")
    },
    "aten::threshold_backward": _pointwise,
    "aten::gelu_backward": _pointwise,
    "aten::silu_backward": _pointwise,
}
