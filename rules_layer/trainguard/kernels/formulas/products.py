"""Products of matrices and convolutions.

Sources: PyTorch's ``torch/utils/flop_counter.py`` for products and convolutions; signatures are those of
``aten/src/ATen/native/native_functions.yaml``, of vLLM's ``fused_moe`` and of AITER's, and of Transformer Engine's
``ts_fp8_op.cpp`` and ``pytorch/module``.
"""

from math import prod

from trainguard.kernels.costs import Cost, Inputs, Shape
from trainguard.kernels.formulas.common import Formula, broadcast, bytes_of, numbers, once, says, tensor, type_of

# By the number of PyTorch's ScalarType: Half, Float, Double, BFloat16.
_TYPE_BYTES = {"5": 2, "6": 4, "7": 8, "15": 2}


def matrix(left: int, right: int, beta: int | None = None) -> Formula:
    """Return the formula of a product; one with a ``beta`` reads and adds its first argument, unless that is 0."""

    def of(inputs: Inputs) -> Cost:
        one, other = inputs.shapes[left], inputs.shapes[right]
        if len(one) < 2 or len(other) < 2 or other[-2] != one[-1]:
            raise ValueError("matrices that do not fit")
        result = prod(broadcast(one[:-2], other[:-2])) * one[-2] * other[-1]
        added = inputs.elements(0) if beta is not None and inputs.values[beta] != "0" else 0
        return once(inputs, 2 * result * one[-1], inputs.elements(left), inputs.elements(right), added, result)

    return of


def linear(inputs: Inputs) -> Cost:
    one, weight = inputs.shapes[0], inputs.shapes[1]
    if one[-1] != weight[1]:
        raise ValueError("matrices that do not fit")
    result = prod(one[:-1]) * weight[0]
    bias = inputs.elements(2) if len(inputs.shapes) > 2 and inputs.shapes[2] else 0
    return once(inputs, 2 * result * weight[1], inputs.elements(0), inputs.elements(1), bias, result)


def vector(left: int, right: int) -> Formula:
    """Return the formula of a matrix by a vector, and of two vectors."""

    def of(inputs: Inputs) -> Cost:
        one, other = tensor(inputs, left), tensor(inputs, right)
        if len(other) != 1 or one[-1] != other[0]:
            raise ValueError("vectors that do not fit")
        return once(inputs, 2 * prod(one), prod(one), prod(other), prod(one[:-1]))

    return of


def scaled(out_type: int) -> Formula:
    """Return the formula of a product of FP8 or FP4, whose result has another type."""

    def of(inputs: Inputs) -> Cost:
        (rows, inner), (same, columns) = inputs.shapes[0], inputs.shapes[1]
        if inner != same:
            raise ValueError("matrices that do not fit")
        size = type_of(inputs)
        wide = _TYPE_BYTES.get(inputs.values[out_type], size) if out_type < len(inputs.values) else size
        held = size * (rows * inner + inner * columns) + wide * rows * columns
        return Cost(2 * rows * columns * inner * _pairs(inputs), held, held)

    return of


def _pairs(inputs: Inputs) -> int:
    """Return how many elements one of the inner dimension stands for."""
    return 2 if inputs.packed else 1


def grouped(offsets: int) -> Formula:
    """Return the formula of products by group, of which a side is a stack of matrices or both are cut by offsets."""

    def of(inputs: Inputs) -> Cost:
        one, other = inputs.shapes[0], inputs.shapes[1]
        if one[-1] != other[-2]:
            raise ValueError("matrices that do not fit")
        inner = one[-1] * _pairs(inputs)
        if len(one) == 2 and len(other) == 2:
            groups = tensor(inputs, offsets)[0]
            return once(inputs, 2 * one[0] * other[1] * inner, prod(one), prod(other), groups * one[0] * other[1])
        result = one[-2] * other[-1] * (one[0] if len(one) == len(other) == 3 else 1)
        return once(inputs, 2 * result * inner, prod(one), prod(other), result)

    return of


def te_gemm(inputs: Inputs) -> Cost:
    """Return the cost of Transformer Engine's product: its result is ``[columns, rows]``, its sides lie either way."""
    one, other, (columns, rows) = tensor(inputs, 0), tensor(inputs, 5), tensor(inputs, 10)
    inner = prod(one) // rows
    if (inner * rows, inner * columns) != (prod(one), prod(other)):
        raise ValueError("matrices that do not fit")
    sizes = [bytes_of(inputs, place) for place in (0, 5, 10)]
    held = sizes[0] * prod(one) + sizes[1] * prod(other) + sizes[2] * rows * columns
    return Cost(2 * rows * columns * inner, held, held)


def te_layer(inputs: Inputs) -> Cost:
    """Return the cost of Transformer Engine's linear layers: tokens by a weight ``[out, in]``, or by one of each group.

    Its functions take tokens before or behind the weight; vectors are biases and scales. Of two matrices either may be
    the weight.
    """
    matrices = [shape for shape in inputs.shapes if len(shape) >= 2]
    tokens = next((shape for shape in matrices if len(shape) > 2), matrices[0])
    matrices.remove(tokens)
    if len(set(matrices)) != 1 or matrices[0][-1] != tokens[-1]:
        raise ValueError("weights that do not fit")
    rows, (columns, inner) = prod(tokens[:-1]), matrices[0]
    moved = (prod(tokens), len(matrices) * columns * inner, rows * columns)
    return once(inputs, 2 * rows * columns * inner, *moved)


def fused_moe(inputs: Inputs) -> Cost:
    """Return the cost of experts: each token goes through two products of as many of them as it has weights.

    Weights are ``[experts, 2 x width, hidden]`` and ``[experts, hidden, width]``, often of another type than tokens.
    Only chosen experts are read.
    """
    (tokens, hidden), first, second, weights = inputs.shapes[:4]
    experts, _, inner = first
    if (inner, second[0], second[1]) != (hidden, experts, hidden) or weights[0] != tokens:
        raise ValueError("weights that do not fit")
    rows = tokens * weights[1]
    each = first[1] * hidden + second[1] * second[2]
    of_token, of_weight = bytes_of(inputs, 0), bytes_of(inputs, 1)
    moved = of_weight * min(experts, rows) * each + of_token * 2 * tokens * hidden
    return Cost(2 * rows * each, moved, moved)


def convolution(stride: int, padding: int, dilation: int) -> Formula:
    def of(inputs: Inputs) -> Cost:
        image, weight = inputs.shapes[0], inputs.shapes[1]
        steps, around, apart = (_each(numbers(inputs, place), len(image) - 2) for place in (stride, padding, dilation))
        out = [
            (size + 2 * rim - gap * (kernel - 1) - 1) // step + 1
            for size, kernel, step, rim, gap in zip(image[2:], weight[2:], steps, around, apart, strict=True)
        ]
        if min(out) < 1:
            raise ValueError("no output")
        result = image[0] * weight[0] * prod(out)
        return once(inputs, 2 * result * prod(weight[1:]), prod(image), prod(weight), result)

    return of


def transposed(stride: int, padding: int, dilation: int, added: int, groups: int) -> Formula:
    """Return the formula of a transposed convolution, whose weight is ``[in, out / groups, ...]``."""

    def of(inputs: Inputs) -> Cost:
        image, weight = inputs.shapes[0], inputs.shapes[1]
        places = (stride, padding, dilation, added)
        steps, around, apart, more = (_each(numbers(inputs, place), len(image) - 2) for place in places)
        out = [
            (size - 1) * step - 2 * rim + gap * (kernel - 1) + extra + 1
            for size, kernel, step, rim, gap, extra in zip(
                image[2:], weight[2:], steps, around, apart, more, strict=True
            )
        ]
        if min(out) < 1:
            raise ValueError("no output")
        result = image[0] * weight[1] * numbers(inputs, groups)[0] * prod(out)
        return once(inputs, 2 * prod(image) * prod(weight[1:]), prod(image), prod(weight), result)

    return of


def _each(found: list[int], count: int) -> list[int]:
    return found * count if len(found) == 1 else found


_PLAIN, _TRANSPOSED = convolution(3, 4, 5), transposed(3, 4, 5, 7, 8)


def general_convolution(inputs: Inputs) -> Cost:
    return _TRANSPOSED(inputs) if says(inputs, 6) else _PLAIN(inputs)


def convolution_backward(inputs: Inputs) -> Cost:
    """Return the cost of as many products as gradients are wanted: of the input, and of the weight."""
    gradient, image, weight = (tensor(inputs, place) for place in range(3))
    wanted = inputs.values[10].strip("[]").replace(" ", "").split(",")[:2].count("True")
    walked = image if says(inputs, 7) else gradient
    product = once(inputs, 2 * prod(walked) * prod(weight[1:]), prod(gradient), prod(image), prod(weight))
    return Cost(wanted * product.flops, wanted * product.bytes, product.held)


def gradient_of_input(inputs: Inputs) -> Cost:
    """Return the cost of one product; its other tensor has the shape of the image, which is not recorded."""
    gradient, weight = tensor(inputs, 1), tensor(inputs, 2)
    return once(inputs, 2 * prod(gradient) * prod(weight[1:]), prod(gradient), prod(weight))


def gradient_of_weight(inputs: Inputs) -> Cost:
    weight: Shape = tuple(numbers(inputs, 0))
    gradient, image = tensor(inputs, 1), tensor(inputs, 2)
    return once(inputs, 2 * prod(gradient) * prod(weight[1:]), prod(gradient), prod(image), prod(weight))


PRODUCTS: dict[str, Formula] = {
    "aten::mm": matrix(0, 1),
    "aten::bmm": matrix(0, 1),
    "aten::matmul": matrix(0, 1),
    "aten::_int_mm": matrix(0, 1),
    "aten::addmm": matrix(1, 2, beta=3),
    "aten::addmm_": matrix(1, 2, beta=3),
    "aten::_addmm_activation": matrix(1, 2, beta=3),
    "aten::baddbmm": matrix(1, 2, beta=3),
    "aten::baddbmm_": matrix(1, 2, beta=3),
    "aten::linear": linear,
    "aten::mv": vector(0, 1),
    "aten::dot": vector(0, 1),
    "aten::addmv": vector(1, 2),
    "aten::addmv_": vector(1, 2),
    "aten::_scaled_mm": scaled(6),
    "aten::_scaled_mm_v2": scaled(9),
    "aten::_grouped_mm": grouped(2),
    "aten::_scaled_grouped_mm": grouped(4),
    "aten::_scaled_grouped_mm_v2": grouped(8),
    "tex_ts::te_gemm_ts": te_gemm,
    **dict.fromkeys(("_Linear", "_LayerNormLinear", "_GroupedLinear"), te_layer),
    **dict.fromkeys(
        (
            "vllm::rocm_aiter_fused_moe", "vllm::inplace_fused_experts", "vllm::outplace_fused_experts",
            "aiter::fused_moe_", "sglang::inplace_fused_experts", "sglang::outplace_fused_experts",
        ),
        fused_moe,
    ),
    "aten::convolution": general_convolution,
    "aten::_convolution": general_convolution,
    "aten::cudnn_convolution": convolution(3, 2, 4),
    "aten::cudnn_convolution_relu": convolution(3, 4, 5),
    "aten::cudnn_convolution_add_relu": convolution(5, 6, 7),
    "aten::miopen_convolution": convolution(4, 3, 5),
    "aten::miopen_depthwise_convolution": convolution(4, 3, 5),
    "aten::_conv_depthwise2d": convolution(4, 5, 6),
    "aten::conv_depthwise3d": convolution(4, 5, 6),
    "aten::cudnn_convolution_transpose": transposed(4, 2, 5, 3, 6),
    "aten::miopen_convolution_transpose": transposed(5, 3, 6, 4, 7),
    "aten::convolution_backward": convolution_backward,
    "aten::cudnn_convolution_backward_input": gradient_of_input,
    "aten::cudnn_convolution_backward_weight": gradient_of_weight,
}  # fmt: skip
