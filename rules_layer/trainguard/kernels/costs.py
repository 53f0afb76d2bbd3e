"""An operator's recorded inputs, and what it has to compute and to move at least by their shapes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import msgspec

UNKNOWN = -1
_BETWEEN = "\x1f"
_FLOATS = ("float", "Float", "Half")
_BYTES = {
    "double": 8, "float": 4, "half": 2, "bfloat16": 2, "int": 4, "long int": 8, "long": 8, "short": 2, "short int": 2,
    "char": 1, "signed char": 1, "byte": 1, "unsigned char": 1, "bool": 1, "complexfloat": 8, "complexdouble": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inputs:
    """An operator's inputs, in the order of its arguments.

    ``shapes`` are empty for what is no tensor, ``element_bytes`` -1 where the type is unknown; ``values`` are other
    arguments as text, empty where none are recorded.
    """

    shapes: Sequence[tuple[int, ...]]
    element_bytes: Sequence[int]
    values: Sequence[str]


def inputs_text(shapes: bytes, types: bytes, values: bytes) -> str:
    """Return the JSON of an operator's dimensions, types and values as one text; empty without dimensions."""
    return _BETWEEN.join(part.decode("utf-8", "replace") for part in (shapes, types, values)) if shapes else ""


def shapes_text(text: str) -> str:
    """Return the dimensions of a text of `inputs_text`, as JSON without spaces."""
    return "".join(text.partition(_BETWEEN)[0].split())


def short_shapes(shapes: str) -> str:
    """Return dimensions as people write them, ``64x512, 512``; what is no tensor is left out, a list is ``…``."""
    decoded = _decoded(shapes)
    if not isinstance(decoded, list):
        return ""
    known = (each for each in decoded if isinstance(each, list) and each)
    return ", ".join("x".join(map(str, each)) if all(type(size) is int for size in each) else "…" for each in known)


def read_inputs(text: str) -> Inputs | None:
    """Return the inputs of a text of `inputs_text`; None where they cannot be read or hold lists of tensors."""
    parts = [_decoded(part) for part in text.split(_BETWEEN)]
    if len(parts) != 3 or not isinstance(parts[0], list):
        return None
    try:
        shapes = [msgspec.convert(shape, tuple[int, ...]) for shape in parts[0]]
    except msgspec.ValidationError:
        return None
    if any(size < 0 for shape in shapes for size in shape):
        return None
    types, values = (part if isinstance(part, list) else [] for part in parts[1:])
    count = len(shapes)
    return Inputs(
        shapes=shapes,
        element_bytes=[element_bytes(str(each)) for each in types[:count]] + [UNKNOWN] * (count - len(types)),
        values=[str(each) for each in values[:count]] + [""] * (count - len(values)),
    )


def element_bytes(dtype: str) -> int:
    """Return the bytes of an element of a type as PyTorch names it; -1 for another one."""
    return _BYTES.get(dtype.removeprefix("c10::").lower(), UNKNOWN)


def payload(elements_in: int, elements_out: int, dtype: str) -> int:
    """Return a collective's bytes: the larger one of input and output; -1 where the trace does not say them."""
    size, most = element_bytes(dtype), max(elements_in, elements_out)
    return size * most if size > 0 and most >= 0 else UNKNOWN


@lru_cache(maxsize=4_096)
def first_float(types: bytes) -> str:
    """Return the first floating type in the JSON of an operator's types; empty where there is none."""
    decoded = _decoded(types)
    if not isinstance(decoded, list):
        return ""
    for each in decoded:
        if isinstance(each, str) and (any(word in each for word in _FLOATS) or each == "double"):
            return each
    return ""


def _decoded(text: bytes | str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """Floating-point operations, a multiplication and an addition counted each, and bytes to and from memory.

    ``held`` is the size of the tensors: one that is read and overwritten moves twice and is held once.
    """

    flops: int
    bytes: int
    held: int


def cost(operator: str, inputs: Inputs) -> Cost | None:
    """Return the cost of one call; None for an operator without a formula, or where shapes or types lack."""
    formula = _FORMULAS.get(operator)
    if formula is None:
        return None
    try:
        return formula(inputs)
    except (IndexError, ValueError, msgspec.MsgspecError):  # fewer inputs or dimensions than the operator has
        return None


def _once(inputs: Inputs, flops: int, *sizes: int) -> Cost:
    """Return the cost where each tensor moves once, in the type of the first input that has one."""
    known = [each for each, shape in zip(inputs.element_bytes, inputs.shapes, strict=True) if each > 0 and shape]
    if not known:
        raise ValueError("no input has a known type")
    moved = known[0] * sum(sizes)
    return Cost(flops, moved, moved)


def _matrix(left: int, right: int, beta: int | None = None) -> Callable[[Inputs], Cost]:
    """Return the formula of a product; one with a ``beta`` reads and adds its first argument, unless that is 0."""

    def of(inputs: Inputs) -> Cost:
        one, other = inputs.shapes[left], inputs.shapes[right]
        if len(one) < 2 or len(other) < 2 or other[-2] != one[-1]:
            raise ValueError("matrices that do not fit")
        result = prod(_broadcast(one[:-2], other[:-2])) * one[-2] * other[-1]
        added = prod(inputs.shapes[0]) if beta is not None and inputs.values[beta] != "0" else 0
        return _once(inputs, 2 * result * one[-1], prod(one), prod(other), added, result)

    return of


def _broadcast(*shapes: Shape) -> Shape:
    """Return the shape that shapes have together; raises ValueError where they do not fit."""
    length = max(map(len, shapes))
    padded = [(1,) * (length - len(shape)) + tuple(shape) for shape in shapes]
    sizes = [set(each) - {1} for each in zip(*padded, strict=True)]
    if any(len(each) > 1 for each in sizes):
        raise ValueError("shapes that do not fit")
    return tuple(each.pop() if each else 1 for each in sizes)


def _linear(inputs: Inputs) -> Cost:
    one, weight = inputs.shapes[0], inputs.shapes[1]
    if one[-1] != weight[1]:
        raise ValueError("matrices that do not fit")
    result = prod(one[:-1]) * weight[0]
    bias = prod(inputs.shapes[2]) if len(inputs.shapes) > 2 and inputs.shapes[2] else 0
    return _once(inputs, 2 * result * weight[1], prod(one), prod(weight), bias, result)


def _convolution(stride: int, padding: int, dilation: int) -> Callable[[Inputs], Cost]:
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
        return _once(inputs, 2 * result * prod(weight[1:]), prod(image), prod(weight), result)

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
    product = _once(inputs, 2 * prod(gradient) * prod(weight[1:]), prod(gradient), prod(image), prod(weight))
    return Cost(wanted * product.flops, wanted * product.bytes, product.held)


def _gradient_of_input(inputs: Inputs) -> Cost:
    """Return the cost of one product; its other tensor has the shape of the image, which is not recorded."""
    gradient, weight = inputs.shapes[1], inputs.shapes[2]
    if not gradient or not weight:
        raise ValueError("no shapes")
    return _once(inputs, 2 * prod(gradient) * prod(weight[1:]), prod(gradient), prod(weight))


def _flash_attention(inputs: Inputs) -> Cost:
    """Return the cost of two products over ``[batch, length, heads, width]``; a causal mask halves them."""
    query, key = inputs.shapes[0], inputs.shapes[1]
    if len(query) != 4 or len(key) != 4 or inputs.shapes[3] or inputs.shapes[4]:
        raise ValueError("sequences with lengths of their own")
    batch, length, heads, width = query
    flops = 4 * batch * heads * length * key[1] * width
    return _once(inputs, flops // 2 if inputs.values[8] == "True" else flops, 2 * prod(query), 2 * prod(key))


def _pointwise(read: int, *, in_place: bool = False) -> Callable[[Inputs], Cost]:
    """Return the formula of one operation an element; a tensor behind the ``read`` arguments is only written."""

    def of(inputs: Inputs) -> Cost:
        tensors = [
            (prod(shape), size) for shape, size in zip(inputs.shapes, inputs.element_bytes, strict=True) if shape
        ]
        given = [shape for shape in inputs.shapes[:read] if shape]
        sizes, out = tensors[: len(given)], tensors[len(given) :]
        if not given or len(out) > (0 if in_place else 1) or any(size <= 0 for _, size in tensors):
            raise ValueError("no tensor, more of them than the operator has, or a type that is not known")
        elements = prod(_broadcast(*given))
        widest = max(size for _, size in sizes)
        if len({size for _, size in sizes}) > 1 and widest > 4:
            raise ValueError("of a long integer and a shorter type the result is not known")
        taken = sum(count * size for count, size in sizes)
        if in_place:
            return Cost(elements, taken + elements * sizes[0][1], taken)
        moved = taken + elements * (out[0][1] if out else widest)
        return Cost(elements, moved, moved)

    return of


def _reduction(inputs: Inputs) -> Cost:
    """Return the cost of one operation an element of what is read; the result is what the reduced dimensions leave."""
    shape, size = inputs.shapes[0], inputs.element_bytes[0]
    if not shape or size <= 0:
        raise ValueError("no tensor, or a type that is not known")
    reduced = list(range(len(shape)))
    if len(inputs.shapes) > 2:  # with fewer arguments all dimensions are reduced
        reduced = [each % len(shape) for each in msgspec.json.decode(inputs.values[1], type=list[int])] or reduced
    left = prod(length for place, length in enumerate(shape) if place not in reduced)
    return _once(inputs, prod(shape), prod(shape), left)


_BINARY = ("add", "sub", "mul", "div", "clamp_min")
_UNARY = ("gelu", "relu", "silu", "sigmoid", "tanh", "exp")
_FORMULAS: dict[str, Callable[[Inputs], Cost]] = {
    "aten::mm": _matrix(0, 1),
    "aten::bmm": _matrix(0, 1),
    "aten::matmul": _matrix(0, 1),
    "aten::addmm": _matrix(1, 2, beta=3),
    "aten::baddbmm": _matrix(1, 2, beta=3),
    "aten::linear": _linear,
    "aten::convolution": _general_convolution,
    "aten::_convolution": _general_convolution,
    "aten::cudnn_convolution": _convolution(3, 2, 4),
    "aten::miopen_convolution": _convolution(4, 3, 5),
    "aten::convolution_backward": _convolution_backward,
    "aten::cudnn_convolution_backward_input": _gradient_of_input,
    "aten::_flash_attention_forward": _flash_attention,
    **{f"aten::{name}": _pointwise(2) for name in _BINARY},
    **{f"aten::{name}_": _pointwise(2, in_place=True) for name in _BINARY},
    **{f"aten::{name}": _pointwise(1) for name in _UNARY},
    **{f"aten::{name}_": _pointwise(1, in_place=True) for name in _UNARY},
    **{f"aten::{name}_backward": _pointwise(2) for name in ("threshold", "gelu", "silu")},
    **{f"aten::{name}": _reduction for name in ("sum", "mean", "amax", "amin")},
}
