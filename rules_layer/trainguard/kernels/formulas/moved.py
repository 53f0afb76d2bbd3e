"""Operators that memory bounds: single elements, reductions, normalisation, pooling, lists of tensors.

An element that is read counts as one operation, unless a formula says otherwise: memory bounds these operators. Bytes
are the least that an algorithm which keeps a row on the chip moves; statistics over a batch take a second reading.
Sources of the arguments: PyTorch's ``native_functions.yaml``, vLLM's ``csrc/ops.h``.
"""

from collections.abc import Iterable, Sequence
from math import prod

from trainguard.kernels.costs import Cost, Inputs, Shape
from trainguard.kernels.formulas.common import LONG, Formula, broadcast, bytes_of, numbers, once, says, tensor, type_of
from trainguard.kernels.formulas.rows import ROWS

_BOOL = 1


def pointwise(read: int, *, in_place: bool = False, out: int = 0, first: int = 0) -> Formula:
    """Return the formula of one operation an element; a tensor behind the ``read`` arguments is only written.

    ``out`` are the bytes of an element of the result where its type is not that of the inputs, ``first`` where its
    type is that of inputs from this one on.
    """

    def of(inputs: Inputs) -> Cost:
        tensors = [
            (inputs.elements(place), inputs.element_bytes[place]) for place, shape in enumerate(inputs.shapes) if shape
        ]
        given = [shape for shape in inputs.shapes[:read] if shape]
        if in_place and not inputs.shapes[0]:
            return _single(inputs)
        sizes, written = tensors[: len(given)], tensors[len(given) :]
        if not given or len(written) > (0 if in_place else 1) or any(size <= 0 for _, size in tensors):
            raise ValueError("no tensor, more of them than the operator has, or a type that is not known")
        elements = prod(broadcast(*given))
        typed = {size for _, size in sizes[first:]} or {sizes[0][1]}
        widest = max(typed)
        if len(typed) > 1 and widest > 4 and not out:
            raise ValueError("of a long integer and a shorter type the result is not known")
        taken = sum(count * size for count, size in sizes)
        if in_place:
            return Cost(elements, taken + elements * sizes[0][1], taken)
        moved = taken + elements * (written[0][1] if written else out or widest)
        return Cost(elements, moved, moved)

    return of


def _single(inputs: Inputs) -> Cost:
    """Return the cost of a tensor of one element, which has no dimensions, and is read and written in place."""
    size = inputs.element_bytes[0]
    if size <= 0 or any(inputs.shapes):
        raise ValueError("no tensor, or a type that is not known")
    return Cost(1, 2 * size, size)


def filled(inputs: Inputs) -> Cost:
    """Return the cost of a tensor that is only written; one without dimensions has one element."""
    held = prod(inputs.shapes[0]) * bytes_of(inputs, 0)
    return Cost(0, held, held)


def copied(inputs: Inputs) -> Cost:
    """Return the cost of a copy, between types, too: the second tensor is read, the first is written."""
    sizes = inputs.element_bytes[:2]
    if not all(inputs.shapes[:2]) or min(sizes) <= 0:
        raise ValueError("no tensor, or a type that is not known")
    held = sum(inputs.elements(place) * size for place, size in enumerate(sizes))
    return Cost(0, held, held)


def swept(count: int, *, of: int = 0) -> Formula:
    """Return the formula of tensors like input ``of`` that are read or written so often, together."""

    def formula(inputs: Inputs) -> Cost:
        size = prod(tensor(inputs, of))
        return once(inputs, size, count * size)

    return formula


def batch_norm(inputs: Inputs) -> Cost:
    """Return the cost of a forward pass; statistics of the batch, unless it is said to have none, take a reading."""
    size = prod(tensor(inputs, 0))
    return once(inputs, size, (3 if not inputs.has_values or says(inputs, 5) else 2) * size)


def reduction(dims: int, shortest: int) -> Formula:
    """Return the formula of a reduction; all dimensions are reduced with fewer than ``shortest`` arguments.

    Of a trace without values the result does not count: it is smaller than what is read.
    """

    def of(inputs: Inputs) -> Cost:
        shape, size = inputs.shapes[0], inputs.element_bytes[0]
        if not shape or size <= 0:
            raise ValueError("no tensor, or a type that is not known")
        reduced = list(range(len(shape)))
        if inputs.has_values and len(inputs.shapes) >= shortest:
            reduced = [each % len(shape) for each in _dims(inputs, dims)] or reduced
        left = prod(length for place, length in enumerate(shape) if place not in reduced)
        return once(inputs, prod(shape), prod(shape), left)

    return of


def _dims(inputs: Inputs, place: int) -> list[int]:
    return [] if inputs.values[place] in ("[]", "()") else numbers(inputs, place)


def searched(inputs: Inputs) -> Cost:
    """Return the cost of what reads a tensor whole and writes little."""
    return once(inputs, prod(tensor(inputs, 0)), prod(tensor(inputs, 0)))


def dropout(inputs: Inputs) -> Cost:
    """Return the cost of a forward pass, which also writes a mask of bytes."""
    size = prod(tensor(inputs, 0))
    moved = (2 * type_of(inputs) + _BOOL) * size
    return Cost(size, moved, moved)


def halved(moves: int) -> Formula:
    """Return the formula of a gated activation, whose halves of the last dimension move, ``moves`` of them together."""

    def of(inputs: Inputs) -> Cost:
        half = max(prod(tensor(inputs, place)) for place, shape in enumerate(inputs.shapes) if shape) // 2
        return once(inputs, half, moves * half)

    return of


def turned(inputs: Inputs) -> Cost:
    """Return the cost of rotary embeddings: queries and keys, the first two tensors, are read and written."""
    both = sum(prod(shape) for shape in inputs.shapes[:2] if len(shape) >= 3)
    if not both:
        raise ValueError("no tensor of heads")
    return once(inputs, 3 * both, 2 * both)


def max_pool(inputs: Inputs) -> Cost:
    image = tensor(inputs, 0)
    window, around, apart = (_pair(inputs, place) for place in (1, 3, 4))
    steps = _pair(inputs, 2) if inputs.values[2] not in ("", "[]") else window
    out = [
        -(-(size + 2 * rim - gap * (kernel - 1) - 1) // step) + 1
        if says(inputs, 5)
        else (size + 2 * rim - gap * (kernel - 1) - 1) // step + 1
        for size, kernel, step, rim, gap in zip(image[-2:], window, steps, around, apart, strict=True)
    ]
    results = prod(image[:-2]) * prod(out)
    moved = type_of(inputs) * (prod(image) + results) + LONG * results
    return Cost(results * prod(window), moved, moved)


def max_pool_backward(inputs: Inputs) -> Cost:
    gradient, image = tensor(inputs, 0), tensor(inputs, 1)
    moved = type_of(inputs) * (prod(gradient) + prod(image)) + LONG * prod(gradient)
    return Cost(prod(gradient), moved, moved)


def _pair(inputs: Inputs, place: int) -> list[int]:
    found = numbers(inputs, place)
    return found * 2 if len(found) == 1 else found


def listed(moves: int | None = None, flops: int = 1) -> Formula:
    """Return the formula of an operator over lists of tensors: each list moves once, and the result of the first.

    ``moves`` is how often the first list's size moves, where it is another number; ``flops`` are those of an element.
    """

    def of(inputs: Inputs) -> Cost:
        lists = _lists(inputs)
        elements = _elements(lists[0])
        held = inputs.kernel_bytes * sum(map(_elements, lists))
        moved = inputs.kernel_bytes * elements * (len(lists) + 1 if moves is None else moves)
        return Cost(flops * elements, moved, held)

    return of


def _lists(inputs: Inputs) -> list[Sequence[Shape]]:
    lists = [each for each in inputs.lists if each]
    if not lists or inputs.kernel_bytes <= 0:
        raise ValueError("no list of tensors, or a type that is not known")
    return lists


def _elements(shapes: Iterable[Sequence[int]]) -> int:
    return sum(map(prod, shapes))


def joined(inputs: Inputs) -> Cost:
    """Return the cost of tensors that are put together: read and written once."""
    moved = 2 * inputs.kernel_bytes * _elements(_lists(inputs)[0])
    return Cost(0, moved, moved)


def fused(inputs: Inputs) -> Cost:
    """Return the cost of a kernel of Inductor: each of its tensors moves once, in its own type."""
    held, most = 0, 0
    for place, shape in enumerate(inputs.shapes):
        if shape:
            held += prod(shape) * bytes_of(inputs, place)
            most = max(most, prod(shape))
    if not held:
        raise ValueError("no tensor")
    return Cost(most, held, held)


def fused_product(inputs: Inputs) -> Cost:
    """Return the cost of Inductor's product, whose tensors are two matrices and, last, their result."""
    shapes: list[Shape] = [shape for shape in inputs.shapes if len(shape) >= 2]
    if len(shapes) != 3:
        raise ValueError("another number of matrices than a product has")
    one, other, result = shapes
    if (one[-1], one[-2], other[-1]) != (other[-2], result[-2], result[-1]) or one[:-2] != result[:-2]:
        raise ValueError("matrices that do not fit")
    return once(inputs, 2 * prod(result) * one[-1], prod(one), prod(other), prod(result))


_BINARY = ("add", "sub", "mul", "div", "clamp_min", "rsub", "maximum", "minimum", "pow", "remainder", "fmod", "atan2")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")
_TESTED = ("isnan", "isinf", "isfinite", "logical_not")
_UNARY = (
    "gelu", "relu", "silu", "sigmoid", "tanh", "exp", "neg", "abs", "sqrt", "rsqrt", "log", "log1p", "log2",
    "cos", "sin",
    "erf", "reciprocal", "clamp", "clamp_max", "leaky_relu", "elu", "hardtanh", "hardswish", "hardsigmoid", "mish",
    "softplus", "square", "floor", "ceil", "round", "trunc", "sign", "nan_to_num", "tril", "triu", "cumsum",
    "flip", "roll",
    "exp2", "expm1", "bitwise_not", "celu", "selu", "log_sigmoid_forward",
)  # fmt: skip
_BACKWARD = (
    "threshold", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "elu", "hardtanh", "hardswish",
    "hardsigmoid", "mish",
    "softplus", "log_sigmoid",
)  # fmt: skip
_FOREACH = (
    "add", "sub", "mul", "div", "addcmul", "addcdiv", "lerp", "sqrt", "rsqrt", "neg", "abs", "pow", "maximum",
    "minimum",
    "reciprocal", "exp", "clamp_min", "clamp_max", "sign",
)  # fmt: skip
_FILLED = ("fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_", "log_normal_")
# Of an element: two moving averages (3 each), two corrections, a root, a sum, a quotient and the step.
_ADAM_FLOPS = 12

# Operators on single elements, which one kernel could compute in a row.
POINTWISE: dict[str, Formula] = {
    **{f"aten::{name}": pointwise(2) for name in (*_BINARY, *_BITS)},
    **{f"aten::{name}_": pointwise(2, in_place=True) for name in (*_BINARY, *_BITS)},
    **{f"aten::{name}": pointwise(2, out=_BOOL) for name in _COMPARED},
    **{f"aten::{name}": pointwise(1, out=_BOOL) for name in _TESTED},
    **{f"aten::{name}": pointwise(1) for name in _UNARY},
    **{f"aten::{name}_": pointwise(1, in_place=True) for name in _UNARY},
    **{f"aten::{name}_backward": pointwise(2) for name in _BACKWARD},
    **{f"aten::{name}": pointwise(3) for name in ("addcmul", "addcdiv", "lerp")},
    **{f"aten::{name}_": pointwise(3, in_place=True) for name in ("addcmul", "addcdiv", "lerp")},
    "aten::masked_fill": pointwise(2),
    "aten::masked_fill_": pointwise(2, in_place=True),
    "aten::where": pointwise(3, first=1),
    "aten::native_dropout_backward": pointwise(2),
}

MOVED: dict[str, Formula] = {
    **POINTWISE,
    **ROWS,
    **{f"aten::{name}": reduction(1, 3) for name in ("sum", "mean", "amax", "amin", "logsumexp")},
    **{f"aten::{name}": reduction(1, 3) for name in ("argmax", "argmin", "max", "min", "prod", "any", "all")},
    "aten::linalg_vector_norm": reduction(2, 4),
    "aten::norm": reduction(2, 4),
    **{f"aten::{name}": searched for name in ("topk", "var_mean", "var", "std", "count_nonzero")},
    **{f"aten::{name}": filled for name in _FILLED},
    "aten::copy_": copied,
    "aten::cat": joined,
    "aten::stack": joined,
    "aten::native_batch_norm": batch_norm,
    "aten::cudnn_batch_norm": batch_norm,
    "aten::miopen_batch_norm": batch_norm,
    **{f"aten::{name}_batch_norm_backward": swept(5) for name in ("native", "cudnn", "miopen")},
    **{f"aten::{name}": swept(2) for name in ("native_layer_norm", "native_group_norm", "_fused_rms_norm")},
    **{f"aten::{name}_backward": swept(3) for name in ("native_layer_norm", "native_group_norm", "_fused_rms_norm")},
    **{f"aten::{name}": swept(2) for name in ("_softmax", "_log_softmax", "_masked_softmax", "_safe_softmax")},
    **{f"aten::{name}_backward_data": swept(3) for name in ("_softmax", "_log_softmax", "_masked_softmax")},
    **{f"{room}::rms_norm": swept(2) for room in ("_C", "vllm", "sgl_kernel")},
    **{f"{room}::fused_add_rms_norm": swept(4) for room in ("_C", "vllm", "sgl_kernel")},
    "_C::silu_and_mul": swept(3),
    "aten::glu": halved(3),
    "aten::glu_backward": halved(5),
    "aten::native_dropout": dropout,
    "aten::split_with_sizes_copy": swept(2),
    # Functions of libraries, whose kernels run right below them.
    **{name: swept(2) for name in ("LigerRMSNormFunction", "LigerLayerNormFunction", "FusedRoPEFunc")},
    **{name: swept(2) for name in ("FusedLayerNormAffineFunction", "FusedRMSNormAffineFunction")},
    **{f"{name}Backward": swept(3) for name in ("LigerRMSNormFunction", "LigerLayerNormFunction")},
    **{f"{name}Backward": swept(3) for name in ("FusedLayerNormAffineFunction", "FusedRMSNormAffineFunction")},
    **{f"Liger{name}MulFunction": swept(3) for name in ("SiLU", "GELU")},
    **{f"Liger{name}MulFunctionBackward": swept(5) for name in ("SiLU", "GELU")},
    "FusedRoPEFuncBackward": swept(2),
    "LigerRopeFunction": turned,
    "LigerRopeFunctionBackward": turned,
    # The logits are read for their maximum and sum, and again for the gradient that takes their place.
    "LigerCrossEntropyFunction": swept(3),
    "CrossEntropyFunction": swept(3),
    "aten::mse_loss": swept(2),
    "aten::mse_loss_backward": swept(3, of=1),
    "aten::nll_loss_backward": swept(1, of=1),
    "aten::max_pool2d_with_indices": max_pool,
    "aten::max_pool2d_with_indices_backward": max_pool_backward,
    **{f"aten::_foreach_{name}": listed() for name in _FOREACH},
    **{f"aten::_foreach_{name}_": listed() for name in _FOREACH},
    # Adam gives its gradients twice to addcmul.
    "aten::_foreach_addcmul": listed(3, 3),
    "aten::_foreach_addcmul_": listed(3, 3),
    "aten::_foreach_norm": listed(1, 2),
    "aten::_foreach_zero_": listed(1, 0),
    "aten::_foreach_copy_": listed(2, 0),
    "aten::_amp_foreach_non_finite_check_and_unscale_": listed(2),
    "aten::_fused_adam_": listed(7, _ADAM_FLOPS),
    "aten::_fused_adamw_": listed(7, _ADAM_FLOPS),
    "aten::_fused_sgd_": listed(3, 2),
    "aten::_fused_adagrad_": listed(5, 5),
}
